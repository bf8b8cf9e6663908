// The flags that say which model runs and how, for `run` and for other callers of the same engine.
#pragma once

#include <ctime>
#include <string>

#include "cli/layout_flags.h"
#include "job/model_options.h"

namespace forebay::cli {

// The options, and texts as they were given.
struct ModelFlags : job::ModelOptions {
  LayoutFlags layout;
  std::string isa = "auto", numerics = "auto";
  std::string routing;  // "": balanced
  std::string now;
};

// All but --model.
void AddModelFlags(Command command, ModelFlags& flags);
// Turns the texts into options. Errors name the flag, what was given and what was expected.
base::Status ApplyModelFlags(ModelFlags* flags);

// "2026-03-07T14:05:09", or now in local time for "".
base::Result<std::tm> ParseNow(const std::string& text);

}  // namespace forebay::cli

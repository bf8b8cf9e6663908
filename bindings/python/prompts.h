// Prompts as callers write them.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "job/parsed_line.h"

namespace forebay::python {

struct GivenPrompt {
  std::optional<job::Prompt> prompt;
  std::string json;  // where there is none: something is wrong with it, and the parser says what
};

// A str, token ids, or a dict of "prompt" or "prompt_token_ids". Throws TypeError for anything
// else; `index` names it there.
GivenPrompt ReadPrompt(nanobind::handle prompt, int64_t index, int64_t vocab_size);

}  // namespace forebay::python

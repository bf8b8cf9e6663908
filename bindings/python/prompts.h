// Prompts as callers write them.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "job/lines/parsed_line.h"

namespace forebay::python {

struct GivenPrompt {
  std::optional<job::Prompt> prompt;
  std::string json;  // where there is none: something is wrong with it, and the parser says what
  std::string no_prompt;  // why it is no prompt at all; where that is so there is nothing else
};

// A str, token ids, or a dict of "prompt" or "prompt_token_ids". Anything else is a TypeError,
// which names the `index`: it is thrown, or with `returns` its text is `no_prompt`.
GivenPrompt ReadPrompt(nanobind::handle prompt, int64_t index, int64_t vocab_size, bool returns);

}  // namespace forebay::python

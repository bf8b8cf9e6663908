// Labels of claims that name a model, a layout and a length: "Llama-3.1-70B TP2DP4 4K", any of them.
#pragma once

#include <string_view>

#include "repro/lab.h"

namespace forebay::repro {

// `base` with what the label's words up to "over" name; words that name nothing are left to the caller.
Setting ReadLabel(std::string_view label, Setting base = {});
// Whether the label has this word.
bool HasWord(std::string_view label, std::string_view word);
// The number that follows `before` in the label: "B = ". REQUIRES: there is one.
int64_t NumberAfter(std::string_view label, std::string_view before);

}  // namespace forebay::repro

// Merges as files spell them.
#pragma once

#include <string_view>
#include <utility>

#include "base/status.h"
#include "text/tokenizer_spec.h"
#include "text/vocabulary.h"

namespace forebay::text {

// "a b" -> (a, b); anything but two texts with one space between them is kTokenizerInvalid.
base::Result<std::pair<std::string_view, std::string_view>> SplitMerge(std::string_view line);

// The merge of two tokens of `vocabulary` into a third; kTokenizerInvalid names the one that is
// missing.
base::Result<Merge> MakeMerge(const Vocabulary& vocabulary, std::string_view left,
                              std::string_view right, uint32_t rank);

}  // namespace forebay::text

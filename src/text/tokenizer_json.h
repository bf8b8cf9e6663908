// Hugging Face's tokenizer.json.
#pragma once

#include <string_view>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace forebay::text {

// Reads BPE tokenizers made of
//   normalizers     NFC, Prepend, Replace (of a string), Sequence
//   pre_tokenizers  Split, Digits, ByteLevel, Metaspace, Sequence
//   post_processor  TemplateProcessing, ByteLevel, Sequence
//   decoder         ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip (of spaces at the
//                   start), Sequence
// Another component is kTokenizerUnsupported and named; what is missing or ill-typed is
// kTokenizerInvalid.
base::Result<TokenizerSpec> ParseTokenizerJson(std::string_view json);

}  // namespace forebay::text

// Hugging Face's tokenizer.json and tokenizer_config.json.
#pragma once

#include <string>
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

// Takes bos_token, eos_token, add_bos_token and add_eos_token from a tokenizer_config.json. An
// add_.._token that is there overrules the post-processor.
base::Status ApplyTokenizerConfig(std::string_view json, TokenizerSpec* spec);

// Both, from the files of `folder`; the second may be absent.
base::Result<TokenizerSpec> ReadTokenizerFolder(const std::string& folder);

}  // namespace forebay::text

// What the files beside tokenizer.json say of tokens: which are added or special, which have names,
// and whether a text begins with a BOS.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace forebay::text {

// The files' texts; empty where there is none.
struct TokenizerTexts {
  std::string_view config;              // tokenizer_config.json
  std::string_view special_tokens_map;  // special_tokens_map.json: names that `config` lacks
  std::string_view added_tokens;  // added_tokens.json: where `config` has no added_tokens_decoder
};

// Adds to what tokenizer.json gave, as Hugging Face's transformers does: tokens with ids, the flags
// of those that are there, and named tokens ("bos_token", "additional_special_tokens", ...), which
// are special. The classes of Llama, Gemma and Cohere, and a file without a class, know
// add_bos_token and add_eos_token, which overrule the post-processor; others do not.
base::Status ApplyTokenizerTexts(const TokenizerTexts& texts, TokenizerSpec* spec);

// All of it, from the files of `folder`; each but tokenizer.json may be absent.
base::Result<TokenizerSpec> ReadTokenizerFolder(const std::string& folder);

}  // namespace forebay::text

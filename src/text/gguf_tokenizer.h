// The tokenizer inside a GGUF file's metadata (keys "tokenizer.ggml.*"; the file itself is read
// elsewhere).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_spec.h"

namespace forebay::text {

// What the keys hold; borrows. Empty or absent where the file has no such key.
struct GgufTokenizer {
  // "gpt2": byte-level merges; "llama": sentencepiece's scores; "gemma4": merges of pieces
  std::string_view model;
  std::string_view pre;  // gpt2: the name of the split
  std::span<const std::string_view> tokens;
  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  std::span<const int64_t> token_types;
  std::span<const std::string_view> merges;
  std::span<const double> scores;
  std::optional<uint64_t> bos_token_id, eos_token_id, unknown_token_id, padding_token_id;
  // What ends a turn and a message, where that is not the same as what ends a text.
  std::optional<uint64_t> eot_token_id, eom_token_id;
  std::optional<bool> add_bos_token, add_eos_token, add_space_prefix;
};

// Tokens that end a turn by their names ("<|im_end|>") are control tokens, whatever their type, as
// in llama.cpp; without an eot_token_id they end an answer too. A gpt2 file without `pre` is split
// as GPT-2 splits, with a warning. An unknown `model` or `pre` is kTokenizerUnsupported and named;
// what contradicts itself is kTokenizerInvalid.
base::Result<TokenizerSpec> SpecFromGguf(const GgufTokenizer& gguf);

// The names of the splits that are known, for messages and documents.
std::vector<std::string_view> GgufPreNames();

}  // namespace forebay::text

// Takes a GgufTokenizer from any reader of GGUF metadata that has Has, GetBool, GetUint, GetString,
// GetStrings, GetInts and GetFloats: the reader lives in a folder that this one does not include.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/gguf_tokenizer.h"

namespace forebay::text {

// Reads `key` by `get` into *out if the file has it.
template <typename File, typename Get, typename T>
base::Status ReadIfThere(const File& file, std::string_view key, Get get, T* out) {
  const std::string name = "tokenizer.ggml." + std::string(key);
  if (!file.Has(name)) return base::Status::Ok();
  auto value = (file.*get)(name);
  if (!value.ok()) return value.status();
  *out = std::move(value).value();
  return base::Status::Ok();
}

template <typename File>
base::Result<TokenizerSpec> SpecFromGgufFile(const File& file) {
  GgufTokenizer gguf;
  std::vector<std::string_view> tokens, merges;
  std::vector<int64_t> types;
  std::vector<double> scores;
  FB_RETURN_IF_ERROR(ReadIfThere(file, "model", &File::GetString, &gguf.model));
  FB_RETURN_IF_ERROR(ReadIfThere(file, "pre", &File::GetString, &gguf.pre));
  FB_RETURN_IF_ERROR(ReadIfThere(file, "tokens", &File::GetStrings, &tokens));
  FB_RETURN_IF_ERROR(ReadIfThere(file, "token_type", &File::GetInts, &types));
  FB_RETURN_IF_ERROR(ReadIfThere(file, "merges", &File::GetStrings, &merges));
  FB_RETURN_IF_ERROR(ReadIfThere(file, "scores", &File::GetFloats, &scores));
  FB_RETURN_IF_ERROR(ReadIfThere(file, "bos_token_id", &File::GetUint, &gguf.bos_token_id));
  FB_RETURN_IF_ERROR(ReadIfThere(file, "eos_token_id", &File::GetUint, &gguf.eos_token_id));
  FB_RETURN_IF_ERROR(ReadIfThere(file, "unknown_token_id", &File::GetUint, &gguf.unknown_token_id));
  FB_RETURN_IF_ERROR(ReadIfThere(file, "add_bos_token", &File::GetBool, &gguf.add_bos_token));
  FB_RETURN_IF_ERROR(ReadIfThere(file, "add_eos_token", &File::GetBool, &gguf.add_eos_token));
  FB_RETURN_IF_ERROR(ReadIfThere(file, "add_space_prefix", &File::GetBool, &gguf.add_space_prefix));
  gguf.tokens = tokens;
  gguf.token_types = types;
  gguf.merges = merges;
  gguf.scores = scores;
  return SpecFromGguf(gguf);
}

}  // namespace forebay::text

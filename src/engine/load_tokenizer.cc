#include "engine/load_tokenizer.h"

#include "base/log.h"
#include "text/gguf_tokenizer.h"

namespace forebay::engine {
namespace {

// The key's value, nothing if the file has no such key; a value of another type is an error.
template <typename T>
base::Status Optional(const weights::GgufFile& gguf, std::string_view key,
                      base::Result<T> (weights::GgufFile::*get)(std::string_view) const,
                      auto* out) {
  if (!gguf.Has(key)) return base::Status::Ok();
  FB_ASSIGN_OR_RETURN(*out, (gguf.*get)(key));
  return base::Status::Ok();
}

base::Result<text::TokenizerSpec> ReadSpec(const weights::GgufFile& gguf) {
  using weights::GgufFile;
  text::GgufTokenizer metadata;
  std::vector<std::string_view> tokens, merges;
  std::vector<int64_t> types;
  std::vector<double> scores;
  FB_ASSIGN_OR_RETURN(metadata.model, gguf.GetString("tokenizer.ggml.model"));
  FB_ASSIGN_OR_RETURN(tokens, gguf.GetStrings("tokenizer.ggml.tokens"));
  FB_RETURN_IF_ERROR(Optional(gguf, "tokenizer.ggml.pre", &GgufFile::GetString, &metadata.pre));
  FB_RETURN_IF_ERROR(Optional(gguf, "tokenizer.ggml.merges", &GgufFile::GetStrings, &merges));
  FB_RETURN_IF_ERROR(Optional(gguf, "tokenizer.ggml.token_type", &GgufFile::GetInts, &types));
  FB_RETURN_IF_ERROR(Optional(gguf, "tokenizer.ggml.scores", &GgufFile::GetFloats, &scores));
  FB_RETURN_IF_ERROR(
      Optional(gguf, "tokenizer.ggml.bos_token_id", &GgufFile::GetUint, &metadata.bos_token_id));
  FB_RETURN_IF_ERROR(
      Optional(gguf, "tokenizer.ggml.eos_token_id", &GgufFile::GetUint, &metadata.eos_token_id));
  FB_RETURN_IF_ERROR(Optional(gguf, "tokenizer.ggml.unknown_token_id", &GgufFile::GetUint,
                              &metadata.unknown_token_id));
  FB_RETURN_IF_ERROR(Optional(gguf, "tokenizer.ggml.padding_token_id", &GgufFile::GetUint,
                              &metadata.padding_token_id));
  FB_RETURN_IF_ERROR(
      Optional(gguf, "tokenizer.ggml.eot_token_id", &GgufFile::GetUint, &metadata.eot_token_id));
  FB_RETURN_IF_ERROR(
      Optional(gguf, "tokenizer.ggml.eom_token_id", &GgufFile::GetUint, &metadata.eom_token_id));
  FB_RETURN_IF_ERROR(
      Optional(gguf, "tokenizer.ggml.add_bos_token", &GgufFile::GetBool, &metadata.add_bos_token));
  FB_RETURN_IF_ERROR(
      Optional(gguf, "tokenizer.ggml.add_eos_token", &GgufFile::GetBool, &metadata.add_eos_token));
  FB_RETURN_IF_ERROR(Optional(gguf, "tokenizer.ggml.add_space_prefix", &GgufFile::GetBool,
                              &metadata.add_space_prefix));
  metadata.tokens = tokens;
  metadata.merges = merges;
  metadata.token_types = types;
  metadata.scores = scores;
  return text::SpecFromGguf(metadata);
}

}  // namespace

base::Result<std::unique_ptr<text::Tokenizer>> LoadTokenizer(const std::string& path,
                                                             const weights::GgufFile* gguf) {
  if (gguf == nullptr) return text::Tokenizer::FromHuggingFace(path);
  auto spec = ReadSpec(*gguf);
  if (!spec.ok()) return spec.status().WithContext(path);
  for (const std::string& warning : spec->warnings)
    base::Log(base::LogLevel::kWarning, path + ": " + warning);
  auto tokenizer = text::Tokenizer::FromSpec(std::move(spec).value());
  if (!tokenizer.ok()) return tokenizer.status().WithContext(path);
  return tokenizer;
}

}  // namespace forebay::engine

#include "text/tokenizer_json.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <tuple>
#include <vector>

#include "text/json_fields.h"
#include "text/merge_reader.h"
#include "text/tokenizer_pipeline_json.h"
#include "text/vocabulary.h"

namespace forebay::text {
namespace {

using fields::array;
using fields::As;
using fields::element;
using fields::Get;
using fields::GetOr;
using fields::Invalid;
using fields::object;
using fields::Result;
using fields::Status;
using fields::Unsupported;

Status ReadAddedTokens(object root, TokenizerSpec* spec) {
  constexpr char kWhere[] = "added_tokens";
  element value;
  if (root["added_tokens"].get(value) || value.is_null()) return Status::Ok();
  FB_ASSIGN_OR_RETURN(array tokens, As<array>(value, kWhere));
  for (const element item : tokens) {
    FB_ASSIGN_OR_RETURN(object json, As<object>(item, kWhere));
    AddedToken token;
    FB_ASSIGN_OR_RETURN(const int64_t id, Get<int64_t>(json, "id", kWhere));
    if (id < 0 || id > INT32_MAX) return Invalid(fmt::format("{}: the id {}", kWhere, id));
    token.id = static_cast<int32_t>(id);
    FB_ASSIGN_OR_RETURN(token.content, Get<std::string_view>(json, "content", kWhere));
    FB_ASSIGN_OR_RETURN(token.special, GetOr<bool>(json, "special", false, kWhere));
    FB_ASSIGN_OR_RETURN(token.single_word, GetOr<bool>(json, "single_word", false, kWhere));
    FB_ASSIGN_OR_RETURN(token.lstrip, GetOr<bool>(json, "lstrip", false, kWhere));
    FB_ASSIGN_OR_RETURN(token.rstrip, GetOr<bool>(json, "rstrip", false, kWhere));
    FB_ASSIGN_OR_RETURN(token.normalized, GetOr<bool>(json, "normalized", !token.special, kWhere));
    spec->added.push_back(std::move(token));
  }
  return Status::Ok();
}

Status ReadVocabulary(object model, TokenizerSpec* spec) {
  FB_ASSIGN_OR_RETURN(object vocab, Get<object>(model, "vocab", "model"));
  const int64_t limit = static_cast<int64_t>(TokenIdLimit(vocab.size()));
  int64_t count = 0;
  for (const auto [key, value] : vocab) {
    FB_ASSIGN_OR_RETURN(const int64_t id, As<int64_t>(value, "model, \"vocab\""));
    if (id < 0 || id >= limit) {
      return Invalid(fmt::format("the token \"{:.100}\" has the id {}; expected 0 to {}", key, id, limit - 1));
    }
    count = std::max(count, id + 1);
  }
  spec->tokens.resize(count);
  for (const auto [key, value] : vocab) {
    const int64_t id = value.get_int64().value_unsafe();
    if (!spec->tokens[id].empty() && spec->tokens[id] != key) {
      return Invalid(
          fmt::format("the id {} stands for two tokens, \"{:.100}\" and \"{:.100}\"", id, spec->tokens[id], key));
    }
    spec->tokens[id] = key;
  }
  return Status::Ok();
}

Status ReadMerges(object model, TokenizerSpec* spec) {
  FB_ASSIGN_OR_RETURN(array merges, Get<array>(model, "merges", "model"));
  const Vocabulary vocabulary(spec->tokens);
  spec->merges.reserve(merges.size());
  for (const element value : merges) {  // "a b" or ["a", "b"]
    std::string_view line, left, right;
    array both;
    if (!value.get(line)) {
      FB_ASSIGN_OR_RETURN(const auto pair, SplitMerge(line));
      std::tie(left, right) = pair;
    } else if (value.get(both) || both.size() != 2 || both.at(0).get(left) || both.at(1).get(right)) {
      return Invalid("a merge is neither a string nor an array of two strings");
    }
    FB_ASSIGN_OR_RETURN(const Merge merge,
                        MakeMerge(vocabulary, left, right, static_cast<uint32_t>(spec->merges.size())));
    spec->merges.push_back(merge);
  }
  return Status::Ok();
}

Status ReadUnknown(object model, TokenizerSpec* spec) {
  FB_ASSIGN_OR_RETURN(const std::string_view unk, GetOr<std::string_view>(model, "unk_token", "", "model"));
  if (unk.empty()) return Status::Ok();
  const auto it = std::find(spec->tokens.begin(), spec->tokens.end(), unk);
  if (it == spec->tokens.end()) return Invalid(fmt::format("the unk_token \"{:.100}\" is not in the vocabulary", unk));
  spec->unk = static_cast<int32_t>(it - spec->tokens.begin());
  return Status::Ok();
}

Status ReadModel(object model, TokenizerSpec* spec) {
  constexpr char kWhere[] = "model";
  FB_ASSIGN_OR_RETURN(const std::string_view type, GetOr<std::string_view>(model, "type", "BPE", kWhere));
  if (type != "BPE") return Unsupported(kWhere, type);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    FB_ASSIGN_OR_RETURN(const std::string_view affix, GetOr<std::string_view>(model, key, "", kWhere));
    if (!affix.empty()) return Unsupported(kWhere, key);
  }
  element dropout;
  double probability = 0;
  if (!model["dropout"].get(dropout) && !dropout.is_null() && (dropout.get(probability) || probability != 0)) {
    return Unsupported(kWhere, "dropout");
  }
  FB_ASSIGN_OR_RETURN(spec->ignore_merges, GetOr<bool>(model, "ignore_merges", false, kWhere));
  FB_ASSIGN_OR_RETURN(spec->byte_fallback, GetOr<bool>(model, "byte_fallback", false, kWhere));
  FB_ASSIGN_OR_RETURN(spec->fuse_unk, GetOr<bool>(model, "fuse_unk", false, kWhere));
  FB_RETURN_IF_ERROR(ReadVocabulary(model, spec));
  FB_RETURN_IF_ERROR(ReadMerges(model, spec));
  return ReadUnknown(model, spec);
}

// "bos_token": "<s>" or {"content": "<s>"}; nothing if it is absent or no such token exists.
Result<std::optional<int32_t>> FindNamed(object config, std::string_view key, const TokenizerSpec& spec) {
  element value;
  if (config[key].get(value) || value.is_null()) return std::optional<int32_t>();
  std::string_view content;
  if (object inner; !value.get(inner)) {
    FB_ASSIGN_OR_RETURN(content, Get<std::string_view>(inner, "content", key));
  } else {
    FB_ASSIGN_OR_RETURN(content, As<std::string_view>(value, key));
  }
  for (const AddedToken& token : spec.added) {
    if (token.content == content) return std::optional(token.id);
  }
  const auto it = std::find(spec.tokens.begin(), spec.tokens.end(), content);
  if (content.empty() || it == spec.tokens.end()) return std::optional<int32_t>();
  return std::optional(static_cast<int32_t>(it - spec.tokens.begin()));
}

// Makes `ids` hold `token` at `place`, or nowhere, as `wanted` says.
void SetPresence(std::vector<int32_t>* ids, std::optional<int32_t> token, bool wanted, bool at_front) {
  if (!token) return;
  const bool present = std::find(ids->begin(), ids->end(), *token) != ids->end();
  if (!wanted) std::erase(*ids, *token);
  if (wanted && !present) ids->insert(at_front ? ids->begin() : ids->end(), *token);
}

}  // namespace

Result<TokenizerSpec> ParseTokenizerJson(std::string_view json) {
  simdjson::dom::parser parser;
  FB_ASSIGN_OR_RETURN(const element root_element, base::ParseJson(parser, json));
  FB_ASSIGN_OR_RETURN(object root, As<object>(root_element, "the file"));
  TokenizerSpec spec;
  FB_ASSIGN_OR_RETURN(object model, Get<object>(root, "model", "the file"));
  FB_RETURN_IF_ERROR(ReadModel(model, &spec));
  FB_RETURN_IF_ERROR(ReadAddedTokens(root, &spec));

  FB_RETURN_IF_ERROR(ReadPipeline(root, &spec));
  return spec;
}

Status ApplyTokenizerConfig(std::string_view json, TokenizerSpec* spec) {
  constexpr char kWhere[] = "tokenizer_config.json";
  simdjson::dom::parser parser;
  FB_ASSIGN_OR_RETURN(const element root, base::ParseJson(parser, json));
  FB_ASSIGN_OR_RETURN(object config, As<object>(root, kWhere));
  FB_ASSIGN_OR_RETURN(spec->bos, FindNamed(config, "bos_token", *spec));
  FB_ASSIGN_OR_RETURN(spec->eos, FindNamed(config, "eos_token", *spec));
  const bool has_bos_rule = !config["add_bos_token"].error(), has_eos_rule = !config["add_eos_token"].error();
  FB_ASSIGN_OR_RETURN(const bool add_bos, GetOr<bool>(config, "add_bos_token", false, kWhere));
  FB_ASSIGN_OR_RETURN(const bool add_eos, GetOr<bool>(config, "add_eos_token", false, kWhere));
  if (has_bos_rule) SetPresence(&spec->prefix, spec->bos, add_bos, true);
  if (has_eos_rule) SetPresence(&spec->suffix, spec->eos, add_eos, false);
  return Status::Ok();
}

Result<TokenizerSpec> ReadTokenizerFolder(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  FB_ASSIGN_OR_RETURN(const std::string json, base::ReadFile(path));
  auto spec = ParseTokenizerJson(json);
  if (!spec.ok()) return spec.status().WithContext(path);
  const std::string config_path = folder + "/tokenizer_config.json";
  std::error_code error;
  if (!std::filesystem::exists(config_path, error)) return spec;
  FB_ASSIGN_OR_RETURN(const std::string config, base::ReadFile(config_path));
  const Status applied = ApplyTokenizerConfig(config, &*spec);
  if (!applied.ok()) return applied.WithContext(config_path);
  return spec;
}

}  // namespace forebay::text

#include "text/tokenizer_config.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/file_kind.h"
#include "base/json.h"
#include "base/log.h"
#include "text/added_token_list.h"
#include "text/tokenizer_fields.h"
#include "text/tokenizer_json.h"

namespace forebay::text {
namespace {

using fields::array;
using fields::As;
using fields::element;
using fields::GetOr;
using fields::object;
using fields::Result;
using fields::Status;

constexpr char kConfig[] = "tokenizer_config.json", kMap[] = "special_tokens_map.json",
               kAdded[] = "added_tokens.json";

constexpr std::string_view kNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

// Classes whose fast tokenizers build the post-processor anew from add_bos_token and add_eos_token.
constexpr std::string_view kKnowsBosRule[] = {"LlamaTokenizer", "CodeLlamaTokenizer",
                                              "GemmaTokenizer", "CohereTokenizer"};

// A JSON text that is an object, or nothing for no text.
Result<std::optional<object>> ParseFile(simdjson::dom::parser& parser, std::string_view json,
                                        const char* file) {
  if (json.empty()) return std::optional<object>();
  const auto root = base::ParseJson(parser, json);
  if (!root.ok()) return root.status().WithContext(file);
  FB_ASSIGN_OR_RETURN(const object members, As<object>(*root, file));
  return std::optional(members);
}

// A member that is there and is not null.
std::optional<element> Member(const std::optional<object>& from, std::string_view key) {
  element value;
  if (!from || from->at_key(key).get(value) || value.is_null()) return std::nullopt;
  return value;
}

// A named token: "<s>", or {"content": "<s>", ...}. It is special, whatever its flags say.
Result<AddedToken> ReadNamed(element value, std::string_view key) {
  AddedToken token;
  if (object inner; !value.get(inner)) {
    FB_ASSIGN_OR_RETURN(token, ReadAddedToken(inner, key));
    element normalized;
    if (inner["normalized"].get(normalized)) token.normalized = false;
  } else {
    FB_ASSIGN_OR_RETURN(token.content, As<std::string_view>(value, key));
  }
  token.special = true;
  token.id = AddedTokenList::kNextId;
  return token;
}

// The files' named tokens, in the order in which ids are given to those that have none.
class NamedTokens {
 public:
  explicit NamedTokens(TokenizerSpec* spec) : spec_(spec) {}

  Status Read(const std::optional<object>& config, const std::optional<object>& map) {
    for (const std::string_view name : kNames) {
      const auto own = Member(config, name), other = Member(map, name);
      if (!own && !other) continue;
      FB_ASSIGN_OR_RETURN(AddedToken token, ReadNamed(own ? *own : *other, name));
      if (own && other) {
        FB_ASSIGN_OR_RETURN(const AddedToken mapped, ReadNamed(*other, name));
        if (mapped.content != token.content) WarnOfNames(name, token.content, mapped.content);
      }
      AddNamed(name, std::move(token));
    }
    for (const char* key : {"additional_special_tokens", "extra_special_tokens"}) {
      const auto own = Member(config, key);
      const auto list = own ? own : Member(map, key);
      if (list) FB_RETURN_IF_ERROR(ReadList(*list, key));
    }
    return Status::Ok();
  }

  std::vector<AddedToken>& tokens() { return tokens_; }

 private:
  void AddNamed(std::string_view name, AddedToken token) {
    if (token.content.empty()) return;
    spec_->named.emplace_back(name, token.content);
    tokens_.push_back(std::move(token));
  }

  // A list of tokens, or an object that names them.
  Status ReadList(element list, std::string_view key) {
    if (object named; !list.get(named)) {
      for (const auto& [name, value] : named) {
        FB_ASSIGN_OR_RETURN(AddedToken token, ReadNamed(value, key));
        AddNamed(name, std::move(token));
      }
      return Status::Ok();
    }
    FB_ASSIGN_OR_RETURN(const array items, As<array>(list, key));
    for (const element item : items) {
      FB_ASSIGN_OR_RETURN(AddedToken token, ReadNamed(item, key));
      tokens_.push_back(std::move(token));
    }
    return Status::Ok();
  }

  void WarnOfNames(std::string_view name, std::string_view own, std::string_view other) {
    spec_->warnings.push_back(fmt::format("{}: {} is {}, in {} it is {}; the first is taken",
                                          kConfig, name, base::Quoted(own), kMap,
                                          base::Quoted(other)));
  }

  TokenizerSpec* spec_;
  std::vector<AddedToken> tokens_;
};

// added_tokens_decoder: {"7": {"content": "<new>", "special": true}}, by rising ids.
Result<std::vector<AddedToken>> ReadAddedDecoder(element value) {
  constexpr char kWhere[] = "added_tokens_decoder";
  FB_ASSIGN_OR_RETURN(const object members, As<object>(value, kWhere));
  std::vector<AddedToken> tokens;
  for (const auto& [key, member] : members) {
    int32_t id = -1;
    const char* end = key.data() + key.size();
    const auto [stopped, error] = std::from_chars(key.data(), end, id);
    if (error != std::errc() || stopped != end || id < 0)
      return InvalidTokenizer(fmt::format("{}: the id \"{:.100}\"", kWhere, key));
    FB_ASSIGN_OR_RETURN(const object json, As<object>(element(member), kWhere));
    FB_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(json, kWhere));
    token.id = id;
    tokens.push_back(std::move(token));
  }
  std::ranges::stable_sort(tokens, {}, &AddedToken::id);
  return tokens;
}

// added_tokens.json: {"<new>": 7}. Only names make such a token special; flags that tokenizer.json
// gives a token stand.
Result<std::vector<AddedToken>> ReadAdded(const object& members,
                                          const std::vector<AddedToken>& named,
                                          AddedTokenList* list) {
  std::unordered_set<std::string_view> special;
  for (const AddedToken& token : named) special.insert(token.content);
  std::vector<AddedToken> tokens;
  for (const auto& [content, value] : members) {
    FB_ASSIGN_OR_RETURN(const int64_t id, As<int64_t>(element(value), kAdded));
    if (id < 0 || id > INT32_MAX) return InvalidTokenizer(fmt::format("{}: the id {}", kAdded, id));
    AddedToken token;
    if (const AddedToken* known = list->Find(content)) {
      token = *known;
    } else {
      token.content = content;
      token.special = special.contains(content);
      token.normalized = !token.special;
    }
    token.id = static_cast<int32_t>(id);
    tokens.push_back(std::move(token));
  }
  std::ranges::stable_sort(tokens, {}, &AddedToken::id);
  return tokens;
}

// Adds `tokens` of `file`. A token that contradicts tokenizer.json costs a warning.
void AddAll(std::vector<AddedToken> tokens, const char* file, AddedTokenList* list,
            TokenizerSpec* spec) {
  for (AddedToken& token : tokens) {
    const int32_t wanted = token.id;
    const std::string content = token.content;
    const Status status = list->Add(std::move(token));
    const std::optional<int32_t> id = list->IdOf(content);
    if (!status.ok()) {
      spec->warnings.push_back(
          fmt::format("{}: {}; the second is left out", file, status.message()));
    } else if (id && *id != wanted) {
      spec->warnings.push_back(
          fmt::format("{}: the token {} has the id {}, in tokenizer.json it has {}; "
                      "the latter is taken",
                      file, base::Quoted(content), wanted, *id));
    }
  }
}

// Makes `ids` hold `token` at `place`, or nowhere, as `wanted` says.
void SetPresence(std::vector<int32_t>* ids, std::optional<int32_t> token, bool wanted,
                 bool at_front) {
  if (!token) return;
  const bool present = std::find(ids->begin(), ids->end(), *token) != ids->end();
  if (!wanted) std::erase(*ids, *token);
  if (wanted && !present) ids->insert(at_front ? ids->begin() : ids->end(), *token);
}

Status ApplyBosRule(const object& config, TokenizerSpec* spec) {
  FB_ASSIGN_OR_RETURN(std::string_view name,
                      GetOr<std::string_view>(config, "tokenizer_class", "", kConfig));
  if (name.ends_with("Fast")) name.remove_suffix(4);
  if (!name.empty() && std::ranges::count(kKnowsBosRule, name) == 0) return Status::Ok();
  const bool has_bos_rule = !config["add_bos_token"].error(),
             has_eos_rule = !config["add_eos_token"].error();
  FB_ASSIGN_OR_RETURN(const bool add_bos, GetOr<bool>(config, "add_bos_token", false, kConfig));
  FB_ASSIGN_OR_RETURN(const bool add_eos, GetOr<bool>(config, "add_eos_token", false, kConfig));
  if (has_bos_rule) SetPresence(&spec->prefix, spec->bos, add_bos, true);
  if (has_eos_rule) SetPresence(&spec->suffix, spec->eos, add_eos, false);
  return Status::Ok();
}

// The file's text; "" where it is not there.
Result<std::string> ReadOptional(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::string();
  FB_ASSIGN_OR_RETURN(std::string text, base::ReadFile(path));
  FB_RETURN_IF_ERROR(base::CheckKind(path, text));
  return text;
}

}  // namespace

Status ApplyTokenizerTexts(const TokenizerTexts& texts, TokenizerSpec* spec) {
  simdjson::dom::parser config_parser, map_parser, added_parser;
  FB_ASSIGN_OR_RETURN(const auto config, ParseFile(config_parser, texts.config, kConfig));
  FB_ASSIGN_OR_RETURN(const auto map, ParseFile(map_parser, texts.special_tokens_map, kMap));
  FB_ASSIGN_OR_RETURN(const auto added, ParseFile(added_parser, texts.added_tokens, kAdded));

  NamedTokens named(spec);
  FB_RETURN_IF_ERROR(named.Read(config, map));
  AddedTokenList list(spec);
  if (const auto decoder = Member(config, "added_tokens_decoder")) {
    FB_ASSIGN_OR_RETURN(std::vector<AddedToken> tokens, ReadAddedDecoder(*decoder));
    AddAll(std::move(tokens), kConfig, &list, spec);
  } else if (added) {
    FB_ASSIGN_OR_RETURN(std::vector<AddedToken> tokens, ReadAdded(*added, named.tokens(), &list));
    AddAll(std::move(tokens), kAdded, &list, spec);
  }
  for (AddedToken& token : named.tokens()) {
    if (AddedToken* known = list.Find(token.content)) {
      known->special = true;
    } else {
      FB_RETURN_IF_ERROR(list.Add(std::move(token)));
    }
  }
  for (const auto& [name, content] : spec->named) {
    if (name == "bos_token") spec->bos = list.IdOf(content);
    if (name == "eos_token") spec->eos = list.IdOf(content);
  }
  if (spec->eos) spec->ends = {*spec->eos};
  return config ? ApplyBosRule(*config, spec) : Status::Ok();
}

Result<TokenizerSpec> ReadTokenizerFolder(const std::string& folder) {
  const std::string path = folder + "/tokenizer.json";
  FB_ASSIGN_OR_RETURN(const std::string json, base::ReadFile(path));
  FB_RETURN_IF_ERROR(base::CheckKind(path, json));
  auto spec = ParseTokenizerJson(json);
  if (!spec.ok()) return spec.status().WithContext(path);
  FB_ASSIGN_OR_RETURN(const std::string config, ReadOptional(folder + "/" + kConfig));
  FB_ASSIGN_OR_RETURN(const std::string map, ReadOptional(folder + "/" + kMap));
  FB_ASSIGN_OR_RETURN(const std::string added, ReadOptional(folder + "/" + kAdded));
  const Status applied = ApplyTokenizerTexts(
      {.config = config, .special_tokens_map = map, .added_tokens = added}, &*spec);
  if (!applied.ok()) return applied.WithContext(folder);
  return spec;
}

}  // namespace forebay::text

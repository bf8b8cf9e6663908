#include "text/tokenizer_json.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "text/added_token_list.h"
#include "text/merge_reader.h"
#include "text/tokenizer_fields.h"
#include "text/tokenizer_pipeline_json.h"
#include "text/vocabulary.h"

namespace forebay::text {
namespace {

using fields::As;
using fields::element;
using fields::Get;
using fields::GetOr;
using fields::object;
using fields::Result;
using fields::Status;
using fields::Unsupported;
namespace ondemand = simdjson::ondemand;

// Vocabulary, merges and added tokens are read by simdjson's On-Demand, which takes less than half
// of the DOM's memory. Every other value, and an added token, is small and read by the DOM.
constexpr size_t kMaxSmallBytes = 1 << 21;  // a Precompiled map has a quarter of it

Status NotJson(simdjson::error_code error) {
  return Status(base::kJsonInvalid,
                fmt::format("invalid JSON: {}", simdjson::error_message(error)));
}

template <typename T>
Result<T> Checked(simdjson::simdjson_result<T> result) {
  T value;
  if (const auto error = std::move(result).get(value)) return NotJson(error);
  return value;
}

Result<std::string_view> SmallJson(simdjson::simdjson_result<ondemand::value> value,
                                   std::string_view where) {
  FB_ASSIGN_OR_RETURN(const std::string_view json, Checked(simdjson::to_json_string(value)));
  if (json.size() > kMaxSmallBytes)
    return Unsupported(where, fmt::format("a value of {} bytes", json.size()));
  return json;
}

// Calls visit(key, value) for each member.
template <typename Visit>
Status ForEachMember(ondemand::object object, const Visit& visit) {
  for (auto field : object) {
    FB_ASSIGN_OR_RETURN(const std::string_view key, Checked(field.unescaped_key()));
    FB_ASSIGN_OR_RETURN(const ondemand::value value, Checked(field.value()));
    FB_RETURN_IF_ERROR(visit(key, value));
  }
  return Status::Ok();
}

// One pass over the file: visit(in_model, key, value) for each member of it and of its "model".
template <typename Visit>
Status Scan(ondemand::document* document, const Visit& visit) {
  document->rewind();
  ondemand::object root;
  if (const auto error = document->get_object().get(root)) {
    return error == simdjson::INCORRECT_TYPE ? InvalidTokenizer("the file: expected an object")
                                             : NotJson(error);
  }
  FB_RETURN_IF_ERROR(
      ForEachMember(root, [&](std::string_view key, ondemand::value value) -> Status {
        if (key != "model") return visit(false, key, value);
        FB_ASSIGN_OR_RETURN(const ondemand::object model,
                            As<ondemand::object>(value, "the file, \"model\""));
        return ForEachMember(model, [&](std::string_view k, ondemand::value v) -> Status {
          return visit(true, k, v);
        });
      }));
  if (document->current_location().error() == simdjson::OUT_OF_BOUNDS) return Status::Ok();
  return NotJson(simdjson::TRAILING_CONTENT);
}

Status ReadAddedTokens(ondemand::value value, TokenizerSpec* spec) {
  constexpr char kWhere[] = "added_tokens";
  if (value.is_null()) return Status::Ok();
  FB_ASSIGN_OR_RETURN(ondemand::array tokens, As<ondemand::array>(value, kWhere));
  AddedTokenList list(spec);
  simdjson::dom::parser parser;
  for (auto item : tokens) {
    FB_ASSIGN_OR_RETURN(const std::string_view text, SmallJson(item, kWhere));
    FB_ASSIGN_OR_RETURN(const element parsed, base::ParseJson(parser, text));
    FB_ASSIGN_OR_RETURN(object json, As<object>(parsed, kWhere));
    FB_ASSIGN_OR_RETURN(const int64_t id, Get<int64_t>(json, "id", kWhere));
    if (id < 0 || id > INT32_MAX) return InvalidTokenizer(fmt::format("{}: the id {}", kWhere, id));
    FB_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(json, kWhere));
    token.id = static_cast<int32_t>(id);
    const std::string content = token.content;
    FB_RETURN_IF_ERROR(list.Add(std::move(token)));
    if (const auto taken = list.IdOf(content); taken && *taken != id) {
      spec->warnings.push_back(fmt::format(
          "tokenizer.json: the added token {} has the ids {} and {}; the first is taken",
          base::Quoted(content), *taken, id));
    }
  }
  return Status::Ok();
}

Status ReadVocabulary(ondemand::value value, TokenizerSpec* spec) {
  constexpr char kWhere[] = "model, \"vocab\"";
  FB_ASSIGN_OR_RETURN(ondemand::object vocab, As<ondemand::object>(value, kWhere));
  FB_ASSIGN_OR_RETURN(const size_t count, Checked(vocab.count_fields()));
  const int64_t limit = static_cast<int64_t>(TokenIdLimit(count));
  spec->tokens.reserve(limit);
  return ForEachMember(vocab, [&](std::string_view key, ondemand::value entry) -> Status {
    FB_ASSIGN_OR_RETURN(const int64_t id, As<int64_t>(entry, kWhere));
    if (id < 0 || id >= limit) {
      return InvalidTokenizer(
          fmt::format("the token \"{:.100}\" has the id {}; expected 0 to {}", key, id, limit - 1));
    }
    if (id >= static_cast<int64_t>(spec->tokens.size())) spec->tokens.resize(id + 1);
    if (!spec->tokens[id].empty() && spec->tokens[id] != key) {
      return InvalidTokenizer(
          fmt::format("the id {} stands for two tokens, \"{:.100}\" and \"{:.100}\"", id,
                      spec->tokens[id], key));
    }
    spec->tokens[id] = key;
    return Status::Ok();
  });
}

// ["a", "b"]; false for anything else.
bool ReadPair(simdjson::simdjson_result<ondemand::value> value, std::string_view* left,
              std::string_view* right) {
  ondemand::array array;
  if (value.get(array)) return false;
  int count = 0;
  for (auto item : array) {
    if (++count > 2 || item.get(count == 1 ? *left : *right)) return false;
  }
  return count == 2;
}

Status ReadMerges(ondemand::value value, TokenizerSpec* spec) {
  FB_ASSIGN_OR_RETURN(ondemand::array merges, As<ondemand::array>(value, "model, \"merges\""));
  const Vocabulary vocabulary(spec->tokens);
  FB_ASSIGN_OR_RETURN(const size_t count, Checked(merges.count_elements()));
  spec->merges.reserve(count);
  for (auto item : merges) {  // "a b" or ["a", "b"]
    std::string_view line, left, right;
    if (!item.get(line)) {
      FB_ASSIGN_OR_RETURN(const auto pair, SplitMerge(line));
      std::tie(left, right) = pair;
    } else if (!ReadPair(item, &left, &right)) {
      return InvalidTokenizer("a merge is neither a string nor an array of two strings");
    }
    FB_ASSIGN_OR_RETURN(const Merge merge, MakeMerge(vocabulary, left, right,
                                                     static_cast<uint32_t>(spec->merges.size())));
    spec->merges.push_back(merge);
  }
  return Status::Ok();
}

Status ReadUnknown(object model, TokenizerSpec* spec) {
  FB_ASSIGN_OR_RETURN(const std::string_view unk,
                      GetOr<std::string_view>(model, "unk_token", "", "model"));
  if (unk.empty()) return Status::Ok();
  const auto it = std::find(spec->tokens.begin(), spec->tokens.end(), unk);
  if (it != spec->tokens.end()) {
    spec->unk = static_cast<int32_t>(it - spec->tokens.begin());
    return Status::Ok();
  }
  // Tokens of bytes leave nothing unknown.
  const bool needed = spec->decoder.kind != DecoderSpec::Kind::kByteLevel && !spec->byte_fallback;
  if (needed && std::ranges::count(spec->added, unk, &AddedToken::content) == 0)
    return InvalidTokenizer(fmt::format("the unk_token \"{:.100}\" is not in the vocabulary", unk));
  return Status::Ok();
}

Status ReadWordPiece(object model, TokenizerSpec* spec) {
  constexpr char kWhere[] = "model";
  spec->model = TokenizerSpec::Model::kWordPiece;
  FB_ASSIGN_OR_RETURN(spec->continuing_prefix,
                      GetOr<std::string_view>(model, "continuing_subword_prefix", "##", kWhere));
  FB_ASSIGN_OR_RETURN(const int64_t chars,
                      GetOr<int64_t>(model, "max_input_chars_per_word", 100, kWhere));
  // Bounds the time that a word takes, which is quadratic.
  constexpr int64_t kMostChars = 10000;
  if (chars < 1 || chars > kMostChars) {
    return InvalidTokenizer(fmt::format(
        "model, \"max_input_chars_per_word\" is {}; expected 1 to {}", chars, kMostChars));
  }
  spec->max_word_chars = static_cast<size_t>(chars);
  return Status::Ok();
}

Status ReadUnigram(object model, TokenizerSpec* spec) {
  spec->model = TokenizerSpec::Model::kUnigram;
  FB_ASSIGN_OR_RETURN(const int64_t unk, GetOr<int64_t>(model, "unk_id", -1, "model"));
  if (unk > INT32_MAX) return InvalidTokenizer(fmt::format("model: the unk_id {}", unk));
  if (unk >= 0) spec->unk = static_cast<int32_t>(unk);
  FB_ASSIGN_OR_RETURN(spec->byte_fallback, GetOr<bool>(model, "byte_fallback", false, "model"));
  return Status::Ok();
}

// [["a", -1.5], ..]: a token's id is its place.
Status ReadScoredVocabulary(ondemand::value value, TokenizerSpec* spec) {
  constexpr char kWhere[] = "model, \"vocab\"";
  FB_ASSIGN_OR_RETURN(ondemand::array vocab, As<ondemand::array>(value, kWhere));
  for (auto item : vocab) {
    ondemand::array entry;
    std::string_view token;
    double score = 0;
    int count = 0;
    bool fits = !item.get_array().get(entry);
    if (fits) {
      for (auto part : entry) {
        fits &= ++count == 1 ? !part.get_string().get(token)
                             : count == 2 && !part.get_double().get(score);
        if (!fits) break;
        if (count == 1) spec->tokens.emplace_back(token);
      }
    }
    if (!fits || count != 2 || !std::isfinite(score)) {
      return InvalidTokenizer(fmt::format("{}: entry {} is no array of a token and a finite score",
                                          kWhere, spec->scores.size()));
    }
    spec->scores.push_back(score);
  }
  return Status::Ok();
}

// The members of "model" but its vocabulary and merges.
Status ReadModel(object model, TokenizerSpec* spec) {
  constexpr char kWhere[] = "model";
  FB_ASSIGN_OR_RETURN(const std::string_view type,
                      GetOr<std::string_view>(model, "type", "BPE", kWhere));
  if (type == "WordPiece") return ReadWordPiece(model, spec);
  if (type == "Unigram") return ReadUnigram(model, spec);
  if (type != "BPE") return Unsupported(kWhere, type);
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    FB_ASSIGN_OR_RETURN(const std::string_view affix,
                        GetOr<std::string_view>(model, key, "", kWhere));
    if (!affix.empty()) return Unsupported(kWhere, key);
  }
  element dropout;
  double probability = 0;
  if (!model["dropout"].get(dropout) && !dropout.is_null() &&
      (dropout.get(probability) || probability != 0)) {
    return Unsupported(kWhere, "dropout");
  }
  FB_ASSIGN_OR_RETURN(spec->ignore_merges, GetOr<bool>(model, "ignore_merges", false, kWhere));
  FB_ASSIGN_OR_RETURN(spec->byte_fallback, GetOr<bool>(model, "byte_fallback", false, kWhere));
  FB_ASSIGN_OR_RETURN(spec->fuse_unk, GetOr<bool>(model, "fuse_unk", false, kWhere));
  return Status::Ok();
}

// The small members of the file, or of its model. `parser` owns them.
Result<object> SmallMembers(ondemand::document* document, bool of_model,
                            simdjson::dom::parser* parser) {
  std::string small;
  base::JsonWriter writer(&small);
  writer.BeginObject();
  FB_RETURN_IF_ERROR(
      Scan(document, [&](bool in_model, std::string_view key, ondemand::value value) -> Status {
        if (in_model != of_model || key == "vocab" || key == "merges" || key == "added_tokens")
          return Status::Ok();
        FB_ASSIGN_OR_RETURN(const std::string_view json, SmallJson(std::move(value), key));
        writer.Key(key).Raw(json);
        return Status::Ok();
      }));
  writer.EndObject();
  FB_ASSIGN_OR_RETURN(const element parsed, base::ParseJson(*parser, small));
  return As<object>(parsed, "the file");
}

// Reads the model's `wanted`, which must be there once, by `read`.
Status ReadFromModel(ondemand::document* document, std::string_view wanted,
                     Status (*read)(ondemand::value, TokenizerSpec*), TokenizerSpec* spec) {
  int count = 0;
  FB_RETURN_IF_ERROR(
      Scan(document, [&](bool in_model, std::string_view key, ondemand::value value) -> Status {
        if (!in_model || key != wanted) return Status::Ok();
        return ++count == 1 ? read(value, spec)
                            : InvalidTokenizer(fmt::format("model: \"{}\" is there twice", wanted));
      }));
  return count == 1 ? Status::Ok()
                    : InvalidTokenizer(fmt::format("model: \"{}\" is missing", wanted));
}

}  // namespace

Result<TokenizerSpec> ParseTokenizerJson(std::string_view json) {
  const simdjson::padded_string padded(json);
  ondemand::parser parser;
  ondemand::document document;
  if (const auto error = parser.iterate(padded).get(document)) return NotJson(error);
  simdjson::dom::parser file_parser, model_parser;
  FB_ASSIGN_OR_RETURN(const object file, SmallMembers(&document, false, &file_parser));
  FB_ASSIGN_OR_RETURN(const object model, SmallMembers(&document, true, &model_parser));
  TokenizerSpec spec;
  FB_RETURN_IF_ERROR(ReadModel(model, &spec));
  FB_RETURN_IF_ERROR(ReadPipeline(file, &spec));
  const bool scored = spec.model == TokenizerSpec::Model::kUnigram;
  FB_RETURN_IF_ERROR(
      ReadFromModel(&document, "vocab", scored ? ReadScoredVocabulary : ReadVocabulary, &spec));
  FB_RETURN_IF_ERROR(
      Scan(&document, [&](bool in_model, std::string_view key, ondemand::value value) -> Status {
        return in_model || key != "added_tokens" ? Status::Ok() : ReadAddedTokens(value, &spec);
      }));
  if (spec.model == TokenizerSpec::Model::kBpe)
    FB_RETURN_IF_ERROR(ReadFromModel(&document, "merges", ReadMerges, &spec));
  if (!scored) FB_RETURN_IF_ERROR(ReadUnknown(model, &spec));
  return spec;
}

}  // namespace forebay::text

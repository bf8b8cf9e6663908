#include "text/gguf_tokenizer.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "text/merge_reader.h"
#include "text/pre_tokenizer.h"
#include "text/unicode.h"
#include "text/vocabulary.h"

namespace forebay::text {
namespace {

using base::Result;
using base::Status;
using Step = PreTokenizerStep;

enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4 };

// Every split of a token is a pair that may merge; sentencepiece's own pieces have 16 characters at
// most.
constexpr size_t kMaxScoredTokenBytes = 1024;

// How one name of tokenizer.ggml.pre splits text. Patterns cut off their matches, one after the
// other.
struct Pre {
  std::string_view name;
  std::vector<const char*> patterns;
  bool digits = false;      // every number alone, first
  bool gpt2_split = false;  // GPT-2's split, last
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
};

const std::vector<Pre>& Pres() {
  static const std::vector<Pre> pres = {
      {.name = "default", .gpt2_split = true},
      {.name = "gpt-2", .gpt2_split = true},
      {.name = "smollm", .digits = true, .gpt2_split = true},
      {.name = "llama-bpe", .patterns = {kLlama3Pattern}, .ignore_merges = true, .add_bos = true},
      {.name = "llama3", .patterns = {kLlama3Pattern}, .ignore_merges = true, .add_bos = true},
      {.name = "qwen2", .patterns = {kQwen2Pattern}, .nfc = true},
      {.name = "deepseek-v3",
       .patterns = {kDeepSeekNumbersPattern, kDeepSeekCjkPattern, kDeepSeekPattern}},
      {.name = "tekken", .patterns = {kTekkenPattern}, .ignore_merges = true, .add_bos = true},
  };
  return pres;
}

Status CheckLengths(const GgufTokenizer& gguf) {
  const auto check = [&](std::string_view key, size_t count) {
    if (count == 0 || count == gguf.tokens.size()) return Status::Ok();
    return InvalidTokenizer(fmt::format("tokenizer.ggml.{} has {} values for {} tokens", key, count,
                                        gguf.tokens.size()));
  };
  if (gguf.tokens.empty()) return InvalidTokenizer("tokenizer.ggml.tokens is missing or empty");
  FB_RETURN_IF_ERROR(check("token_type", gguf.token_types.size()));
  return check("scores", gguf.scores.size());
}

int64_t TypeOf(const GgufTokenizer& gguf, size_t id) {
  return gguf.token_types.empty() ? int64_t{kNormal} : gguf.token_types[id];
}

void AddTokens(const GgufTokenizer& gguf, TokenizerSpec* spec) {
  spec->tokens.reserve(gguf.tokens.size());
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    spec->tokens.push_back(ToValidUtf8(gguf.tokens[id]));
    const int64_t type = TypeOf(gguf, id);
    if ((type != kUnknown && type != kControl && type != kUserDefined) ||
        spec->tokens.back().empty())
      continue;
    AddedToken token;
    token.content = spec->tokens.back();
    token.id = static_cast<int32_t>(id);
    token.special = type != kUserDefined;
    spec->added.push_back(std::move(token));
  }
}

Result<std::optional<int32_t>> CheckedId(const GgufTokenizer& gguf, std::string_view key,
                                         std::optional<uint64_t> id) {
  if (!id) return std::optional<int32_t>();
  if (*id >= gguf.tokens.size()) {
    return InvalidTokenizer(
        fmt::format("tokenizer.ggml.{} is {}; expected 0 to {}", key, *id, gguf.tokens.size() - 1));
  }
  return std::optional(static_cast<int32_t>(*id));
}

Status AddEnds(const GgufTokenizer& gguf, bool bos_by_default, TokenizerSpec* spec) {
  FB_ASSIGN_OR_RETURN(spec->bos, CheckedId(gguf, "bos_token_id", gguf.bos_token_id));
  FB_ASSIGN_OR_RETURN(spec->eos, CheckedId(gguf, "eos_token_id", gguf.eos_token_id));
  if (gguf.add_bos_token.value_or(bos_by_default) && spec->bos) spec->prefix.push_back(*spec->bos);
  if (gguf.add_eos_token.value_or(false) && spec->eos) spec->suffix.push_back(*spec->eos);
  return Status::Ok();
}

Result<TokenizerSpec> ByteLevelSpec(const GgufTokenizer& gguf) {
  const std::string_view name = gguf.pre.empty() ? "default" : gguf.pre;
  const auto pre =
      std::find_if(Pres().begin(), Pres().end(), [&](const Pre& p) { return p.name == name; });
  if (pre == Pres().end()) {
    return Status(kTokenizerUnsupported,
                  fmt::format("tokenizer.ggml.pre is \"{:.100}\"; known are {}", name,
                              fmt::join(GgufPreNames(), ", ")));
  }
  TokenizerSpec spec;
  AddTokens(gguf, &spec);
  const Vocabulary vocabulary(spec.tokens);
  spec.merges.reserve(gguf.merges.size());
  for (const std::string_view line : gguf.merges) {
    FB_ASSIGN_OR_RETURN(const auto pair, SplitMerge(line));
    FB_ASSIGN_OR_RETURN(const Merge merge, MakeMerge(vocabulary, pair.first, pair.second,
                                                     static_cast<uint32_t>(spec.merges.size())));
    spec.merges.push_back(merge);
  }
  if (pre->nfc) spec.normalizers.push_back({NormalizerStep::Kind::kNfc, "", ""});
  if (pre->digits) spec.pre_tokenizers.push_back({.kind = Step::Kind::kDigits, .individual = true});
  for (const char* pattern : pre->patterns)
    spec.pre_tokenizers.push_back({.kind = Step::Kind::kSplit, .pattern = pattern});
  spec.pre_tokenizers.push_back({.kind = Step::Kind::kByteLevel,
                                 .prefix_space = gguf.add_space_prefix.value_or(false),
                                 .gpt2_split = pre->gpt2_split});
  spec.decoder.kind = DecoderSpec::Kind::kByteLevel;
  spec.ignore_merges = pre->ignore_merges;
  FB_RETURN_IF_ERROR(AddEnds(gguf, pre->add_bos, &spec));
  return spec;
}

// sentencepiece joins the neighbours whose joint token has the greatest score, the leftmost first.
// As merges: every way to cut a token in two tokens, ranked by the token's score; equal scores
// share a rank.
Status AddScoredMerges(const GgufTokenizer& gguf, TokenizerSpec* spec) {
  if (gguf.scores.empty())
    return InvalidTokenizer("tokenizer.ggml.scores is missing; the model \"llama\" needs it");
  std::vector<double> ranks(gguf.scores.begin(), gguf.scores.end());
  if (std::any_of(ranks.begin(), ranks.end(), [](double score) { return std::isnan(score); })) {
    return InvalidTokenizer("tokenizer.ggml.scores holds a NaN");
  }
  std::sort(ranks.begin(), ranks.end(), std::greater<>());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());

  std::vector<bool> normal(spec->tokens.size());
  for (size_t id = 0; id < normal.size(); ++id) normal[id] = TypeOf(gguf, id) == kNormal;
  const Vocabulary vocabulary(spec->tokens, normal);
  for (size_t id = 0; id < spec->tokens.size(); ++id) {
    const std::string_view token = spec->tokens[id];
    if (!normal[id] || vocabulary.Find(token) != static_cast<int32_t>(id)) continue;
    if (token.size() > kMaxScoredTokenBytes) {
      return InvalidTokenizer(fmt::format("the token {} has {} bytes; at most {} are possible", id,
                                          token.size(), kMaxScoredTokenBytes));
    }
    const auto rank =
        std::lower_bound(ranks.begin(), ranks.end(), gguf.scores[id], std::greater<>()) -
        ranks.begin();
    for (size_t i = 0; i < token.size();) {
      DecodeUtf8(token, &i);
      const int32_t left = vocabulary.Find(token.substr(0, i)),
                    right = vocabulary.Find(token.substr(i));
      if (left < 0 || right < 0) continue;
      spec->merges.push_back({left, right, static_cast<int32_t>(id), static_cast<uint32_t>(rank)});
    }
  }
  return Status::Ok();
}

Result<TokenizerSpec> ScoredSpec(const GgufTokenizer& gguf) {
  TokenizerSpec spec;
  AddTokens(gguf, &spec);
  FB_RETURN_IF_ERROR(AddScoredMerges(gguf, &spec));
  const bool prefix = gguf.add_space_prefix.value_or(true);
  if (prefix) spec.normalizers.push_back({NormalizerStep::Kind::kPrepend, "", kMetaspace});
  spec.normalizers.push_back({NormalizerStep::Kind::kReplace, " ", kMetaspace});
  spec.decoder.kind = DecoderSpec::Kind::kPieces;
  spec.decoder.replacements = {{kMetaspace, " "}};
  spec.decoder.byte_fallback = true;
  spec.decoder.strip_spaces = prefix ? 1 : 0;
  spec.byte_fallback = true;
  spec.fuse_unk = true;
  FB_ASSIGN_OR_RETURN(spec.unk, CheckedId(gguf, "unknown_token_id", gguf.unknown_token_id));
  FB_RETURN_IF_ERROR(AddEnds(gguf, true, &spec));
  return spec;
}

}  // namespace

Result<TokenizerSpec> SpecFromGguf(const GgufTokenizer& gguf) {
  FB_RETURN_IF_ERROR(CheckLengths(gguf));
  if (gguf.model == "gpt2") return ByteLevelSpec(gguf);
  if (gguf.model == "llama") return ScoredSpec(gguf);
  return Status(
      kTokenizerUnsupported,
      fmt::format("tokenizer.ggml.model is \"{:.100}\"; known are gpt2, llama", gguf.model));
}

std::vector<std::string_view> GgufPreNames() {
  std::vector<std::string_view> names;
  for (const Pre& pre : Pres()) names.push_back(pre.name);
  return names;
}

}  // namespace forebay::text

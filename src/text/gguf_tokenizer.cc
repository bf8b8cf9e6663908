#include "text/gguf_tokenizer.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "base/log.h"
#include "text/merge_reader.h"
#include "text/pre_tokenizer.h"
#include "text/unicode/unicode.h"
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

constexpr char kQwen35Pattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
    R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kSeedCoderPattern[] =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}|)"
    R"( ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr char kGpt4oPattern[] =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
// The letters of DeepSeek LLM's words: those with case, of the scripts that its expression lists.
constexpr char kDeepSeekLlmWords[] =
    "\\s?["
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF"
    "\u01C4-\u0293\u0295-\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D"
    "\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5"
    "\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5"
    "\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF"
    "\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15"
    "\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B"
    "\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4"
    "\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC"
    "\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115"
    "\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"
    "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B"
    "\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B"
    "\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF"
    "\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A"
    "\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2"
    "\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943"
    "]+";
constexpr char kDeepSeekLlmSigns[] =
    "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
constexpr char kDeepSeekAsianWords[] = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";

// The script Han, as Unicode 16 has it.
constexpr char kHan[] =
    "\u2E80-\u2E99\u2E9B-\u2EF3\u2F00-\u2FD5\u3005\u3007\u3021-\u3029\u3038-\u303B\u3400-\u4DBF"
    "\u4E00-\u9FFF\uF900-\uFA6D\uFA70-\uFAD9\U00016FE2\U00016FE3\U00016FF0\U00016FF1"
    "\U00020000-\U0002A6DF\U0002A700-\U0002B739\U0002B740-\U0002B81D\U0002B820-\U0002CEA1"
    "\U0002CEB0-\U0002EBE0\U0002EBF0-\U0002EE5D\U0002F800-\U0002FA1D\U00030000-\U0003134A"
    "\U00031350-\U000323AF";

// Kimi K2's: Han characters are words of their own, and no letters of other words.
std::string KimiPattern() {
  const std::string upper =
      fmt::format(R"((?:(?![{}])[\p{{Lu}}\p{{Lt}}\p{{Lm}}\p{{Lo}}\p{{M}}]))", kHan);
  const std::string lower = fmt::format(R"((?:(?![{}])[\p{{Ll}}\p{{Lm}}\p{{Lo}}\p{{M}}]))", kHan);
  const std::string before = R"(|[^\r\n\p{L}\p{N}]?)", after = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
  return fmt::format("[{}]+", kHan) + before + upper + "*" + lower + "+" + after + before + upper +
         "+" + lower + "*" + after +
         R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

// How the names of tokenizer.ggml.pre split text. Patterns cut off their matches, one after the
// other.
struct Pre {
  std::vector<std::string_view> names;
  std::vector<const char*> patterns;
  bool digits = false;      // every number alone, first
  bool gpt2_split = false;  // GPT-2's split, last
  bool nfc = false;
  bool ignore_merges = false;
  bool add_bos = false;  // where the file does not say
};

// Names as llama.cpp's converter writes them; models that split alike have one row. BOS, the order
// of the patterns and what is merged are those of the models' own tokenizers.
const std::vector<Pre>& Pres() {
  static const std::string kimi = KimiPattern();
  static const std::vector<Pre> pres = {
      {.names = {"default", "gpt-2", "exaone4", "granite-docling"}, .gpt2_split = true},
      {.names = {"olmo"}, .gpt2_split = true, .nfc = true},
      {.names = {"smollm", "refact", "exaone"}, .digits = true, .gpt2_split = true},
      {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "lfm2"},
       .patterns = {kLlama3Pattern},
       .ignore_merges = true,
       .add_bos = true},
      {.names = {"smaug-bpe", "dbrx", "glm4", "chatglm-bpe"}, .patterns = {kLlama3Pattern}},
      {.names = {"qwen2", "deepseek-r1-qwen", "hunyuan"}, .patterns = {kQwen2Pattern}, .nfc = true},
      {.names = {"megrez"}, .patterns = {kQwen2Pattern}},
      {.names = {"qwen35"}, .patterns = {kQwen35Pattern}, .nfc = true},
      {.names = {"seed-coder"}, .patterns = {kSeedCoderPattern}},
      {.names = {"llama4", "gpt-4o", "minimax-m2"}, .patterns = {kGpt4oPattern}},
      {.names = {"kimi-k2"}, .patterns = {kimi.c_str()}},
      {.names = {"deepseek-v3", "hunyuan-dense"},
       .patterns = {kDeepSeekNumbersPattern, kDeepSeekCjkPattern, kDeepSeekPattern}},
      {.names = {"deepseek-llm"},
       .patterns = {"[\r\n]", kDeepSeekLlmWords, kDeepSeekLlmSigns, R"(\s+$)", kDeepSeekAsianWords,
                    R"(\p{N})"}},
      {.names = {"deepseek-coder"},
       .patterns = {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepSeekAsianWords, R"(\p{N})"}},
      {.names = {"tekken"}, .patterns = {kTekkenPattern}, .ignore_merges = true, .add_bos = true},
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

// What ends a turn in published models, by its name.
constexpr std::string_view kTurnEnds[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>",       "<|return|>",        "<|call|>", "<|flush|>",
    "<|calls|>",  "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>",   "<EOT>",    "_<EOT>",
    "[EOT]",      "[EOS]",      "<end_of_turn>", "<end_of_utterance>"};

void AddTokens(const GgufTokenizer& gguf, TokenizerSpec* spec) {
  spec->tokens.reserve(gguf.tokens.size());
  std::vector<std::string> mistyped;
  for (size_t id = 0; id < gguf.tokens.size(); ++id) {
    spec->tokens.push_back(ToValidUtf8(gguf.tokens[id]));
    int64_t type = TypeOf(gguf, id);
    if (std::ranges::count(kTurnEnds, spec->tokens.back()) > 0) {
      if (!gguf.eot_token_id) spec->ends.push_back(static_cast<int32_t>(id));
      if (type != kControl && type != kUserDefined) {
        mistyped.push_back(base::Quoted(spec->tokens.back()));
        type = kControl;
      }
    }
    if ((type != kUnknown && type != kControl && type != kUserDefined) ||
        spec->tokens.back().empty())
      continue;
    AddedToken token;
    token.content = spec->tokens.back();
    token.id = static_cast<int32_t>(id);
    token.special = type != kUserDefined;
    spec->added.push_back(std::move(token));
  }
  if (!mistyped.empty()) {
    spec->warnings.push_back(
        fmt::format("tokenizer.ggml.token_type {} of {}: taken for control tokens, by their names",
                    gguf.token_types.empty() ? "says nothing" : "is not that of a control token",
                    fmt::join(mistyped, ", ")));
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
  FB_ASSIGN_OR_RETURN(const auto pad, CheckedId(gguf, "padding_token_id", gguf.padding_token_id));
  FB_ASSIGN_OR_RETURN(const auto unk, CheckedId(gguf, "unknown_token_id", gguf.unknown_token_id));
  const std::pair<const char*, std::optional<int32_t>> names[] = {
      {"bos_token", spec->bos}, {"eos_token", spec->eos}, {"unk_token", unk}, {"pad_token", pad}};
  for (const auto& [name, id] : names) {
    if (id) spec->named.emplace_back(name, spec->tokens[static_cast<size_t>(*id)]);
  }
  for (const auto& [key, given] :
       {std::pair("eos_token_id", gguf.eos_token_id), std::pair("eot_token_id", gguf.eot_token_id),
        std::pair("eom_token_id", gguf.eom_token_id)}) {
    FB_ASSIGN_OR_RETURN(const auto id, CheckedId(gguf, key, given));
    if (id && std::ranges::count(spec->ends, *id) == 0) spec->ends.push_back(*id);
  }
  if (gguf.add_bos_token.value_or(bos_by_default) && spec->bos) spec->prefix.push_back(*spec->bos);
  if (gguf.add_eos_token.value_or(false) && spec->eos) spec->suffix.push_back(*spec->eos);
  return Status::Ok();
}

// Merges in the file's order.
Status AddMerges(const GgufTokenizer& gguf, TokenizerSpec* spec) {
  const Vocabulary vocabulary(spec->tokens);
  spec->merges.reserve(gguf.merges.size());
  for (const std::string_view line : gguf.merges) {
    FB_ASSIGN_OR_RETURN(const auto pair, SplitMerge(line));
    FB_ASSIGN_OR_RETURN(const Merge merge, MakeMerge(vocabulary, pair.first, pair.second,
                                                     static_cast<uint32_t>(spec->merges.size())));
    spec->merges.push_back(merge);
  }
  return Status::Ok();
}

Result<TokenizerSpec> ByteLevelSpec(const GgufTokenizer& gguf) {
  const std::string_view name = gguf.pre.empty() ? "default" : gguf.pre;
  const auto pre = std::ranges::find_if(
      Pres(), [&](const Pre& p) { return std::ranges::count(p.names, name) > 0; });
  if (pre == Pres().end()) {
    return Status(kTokenizerUnsupported,
                  fmt::format("tokenizer.ggml.pre is \"{:.100}\"; known are {}", name,
                              fmt::join(GgufPreNames(), ", ")));
  }
  TokenizerSpec spec;
  if (name == "default") {
    spec.warnings.push_back(
        fmt::format("tokenizer.ggml.pre is {}: text is split as GPT-2 splits it, which may not be "
                    "what the model "
                    "learnt; convert the file anew, or set the key (known are {})",
                    gguf.pre.empty() ? "missing" : "default", fmt::join(GgufPreNames(), ", ")));
  }
  AddTokens(gguf, &spec);
  FB_RETURN_IF_ERROR(AddMerges(gguf, &spec));
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

// Pieces whose spaces are ▁: by sentencepiece's scores, or by merges (Gemma 4).
Result<TokenizerSpec> PiecesSpec(const GgufTokenizer& gguf, bool scored) {
  TokenizerSpec spec;
  AddTokens(gguf, &spec);
  FB_RETURN_IF_ERROR(scored ? AddScoredMerges(gguf, &spec) : AddMerges(gguf, &spec));
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
  if (gguf.model == "llama") return PiecesSpec(gguf, true);
  if (gguf.model == "gemma4") return PiecesSpec(gguf, false);
  return Status(kTokenizerUnsupported,
                fmt::format("tokenizer.ggml.model is \"{:.100}\"; known are gpt2, llama, gemma4",
                            gguf.model));
}

std::vector<std::string_view> GgufPreNames() {
  std::vector<std::string_view> names;
  for (const Pre& pre : Pres()) names.insert(names.end(), pre.names.begin(), pre.names.end());
  return names;
}

}  // namespace forebay::text

#include "text/tokenizer.h"

#include <fmt/core.h>

#include <utility>

#include "base/log.h"
#include "text/decode_token.h"
#include "text/detokenizer.h"
#include "text/tokenizer_config.h"
#include "text/unicode/byte_alphabet.h"
#include "text/unicode/unicode.h"

namespace forebay::text {

using base::Result;
using base::Status;

namespace {

// What the constructors of the parts require.
Status CheckIds(const TokenizerSpec& spec) {
  const int64_t count = static_cast<int64_t>(spec.tokens.size());
  const int64_t limit = static_cast<int64_t>(TokenIdLimit(spec.tokens.size() + spec.added.size()));
  if (count > limit)
    return InvalidTokenizer(fmt::format("{} tokens; at most {} are possible", count, limit));
  for (const AddedToken& token : spec.added) {
    if (token.id < 0 || token.id >= limit) {
      return InvalidTokenizer(
          fmt::format("the added token \"{:.100}\" has the id {}; expected 0 to {}", token.content,
                      token.id, limit - 1));
    }
    if (token.content.size() > kMaxAddedTokenBytes) {
      return InvalidTokenizer(
          fmt::format("the added token {} has {} bytes; at most {} are possible", token.id,
                      token.content.size(), kMaxAddedTokenBytes));
    }
  }
  for (const Merge& merge : spec.merges) {
    for (const int32_t id : {merge.left, merge.right, merge.result}) {
      if (id < 0 || id >= count)
        return InvalidTokenizer(
            fmt::format("a merge has the id {}; expected 0 to {}", id, count - 1));
    }
  }
  return Status::Ok();
}

// After the added tokens have their places.
Status CheckUses(const TokenizerSpec& spec, int32_t count) {
  const auto has = [&](int32_t id) { return id >= 0 && id < count; };
  const PairTemplate pair = spec.pair.value_or(PairTemplate{});
  for (const std::vector<int32_t>* ids :
       {&spec.prefix, &spec.suffix, &pair.prefix, &pair.middle, &pair.suffix}) {
    for (const int32_t id : *ids) {
      if (!has(id))
        return InvalidTokenizer(
            fmt::format("the post-processor adds the id {}; expected 0 to {}", id, count - 1));
    }
  }
  for (const std::optional<int32_t>& id : {spec.unk, spec.bos, spec.eos}) {
    if (id && !has(*id))
      return InvalidTokenizer(
          fmt::format("the special token {} does not exist; expected 0 to {}", *id, count - 1));
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromHuggingFace(const std::string& folder) {
  FB_ASSIGN_OR_RETURN(TokenizerSpec spec, ReadTokenizerFolder(folder));
  for (const std::string& warning : spec.warnings)
    base::Log(base::LogLevel::kWarning, folder + "/" + warning);
  auto made = FromSpec(std::move(spec));
  if (!made.ok()) return made.status().WithContext(folder + "/tokenizer.json");
  return made;
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::FromSpec(TokenizerSpec spec) {
  std::unique_ptr<Tokenizer> made(new Tokenizer);
  FB_RETURN_IF_ERROR(made->Build(std::move(spec)));
  return made;
}

Status Tokenizer::Build(TokenizerSpec spec) {
  FB_RETURN_IF_ERROR(CheckIds(spec));
  for (const PreTokenizerStep& step : spec.pre_tokenizers) {
    byte_level_ = byte_level_ || step.kind == PreTokenizerStep::Kind::kByteLevel;
  }
  if (byte_level_ != (spec.decoder.kind == DecoderSpec::Kind::kByteLevel)) {
    return Status(kTokenizerUnsupported,
                  "a ByteLevel pre-tokenizer needs a ByteLevel decoder, and the other way round");
  }
  FB_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::Create(spec.pre_tokenizers));
  pre_tokenizer_ = std::make_unique<PreTokenizer>(std::move(pre_tokenizer));
  FB_ASSIGN_OR_RETURN(Normalizer normalizer, Normalizer::Create(std::move(spec.normalizers)));
  normalizer_ = std::make_unique<Normalizer>(std::move(normalizer));

  std::vector<bool> findable(spec.tokens.size(), true);
  FB_RETURN_IF_ERROR(PlaceAdded(&spec, &findable));
  FB_RETURN_IF_ERROR(CheckUses(spec, static_cast<int32_t>(spec.tokens.size())));
  // What byte-pair encoding builds never passes through a special token.
  std::erase_if(spec.merges, [&](const Merge& merge) {
    return special_[merge.left] || special_[merge.right] || special_[merge.result];
  });
  for (const AddedToken& token : spec.added) {  // a normalized token decodes to its normalized form
    if (token.normalized) spec.tokens[token.id] = normalizer_->Apply(token.content);
  }
  BuildMatchers(spec.added);
  for (size_t id = 0; byte_level_ && id < spec.tokens.size(); ++id) {
    if (auto bytes = FromByteAlphabet(spec.tokens[id])) {
      spec.tokens[id] = std::move(*bytes);
    } else {
      findable[id] = false;
    }
  }
  tokens_ = Vocabulary(spec.tokens, findable);
  model_ = MakeWordModel(spec, tokens_, byte_level_);
  decoder_ = std::move(spec.decoder);
  prefix_ = std::move(spec.prefix);
  suffix_ = std::move(spec.suffix);
  pair_ = std::move(spec.pair);
  bos_ = spec.bos;
  eos_ = spec.eos;
  ends_ = std::move(spec.ends);
  named_ = std::move(spec.named);
  return Status::Ok();
}

Status Tokenizer::PlaceAdded(TokenizerSpec* spec, std::vector<bool>* findable) {
  size_t count = spec->tokens.size();
  for (const AddedToken& token : spec->added)
    count = std::max(count, static_cast<size_t>(token.id) + 1);
  spec->tokens.reserve(count);  // so that it does not grow to twice as many
  spec->tokens.resize(count);
  findable->resize(count, false);
  special_.resize(count, false);
  for (const AddedToken& token : spec->added) {
    const size_t id = static_cast<size_t>(token.id);
    if (!spec->tokens[id].empty() && spec->tokens[id] != token.content) {
      return InvalidTokenizer(
          fmt::format("the id {} stands for two tokens, \"{:.100}\" and \"{:.100}\"", id,
                      spec->tokens[id], token.content));
    }
    if (spec->tokens[id].empty() || token.special) (*findable)[id] = false;
    if (token.special) special_[id] = true;
    spec->tokens[id] = token.content;
    added_ids_[token.content] = token.id;
  }
  return Status::Ok();
}

void Tokenizer::BuildMatchers(const std::vector<AddedToken>& added) {
  for (const AddedToken& token : added) {
    if (token.normalized) {
      normalized_matcher_.Add(normalizer_->Apply(token.content), token);
    } else {
      raw_matcher_.Add(token.content, token);
    }
  }
  raw_matcher_.Finish();
  normalized_matcher_.Finish();
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  const Segment segment{text, options.parse_special};
  std::vector<int32_t> ids = EncodeSegments(std::span(&segment, 1), options.add_special_tokens);
  if (options.most_tokens <= 0 || std::ssize(ids) <= options.most_tokens) return ids;
  const int64_t behind = options.add_special_tokens ? std::ssize(suffix_) : 0,
                around = options.add_special_tokens ? std::ssize(prefix_) + behind : 0;
  const int64_t goes = std::min(std::ssize(ids) - options.most_tokens, std::ssize(ids) - around);
  ids.erase(ids.end() - behind - goes, ids.end() - behind);
  return ids;
}

std::vector<int32_t> Tokenizer::EncodeSegments(std::span<const Segment> segments,
                                               bool add_special_tokens) const {
  if (segments.size() == 1 && segments[0].parse_special && IsValidUtf8(segments[0].text)) {
    return EncodeValid(segments[0].text, {}, add_special_tokens);
  }
  std::string joined;
  ByteRanges untrusted;
  for (const Segment& segment : segments) {
    const size_t begin = joined.size();
    joined += ToValidUtf8(segment.text);
    if (segment.parse_special || begin == joined.size()) continue;
    if (!untrusted.empty() && untrusted.back().end == begin) {
      untrusted.back().end = joined.size();
    } else {
      untrusted.push_back({begin, joined.size()});
    }
  }
  return EncodeValid(joined, untrusted, add_special_tokens);
}

std::vector<int32_t> Tokenizer::EncodeValid(std::string_view text, const ByteRanges& untrusted,
                                            bool add_special_tokens) const {
  std::vector<int32_t> ids;
  if (add_special_tokens) ids = prefix_;
  WordScratch scratch;
  raw_matcher_.Cut(text, untrusted, [&](size_t begin, size_t end, int32_t id) {
    if (id >= 0) return ids.push_back(id);
    ByteRanges ranges = Slice(untrusted, begin, end);
    std::string normalized;
    std::string_view piece = text.substr(begin, end - begin);
    if (!normalizer_->empty()) piece = normalized = normalizer_->Apply(piece, &ranges);
    normalized_matcher_.Cut(piece, ranges, [&](size_t from, size_t to, int32_t inner) {
      if (inner >= 0) return ids.push_back(inner);
      pre_tokenizer_->Split(piece.substr(from, to - from), begin == 0 && from == 0,
                            [&](std::string_view word) { model_->Encode(word, &scratch, &ids); });
    });
  });
  if (add_special_tokens) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

std::optional<Tokenizer::Pair> Tokenizer::EncodePair(std::string_view first,
                                                     std::string_view second,
                                                     int64_t most_tokens) const {
  if (!pair_) return std::nullopt;
  std::vector<int32_t> one = Encode(first, {.add_special_tokens = false}),
                       two = Encode(second, {.add_special_tokens = false});
  const size_t around = pair_->prefix.size() + pair_->middle.size() + pair_->suffix.size();
  if (most_tokens > 0) {
    const size_t room = std::max<size_t>(static_cast<size_t>(most_tokens), around) - around;
    CutPair(&one, &two, room);
  }
  Pair pair{.ids = pair_->prefix};
  const auto append = [&](const std::vector<int32_t>& ids) {
    pair.ids.insert(pair.ids.end(), ids.begin(), ids.end());
  };
  append(one);
  append(pair_->middle);
  pair.second = pair.ids.size();
  append(two);
  append(pair_->suffix);
  return pair;
}

void Tokenizer::CutPair(std::vector<int32_t>* first, std::vector<int32_t>* second, size_t room) {
  std::vector<int32_t>*shorter = first, *longer = second;
  if (shorter->size() > longer->size()) std::swap(shorter, longer);
  if (shorter->size() + longer->size() <= room) return;
  // The shorter one keeps up to half of the room, the other what that leaves.
  shorter->resize(std::min(shorter->size(), room / 2));
  longer->resize(room - shorter->size());
}

std::string Tokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, skip_special);
  std::string out;
  for (const int32_t id : ids) out += detokenizer.Append(id);
  return out += detokenizer.Flush();
}

std::string Tokenizer::TokenBytes(int32_t id) const {
  return Has(id) ? DecodeToken(decoder_, tokens_[id], false).bytes : "";
}

std::string Tokenizer::TokenText(int32_t id) const { return ToValidUtf8(TokenBytes(id)); }

std::optional<int32_t> Tokenizer::TokenToId(std::string_view token) const {
  if (const auto it = added_ids_.find(std::string(token)); it != added_ids_.end())
    return it->second;
  std::optional<std::string> bytes;
  if (byte_level_ && !(bytes = FromByteAlphabet(token))) return std::nullopt;
  const int32_t id = tokens_.Find(bytes ? std::string_view(*bytes) : token);
  if (id < 0) return std::nullopt;
  return id;
}

}  // namespace forebay::text

#include "text/pre_tokenizer.h"

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>

#include "text/unicode/reference_ranges.h"
#include "text/unicode/regex.h"
#include "text/unicode/unicode.h"

namespace forebay::text {
namespace {

using base::Result;
using Behavior = PreTokenizerStep::Behavior;
using Next = PreTokenizer::Next;

// Hands on what a step found, cut as its behavior says.
class Cutter {
 public:
  Cutter(std::string_view piece, bool at_start, Behavior behavior, bool invert, const Next& next)
      : piece_(piece), at_start_(at_start), behavior_(behavior), invert_(invert), next_(next) {}

  // REQUIRES: matches come in order; begin is not before the end of the last one.
  void Match(size_t begin, size_t end) {
    if (begin > done_) Add(begin, invert_);
    Add(end, !invert_);
  }
  void Finish() {
    if (done_ < piece_.size()) Add(piece_.size(), invert_);
    Flush(piece_.size());
  }

 private:
  // The stretch from done_ to `end` is a match or lies between matches.
  void Add(size_t end, bool is_match) {
    const bool joins = behavior_ == Behavior::kContiguous           ? is_match == last_match_
                       : behavior_ == Behavior::kMergedWithPrevious ? is_match && !last_match_
                       : behavior_ == Behavior::kMergedWithNext     ? !is_match && last_match_
                                                                    : false;
    if (!joins || first_) Flush(done_);
    if (behavior_ == Behavior::kRemoved && is_match) flushed_ = end;
    first_ = false;
    last_match_ = is_match;
    done_ = end;
  }
  void Flush(size_t end) {
    if (end > flushed_) next_(piece_.substr(flushed_, end - flushed_), at_start_ && flushed_ == 0);
    flushed_ = std::max(flushed_, end);
  }

  std::string_view piece_;
  bool at_start_;
  Behavior behavior_;
  bool invert_;
  const Next& next_;
  size_t flushed_ = 0;  // handed on up to here
  size_t done_ = 0;     // seen up to here
  bool first_ = true, last_match_ = false;
};

class KnownSplit final : public PreTokenizer::Step {
 public:
  explicit KnownSplit(MatchFunction match) : match_(match) {}
  void Split(std::string_view piece, bool at_start, const Next& next) const override {
    size_t unmatched = 0;  // the characters since here begin no match
    for (size_t i = 0; i < piece.size();) {
      const size_t end = match_(piece, i);
      if (end == i) {
        DecodeUtf8(piece, &i);
        continue;
      }
      if (unmatched < i) next(piece.substr(unmatched, i - unmatched), at_start && unmatched == 0);
      next(piece.substr(i, end - i), at_start && i == 0);
      unmatched = i = end;
    }
    if (unmatched < piece.size()) next(piece.substr(unmatched), at_start && unmatched == 0);
  }

 private:
  MatchFunction match_;
};

class RegexSplit final : public PreTokenizer::Step {
 public:
  RegexSplit(Regex regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  void Split(std::string_view piece, bool at_start, const Next& next) const override {
    Cutter cutter(piece, at_start, behavior_, invert_, next);
    Regex::Matches matches(regex_, piece);
    for (size_t begin, end; matches.Next(&begin, &end);) cutter.Match(begin, end);
    cutter.Finish();
  }

 private:
  Regex regex_;
  Behavior behavior_;
  bool invert_;
};

class LiteralSplit final : public PreTokenizer::Step {
 public:
  // REQUIRES: the literal is not empty.
  LiteralSplit(std::string literal, Behavior behavior, bool invert)
      : literal_(std::move(literal)), behavior_(behavior), invert_(invert) {}
  void Split(std::string_view piece, bool at_start, const Next& next) const override {
    Cutter cutter(piece, at_start, behavior_, invert_, next);
    for (size_t at = 0; (at = piece.find(literal_, at)) != std::string_view::npos;
         at += literal_.size()) {
      cutter.Match(at, at + literal_.size());
    }
    cutter.Finish();
  }

 private:
  std::string literal_;
  Behavior behavior_;
  bool invert_;
};

class DigitsSplit final : public PreTokenizer::Step {
 public:
  explicit DigitsSplit(bool individual)
      : behavior_(individual ? Behavior::kIsolated : Behavior::kContiguous) {}
  void Split(std::string_view piece, bool at_start, const Next& next) const override {
    Cutter cutter(piece, at_start, behavior_, false, next);
    for (size_t i = 0; i < piece.size();) {
      const size_t begin = i;
      if (IsIn(kNumber, DecodeUtf8(piece, &i))) cutter.Match(begin, i);
    }
    cutter.Finish();
  }

 private:
  Behavior behavior_;
};

// White space, dropped, or punctuation.
class CharacterSplit final : public PreTokenizer::Step {
 public:
  using Matches = bool (*)(char32_t c);
  CharacterSplit(Matches matches, Behavior behavior) : matches_(matches), behavior_(behavior) {}
  void Split(std::string_view piece, bool at_start, const Next& next) const override {
    Cutter cutter(piece, at_start, behavior_, false, next);
    for (size_t i = 0; i < piece.size();) {
      const size_t begin = i;
      if (matches_(DecodeUtf8(piece, &i))) cutter.Match(begin, i);
    }
    cutter.Finish();
  }

 private:
  Matches matches_;
  Behavior behavior_;
};

class PrefixSpace final : public PreTokenizer::Step {
 public:
  void Split(std::string_view piece, bool at_start, const Next& next) const override {
    if (piece.starts_with(' ')) return next(piece, at_start);
    next(" " + std::string(piece), at_start);
  }
};

class MetaspaceSplit final : public PreTokenizer::Step {
 public:
  MetaspaceSplit(PreTokenizerStep::Prepend prepend, bool split)
      : prepend_(prepend), split_(split) {}
  void Split(std::string_view piece, bool at_start, const Next& next) const override {
    std::string text;
    text.reserve(piece.size() + piece.size() / 2);
    const bool wanted = prepend_ == PreTokenizerStep::Prepend::kAlways ||
                        (prepend_ == PreTokenizerStep::Prepend::kFirst && at_start);
    if (wanted && !piece.starts_with(' ') && !piece.starts_with(kMetaspace)) text += kMetaspace;
    for (const char c : piece) c == ' ' ? void(text += kMetaspace) : text.push_back(c);
    if (!split_) return next(text, at_start);
    LiteralSplit(kMetaspace, Behavior::kMergedWithNext, false).Split(text, at_start, next);
  }

 private:
  PreTokenizerStep::Prepend prepend_;
  bool split_;
};

Result<std::unique_ptr<PreTokenizer::Step>> MakeSplit(const PreTokenizerStep& step) {
  std::unique_ptr<PreTokenizer::Step> made;
  const MatchFunction known = step.literal || step.invert || step.behavior != Behavior::kIsolated
                                  ? nullptr
                                  : KnownMatcher(step.pattern);
  if (known != nullptr) {
    made = std::make_unique<KnownSplit>(known);
  } else if (step.literal) {
    if (step.pattern.empty()) return InvalidTokenizer("a Split has an empty string as its pattern");
    made = std::make_unique<LiteralSplit>(step.pattern, step.behavior, step.invert);
  } else {
    FB_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(step.pattern));
    made = std::make_unique<RegexSplit>(std::move(regex), step.behavior, step.invert);
  }
  return made;
}

}  // namespace

void Next::operator()(std::string_view piece, bool at_start) const {
  if (piece.empty()) return;
  if (step_ == pre_tokenizer_->steps_.size()) return (*sink_)(piece);
  pre_tokenizer_->steps_[step_]->Split(piece, at_start, Next(pre_tokenizer_, step_ + 1, sink_));
}

Result<PreTokenizer> PreTokenizer::Create(const std::vector<PreTokenizerStep>& steps) {
  PreTokenizer made;
  for (const PreTokenizerStep& step : steps) {
    switch (step.kind) {
      case PreTokenizerStep::Kind::kSplit: {
        FB_ASSIGN_OR_RETURN(auto split, MakeSplit(step));
        made.steps_.push_back(std::move(split));
        break;
      }
      case PreTokenizerStep::Kind::kDigits:
        made.steps_.push_back(std::make_unique<DigitsSplit>(step.individual));
        break;
      case PreTokenizerStep::Kind::kMetaspace:
        made.steps_.push_back(std::make_unique<MetaspaceSplit>(step.prepend, step.split));
        break;
      case PreTokenizerStep::Kind::kWhitespace:
        made.steps_.push_back(std::make_unique<CharacterSplit>(
            [](char32_t c) { return IsWhiteSpace(c); }, Behavior::kRemoved));
        break;
      case PreTokenizerStep::Kind::kPunctuation:
        made.steps_.push_back(std::make_unique<CharacterSplit>(
            [](char32_t c) { return IsInRanges(kBertPunctuation, c); }, step.behavior));
        break;
      case PreTokenizerStep::Kind::kByteLevel:
        if (step.prefix_space) made.steps_.push_back(std::make_unique<PrefixSpace>());
        if (step.gpt2_split)
          made.steps_.push_back(std::make_unique<KnownSplit>(KnownMatcher(kGpt2Pattern)));
        break;
    }
  }
  return made;
}

void PreTokenizer::Split(std::string_view text, bool at_start, const Sink& sink) const {
  Next(this, 0, &sink)(text, at_start);
}

}  // namespace forebay::text

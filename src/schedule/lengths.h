// Predicts the lengths of answers from the requests' bounds, from ended answers (of earlier runs of
// the job too), and from running ones. A prediction uses answers to similar prompts (about as long,
// with the same beginning) as soon as enough of these have ended, and all answers until then.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "schedule/survival.h"

namespace forebay::schedule {

// kMax: as long as the request allows. kMean: as the mean of the answers that became longer than
// this one is. kQuantile: the length that half of the answers which came this far exceed; those
// that still run count as far as they have come. kKnown: what the source of the requests knows, as
// a trace does, else as kMax.
enum class LengthPredictor : uint8_t { kMax, kMean, kQuantile, kKnown };

// What an answer is to.
struct AnswerKind {
  int64_t prompt_tokens = 0;
  // A hash of how the prompt begins, as all prompts of a template do; 0: not known.
  uint64_t start = 0;
};

// An answer that has begun and not ended.
struct BegunAnswer {
  AnswerKind kind;
  int64_t generated = 0;
};

// One that the job has from an earlier run.
struct EarlierAnswer {
  int32_t prompt_tokens = 0, output_tokens = 0;
};

class Lengths {
 public:
  explicit Lengths(LengthPredictor predictor);

  LengthPredictor predictor() const { return predictor_; }
  // A choice has ended with so many tokens.
  void Ended(const AnswerKind& kind, int64_t output);
  // Whether enough has happened since the last Update.
  bool Due();
  // All choices that run, or wait and have begun.
  void Update(std::span<const BegunAnswer> begun);

  // Tokens that a choice will yet generate which has `generated` some, may generate `room` more,
  // and has `known` to come if that is known, else -1. At least 1 where room is.
  int64_t Left(const AnswerKind& kind, int64_t generated, int64_t room, int64_t known) const;

 private:
  // The answers to prompts of one bucket of lengths; with by_start those that also begin alike.
  struct Bucket {
    uint64_t key;
    bool by_start;
    Survival answers;
  };

  const Bucket* Find(uint64_t key) const;
  Bucket* Find(uint64_t key) { return const_cast<Bucket*>(std::as_const(*this).Find(key)); }
  // The bucket, made where there is room or one of as little use as it.
  void EndedIn(uint64_t key, bool by_start, int64_t output);
  // Those that tell most of such a choice.
  const Survival& Of(const AnswerKind& kind) const;

  const LengthPredictor predictor_;
  int updates_skipped_ = 0;
  bool changed_ = false;
  Survival all_;
  std::vector<Bucket> buckets_;
};

}  // namespace forebay::schedule

#include "schedule/lengths.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/rng.h"

namespace forebay::schedule {
namespace {

constexpr int kMostSkipped = 32;
// Answers of a bucket that must have ended before it is asked.
constexpr int64_t kEnough = 32;
// A bucket has 40 KiB.
constexpr size_t kMostBuckets = 32;

// Prompts are told apart by the octave of their length.
uint64_t BucketOf(const AnswerKind& kind) {
  return static_cast<uint64_t>(std::bit_width(static_cast<uint64_t>(kind.prompt_tokens)));
}
// 0: it is not known how the prompt begins.
uint64_t StartKey(const AnswerKind& kind) {
  return kind.start == 0 ? 0 : base::Combine64(kind.start, BucketOf(kind));
}

}  // namespace

Lengths::Lengths(LengthPredictor predictor) : predictor_(predictor) {
  buckets_.reserve(kMostBuckets);
}

const Lengths::Bucket* Lengths::Find(uint64_t key) const {
  const auto found = std::ranges::find(buckets_, key, &Bucket::key);
  return found == buckets_.end() ? nullptr : &*found;
}

void Lengths::EndedIn(uint64_t key, bool by_start, int64_t output) {
  Bucket* bucket = Find(key);
  if (bucket == nullptr && buckets_.size() < kMostBuckets) {
    bucket = &buckets_.emplace_back(Bucket{key, by_start, {}});
  } else if (bucket == nullptr) {
    const auto use = [](const Bucket& each) {
      return each.by_start ? each.answers.ended() : kEnough;
    };
    bucket = &*std::ranges::min_element(buckets_, {}, use);
    if (use(*bucket) >= kEnough) return;
    *bucket = {key, by_start, {}};
  }
  bucket->answers.Ended(output);
}

void Lengths::Ended(const AnswerKind& kind, int64_t output) {
  all_.Ended(output);
  EndedIn(BucketOf(kind), false, output);
  if (const uint64_t key = StartKey(kind)) EndedIn(key, true, output);
  changed_ = true;
}

bool Lengths::Due() {
  if (!changed_ && ++updates_skipped_ < kMostSkipped) return false;
  updates_skipped_ = 0;
  changed_ = false;
  return true;
}

void Lengths::Update(std::span<const BegunAnswer> begun) {
  const auto asked = [](const Bucket& bucket) { return bucket.answers.ended() >= kEnough; };
  all_.BeginUpdate();
  for (Bucket& bucket : buckets_) {
    if (asked(bucket)) bucket.answers.BeginUpdate();
  }
  for (const BegunAnswer& answer : begun) {
    all_.Runs(answer.generated);
    for (const uint64_t key : {BucketOf(answer.kind), StartKey(answer.kind)}) {
      Bucket* const bucket = key == 0 ? nullptr : Find(key);
      if (bucket != nullptr && asked(*bucket)) bucket->answers.Runs(answer.generated);
    }
  }
  all_.EndUpdate();
  for (Bucket& bucket : buckets_) {
    if (asked(bucket)) bucket.answers.EndUpdate();
  }
}

const Survival& Lengths::Of(const AnswerKind& kind) const {
  for (const uint64_t key : {StartKey(kind), BucketOf(kind)}) {
    const Bucket* const bucket = key == 0 ? nullptr : Find(key);
    if (bucket != nullptr && bucket->answers.ended() >= kEnough) return bucket->answers;
  }
  return all_;
}

int64_t Lengths::Left(const AnswerKind& kind, int64_t generated, int64_t room,
                      int64_t known) const {
  int64_t left = room;
  switch (predictor_) {
    case LengthPredictor::kMax: break;
    case LengthPredictor::kMean: left = Of(kind).LeftByMean(generated); break;
    case LengthPredictor::kQuantile: left = Of(kind).LeftByMedian(generated); break;
    case LengthPredictor::kKnown: left = known >= 0 ? known : room; break;
  }
  return std::min(room, std::max<int64_t>(1, left));
}

}  // namespace forebay::schedule

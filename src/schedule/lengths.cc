#include "schedule/lengths.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/rng.h"

namespace forebay::schedule {
namespace {

constexpr int kMostSkipped = 32;
// Answers of a group that must have ended before it is asked.
constexpr int64_t kEnough = 32;
// A group has 40 KiB.
constexpr size_t kMostGroups = 32;

// Prompts are told apart by the octave of their length.
uint64_t BucketOf(const AnswerKind& kind) {
  return static_cast<uint64_t>(std::bit_width(static_cast<uint64_t>(kind.prompt_tokens)));
}
// 0: it is not known how the prompt begins.
uint64_t StartKey(const AnswerKind& kind) {
  return kind.start == 0 ? 0 : base::Combine64(kind.start, BucketOf(kind));
}

}  // namespace

base::Result<LengthPredictor> ParseLengthPredictor(std::string_view text) {
  if (text == "max") return LengthPredictor::kMax;
  if (text == "mean") return LengthPredictor::kMean;
  if (text == "quantile") return LengthPredictor::kQuantile;
  if (text == "known") return LengthPredictor::kKnown;
  return base::Status(
      base::kInvalidArgument,
      fmt::format("--length-predictor \"{}\" is unknown; expected max, mean, quantile or known",
                  text));
}

Lengths::Lengths(LengthPredictor predictor) : predictor_(predictor) {
  groups_.reserve(kMostGroups);
}

const Lengths::Group* Lengths::Find(uint64_t key) const {
  const auto found = std::ranges::find(groups_, key, &Group::key);
  return found == groups_.end() ? nullptr : &*found;
}

void Lengths::EndedIn(uint64_t key, bool by_start, int64_t output) {
  Group* group = Find(key);
  if (group == nullptr && groups_.size() < kMostGroups) {
    group = &groups_.emplace_back(Group{key, by_start, {}});
  } else if (group == nullptr) {
    const auto use = [](const Group& each) {
      return each.by_start ? each.answers.ended() : kEnough;
    };
    group = &*std::ranges::min_element(groups_, {}, use);
    if (use(*group) >= kEnough) return;
    *group = {key, by_start, {}};
  }
  group->answers.Ended(output);
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
  const auto asked = [](const Group& group) { return group.answers.ended() >= kEnough; };
  all_.BeginUpdate();
  for (Group& group : groups_) {
    if (asked(group)) group.answers.BeginUpdate();
  }
  for (const BegunAnswer& answer : begun) {
    all_.Runs(answer.generated);
    for (const uint64_t key : {BucketOf(answer.kind), StartKey(answer.kind)}) {
      Group* const group = key == 0 ? nullptr : Find(key);
      if (group != nullptr && asked(*group)) group->answers.Runs(answer.generated);
    }
  }
  all_.EndUpdate();
  for (Group& group : groups_) {
    if (asked(group)) group.answers.EndUpdate();
  }
}

const Survival& Lengths::Of(const AnswerKind& kind) const {
  for (const uint64_t key : {StartKey(kind), BucketOf(kind)}) {
    const Group* const group = key == 0 ? nullptr : Find(key);
    if (group != nullptr && group->answers.ended() >= kEnough) return group->answers;
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

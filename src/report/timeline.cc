#include "report/timeline.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace forebay::report {

void TimelineBucket::Add(const TimelineBucket& other, double part) {
  double TimelineBucket::*const kSums[] = {
      &TimelineBucket::busy_seconds,    &TimelineBucket::steps,
      &TimelineBucket::decode_rows,     &TimelineBucket::prefill_rows,
      &TimelineBucket::running,         &TimelineBucket::kv_blocks,
      &TimelineBucket::bytes_pulled,    &TimelineBucket::sp_seconds,
      &TimelineBucket::interactive_rows};
  for (double TimelineBucket::*const sum : kSums) this->*sum += part * other.*sum;
  for (size_t mode = 0; mode < kNumFfnModes; ++mode) {
    mode_seconds[mode] += part * other.mode_seconds[mode];
    mode_running[mode] += part * other.mode_running[mode];
  }
  waits.Add(other.waits, part);
}

size_t Timeline::size() const {
  return std::min(kBuckets, static_cast<size_t>(std::ceil(end_seconds_ / bucket_seconds_)));
}

void Timeline::Widen() {
  bucket_seconds_ *= 2;
  for (Lane& lane : lanes_) {
    for (size_t i = 0; i < kBuckets; ++i) {
      const TimelineBucket both[2] = {2 * i < kBuckets ? lane[2 * i] : TimelineBucket{},
                                      2 * i + 1 < kBuckets ? lane[2 * i + 1] : TimelineBucket{}};
      lane[i] = both[0];
      lane[i].Add(both[1], 1);
    }
  }
}

void Timeline::OnStep(const StepRecord& record) {
  if (lanes_.size() <= static_cast<size_t>(record.replica))
    lanes_.resize(static_cast<size_t>(record.replica) + 1);
  end_seconds_ = std::max(end_seconds_, record.end_seconds);
  while (end_seconds_ > bucket_seconds_ * kBuckets) Widen();
  const double seconds = record.end_seconds - record.begin_seconds;
  running_.Add(record.running);
  step_ms_.Add(1e3 * seconds);
  kv_wait_ms_.Add(1e3 * record.waits[WaitCause::kKv]);
  streamed_blocks_.Add(static_cast<double>(record.kv_blocks_streamed));
  TimelineBucket step{.busy_seconds = seconds,
                      .sp_seconds = seconds * record.mode.degrees.sp,
                      .waits = record.waits,
                      .steps = 1,
                      .decode_rows = static_cast<double>(record.decode_rows),
                      .prefill_rows = static_cast<double>(record.prefill_rows),
                      .interactive_rows = static_cast<double>(record.interactive_decode_rows +
                                                              record.interactive_prefill_rows),
                      .running = seconds * record.running,
                      .kv_blocks = seconds * record.kv_blocks_used,
                      .bytes_pulled = static_cast<double>(record.bytes_pulled)};
  const auto mode = static_cast<size_t>(record.mode.ffn);
  step.mode_seconds[mode] = step.busy_seconds;
  step.mode_running[mode] = step.running;
  Lane& lane = lanes_[static_cast<size_t>(record.replica)];
  const auto first =
      std::min(kBuckets - 1, static_cast<size_t>(record.begin_seconds / bucket_seconds_));
  for (size_t i = first; i < kBuckets; ++i) {
    const double begin = static_cast<double>(i) * bucket_seconds_, end = begin + bucket_seconds_;
    if (i > first && begin >= record.end_seconds) break;
    const double inside = std::min(end, record.end_seconds) - std::max(begin, record.begin_seconds);
    lane[i].Add(step, seconds > 0 ? std::max(0.0, inside) / seconds : 1);
    if (seconds <= 0) break;
  }
}

}  // namespace forebay::report

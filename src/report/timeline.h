// A run's steps over time in bounded memory: what a report draws.
#pragma once

#include <array>
#include <vector>

#include "forebay/engine.h"
#include "report/distribution.h"

namespace forebay::report {

// What one replica did in one stretch of time. A step that lies in several is divided by time.
struct TimelineBucket {
  using ByMode = std::array<double, kNumFfnModes>;

  double busy_seconds = 0;  // inside steps
  ByMode mode_seconds{};    // the same by the steps' mode
  double sp_seconds = 0;    // seconds x StepMode::sp
  WaitSeconds waits;        // StepRecord::waits
  double steps = 0;
  double decode_rows = 0, prefill_rows = 0, interactive_rows = 0;
  double running = 0;     // choices x seconds
  ByMode mode_running{};  // the same by the steps' mode
  double kv_blocks = 0;   // blocks x seconds
  double bytes_pulled = 0;

  void Add(const TimelineBucket& other, double part);
};

// The stretches double in length whenever a run outgrows them: at least half of kBuckets are in use
// in the end.
class Timeline final : public StepObserver {
 public:
  static constexpr size_t kBuckets = 360;
  using Lane = std::array<TimelineBucket, kBuckets>;

  void OnStep(const StepRecord& record) override;

  double bucket_seconds() const { return bucket_seconds_; }
  double end_seconds() const { return end_seconds_; }
  // Buckets until the end.
  size_t size() const;
  const std::vector<Lane>& lanes() const { return lanes_; }  // by replica
  // Of all replicas' steps: choices that run, milliseconds that a step takes and that it waits for
  // KV, and blocks of KV that it reads from below the device.
  const Distribution& running() const { return running_; }
  const Distribution& step_ms() const { return step_ms_; }
  const Distribution& kv_wait_ms() const { return kv_wait_ms_; }
  const Distribution& streamed_blocks() const { return streamed_blocks_; }

 private:
  void Widen();

  double bucket_seconds_ = 1e-3, end_seconds_ = 0;
  std::vector<Lane> lanes_;
  Distribution running_, step_ms_, kv_wait_ms_, streamed_blocks_;
};

}  // namespace forebay::report

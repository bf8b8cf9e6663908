// How many blocks to stream, by the measured time that steps wait for copies. The limit falls where
// more than a part of the step is exposed, and grows where less is. Pure.
//
// A step that waits for copies takes as long as they do. So the share of its blocks that would have
// been hidden is the share of the step that it computes.
#pragma once

#include <cstdint>

namespace forebay::kv {

struct StreamLimitOptions {
  int32_t places = 0;          // as planned: the most
  int32_t least = 0;           // the fewest
  double most_exposed = 0.02;  // as a part of a step
};

// What was seen of a step.
struct StreamedStep {
  double seconds = 0, exposed_seconds = 0;
  int64_t blocks = 0;  // that were streamed
};

class StreamLimit {
 public:
  // Steps that are looked at together.
  static constexpr int kInterval = 8;

  explicit StreamLimit(const StreamLimitOptions& options)
      : options_(options), limit_(options.places), lowest_(options.places) {}

  // Whether the limit has shrunk. Steps that stream nothing say nothing.
  bool Observe(const StreamedStep& step);
  // For trials: as much as is said, within what may be.
  void Set(int32_t limit);

  int32_t limit() const { return limit_; }
  int32_t lowest() const { return lowest_; }  // so far
  int64_t shrinks() const { return shrinks_; }
  // What the last interval was, its blocks those of all its steps.
  const StreamedStep& last() const { return last_; }

 private:
  const StreamLimitOptions options_;
  int32_t limit_, lowest_;
  int64_t shrinks_ = 0;
  int steps_ = 0;
  StreamedStep sum_, last_;
};

}  // namespace forebay::kv

// A trace as the engine's source of requests, on real devices and simulated ones alike.
#pragma once

#include <atomic>
#include <cstdint>

#include "forebay/engine.h"
#include "runtime/runtime.h"
#include "trace/counted_source.h"
#include "trace/trace.h"

namespace forebay::trace {

// Prompts are random token ids keyed by seed and row. A request's output length is known to the
// engine's commit alone (Request::ends_after): policies see what a user would give, who asks for no
// max_tokens. Rows that the context cannot hold are counted and not given out.
class TraceSource final : public CountedSource {
 public:
  // Arrival times count from here. All must outlive the source.
  TraceSource(runtime::Runtime& runtime, const LengthTrace& trace, const ModelFacts& facts,
              uint64_t seed, const RunControl& control);

  std::optional<Request> Next(bool wait) override;
  int64_t remaining() const override { return static_cast<int64_t>(trace_.rows.size() - next_); }
  bool ended() const override {
    return next_ == trace_.rows.size() || control_.drain || control_.abort;
  }
  int64_t lines() const override { return static_cast<int64_t>(trace_.rows.size()); }
  int64_t refused() const override { return refused_; }
  double ArrivalSeconds(int64_t line) const override {
    return trace_.rows[static_cast<size_t>(line)].arrival_seconds;
  }

 private:
  // False: it has not arrived, and is not waited for.
  bool Await(double arrival_seconds, bool wait);
  Request Make(size_t line) const;

  runtime::Runtime& runtime_;
  const LengthTrace& trace_;
  const ModelFacts& facts_;
  const uint64_t seed_;
  const RunControl& control_;
  const runtime::TimeNs start_;
  std::atomic<size_t> next_{0};
  int64_t refused_ = 0;
};

}  // namespace forebay::trace

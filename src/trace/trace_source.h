// A trace as the engine's source of requests, on real devices and simulated ones alike.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "forebay/engine.h"
#include "job/line_order.h"
#include "trace/counted_source.h"
#include "trace/trace.h"

namespace forebay::trace {

// Prompts are random token ids keyed by seed and row. A request's output length is known to the
// engine's commit alone (Request::ends_after): policies see what a user would give, who asks for no
// max_tokens. Rows that the context cannot hold are counted and not given out.
class TraceSource final : public CountedSource {
 public:
  // Rows without arrivals come by their deadlines where there are any, else as `order` says; of the
  // prompts' starts all are alike. All must outlive the source. `first_line`: of the trace's rows,
  // where another trace runs too.
  TraceSource(const LengthTrace& trace, const ModelFacts& facts, uint64_t seed,
              const RunControl& control, const job::LineOrdering& order = {},
              int64_t first_line = 0);

  std::optional<Request> Next(bool wait) override;
  int64_t remaining() const override { return static_cast<int64_t>(trace_.rows.size() - next_); }
  bool ended() const override {
    return next_ == trace_.rows.size() || control_.drain || control_.abort;
  }
  int64_t lines() const override { return static_cast<int64_t>(trace_.rows.size()); }
  int64_t refused() const override { return refused_; }
  const job::FailureTally& failures() const override { return failures_; }
  std::vector<double> arrivals() const override;

 private:
  // The context holds it.
  bool Fits(const TraceRow& row) const {
    return int64_t{row.prompt_tokens} + row.output_tokens <= facts_.max_model_len;
  }
  void Refuse(size_t line);
  // The tokens of a choice as the row's request bounds them; 0: it does not.
  int32_t BoundOf(const TraceRow& row) const;
  Request Make(size_t line) const;

  const LengthTrace& trace_;
  const ModelFacts& facts_;
  const uint64_t seed_;
  const RunControl& control_;
  const int64_t first_line_;
  std::vector<uint32_t> order_;  // of rows; empty: theirs
  std::atomic<size_t> next_{0};
  int64_t refused_ = 0;
  job::FailureTally failures_;  // by row, from 1
};

}  // namespace forebay::trace

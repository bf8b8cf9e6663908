// Where the results of a run without results go: they are counted, timed and dropped.
#pragma once

#include <mutex>
#include <span>
#include <vector>

#include "forebay/engine.h"
#include "runtime/runtime.h"
#include "trace/counted_source.h"

namespace forebay::trace {

struct Percentiles {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
// By nearest rank; zeros where there are no values. Sorts them.
Percentiles PercentilesOf(std::span<double> values);

// Times of the requests that did not fail, in seconds since each one's arrival.
struct Latencies {
  Percentiles first_token;  // TTFT
  Percentiles token;        // TPOT: from the first token to the last, by the tokens after the first
  Percentiles completion;
};

// Thread-safe.
class CountingSink final : public ResultSink {
 public:
  // Times count from here.
  CountingSink(runtime::Runtime& runtime, const CountedSource& source)
      : runtime_(runtime), source_(source), start_(runtime.Now()) {}

  bool Finish(RequestResult result) override;

  int64_t finished() const { return static_cast<int64_t>(ends_.size()) + failed_; }
  int64_t failed() const { return failed_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t output_tokens() const { return output_tokens_; }
  // From the time at which 95 % of the requests had finished.
  double TailSeconds() const;
  Latencies Summarize() const;

 private:
  double Seconds(runtime::TimeNs time) const { return static_cast<double>(time - start_) * 1e-9; }

  runtime::Runtime& runtime_;
  const CountedSource& source_;
  const runtime::TimeNs start_;
  std::mutex mutex_;
  int64_t failed_ = 0, prompt_tokens_ = 0, output_tokens_ = 0;
  // one a request, in completion order
  std::vector<double> ends_, first_token_, token_, completion_;
};

}  // namespace forebay::trace

// Where the results of a run without results go: they are counted and dropped.
#pragma once

#include <mutex>
#include <vector>

#include "forebay/engine.h"
#include "job/files/failures.h"
#include "runtime/runtime.h"

namespace forebay::trace {

// Finish is thread-safe; all else is for when the run has ended. A request's id is its line, from
// 0.
class CountingSink final : public ResultSink {
 public:
  // Times count from here.
  explicit CountingSink(runtime::Runtime& runtime) : runtime_(runtime), start_(runtime.Now()) {}

  bool Finish(RequestResult result) override;

  int64_t finished() const { return static_cast<int64_t>(ends_.size()) + failed_; }
  int64_t failed() const { return failed_; }
  // Why.
  const job::FailureTally& failures() const { return failures_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }
  int64_t output_tokens() const { return output_tokens_; }
  // From the time at which 95 % of the requests had finished.
  double TailSeconds() const;

 private:
  runtime::Runtime& runtime_;
  const runtime::TimeNs start_;
  std::mutex mutex_;
  int64_t failed_ = 0, prompt_tokens_ = 0, output_tokens_ = 0;
  job::FailureTally failures_;
  std::vector<double> ends_;  // one a request, in completion order
};

}  // namespace forebay::trace

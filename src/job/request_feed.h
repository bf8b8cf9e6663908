// The job's pending lines as the engine's source of requests; a task of its own reads and tokenizes
// ahead.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "forebay/engine.h"
#include "job/counters.h"
#include "job/request_builder.h"
#include "job/result_writer.h"
#include "runtime/mailbox.h"
#include "runtime/runtime.h"

namespace forebay::job {

// Lines whose error needs no engine go to the writer directly. Stops when the run drains or aborts.
class RequestFeed : public RequestSource {
 public:
  // Starts the task. All must outlive the feed. `order`: the ordinals of all lines that are not
  // done; empty: as they are.
  RequestFeed(runtime::Runtime& runtime, const JobFile& file, RequestBuilder& builder,
              ResultWriter& writer, JobCounters& counters, RunControl& control,
              std::vector<uint32_t> order = {});
  ~RequestFeed() override;

  std::optional<Request> Next(bool wait) override;
  bool ended() const override { return exhausted_ || stop_; }
  int64_t remaining() const override { return remaining_; }

  // Ends the task, and says what broke it: the input, or the results file. REQUIRES: no Next at the
  // same time.
  base::Status Stop();

 private:
  // Requests that wait for the engine; enough that it never waits for a tokenizer, few enough to
  // hold.
  static constexpr size_t kAhead = 128;

  void Read();
  // False: the job is to end.
  bool Take(size_t ordinal);
  bool Send(int64_t id);
  bool Ending();

  const JobFile& file_;
  RequestBuilder& builder_;
  ResultWriter& writer_;
  JobCounters& counters_;
  RunControl& control_;
  const std::vector<uint32_t> order_;

  std::mutex mutex_;  // guards ahead_
  std::unordered_map<int64_t, Request> ahead_;
  runtime::Mailbox<int64_t> ids_;  // ids of the requests in ahead_, in order
  bool exhausted_ = false;         // Next's
  // lines that neither became a request of the engine nor failed
  std::atomic<int64_t> remaining_{0};
  std::atomic<bool> stop_{false};
  base::Status status_;  // the task's, until it ended
  std::unique_ptr<runtime::Task> task_;
};

}  // namespace forebay::job

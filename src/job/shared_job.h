// A job whose lines other processes answer: the side that holds the input, the results file and the
// books. It indexes, leases, checks what comes back, appends and commits; nobody else writes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "job/files/failures.h"
#include "job/files/job_file.h"
#include "job/files/results_log.h"
#include "job/lease_book.h"
#include "job/line_server.h"
#include "job/progress.h"

namespace forebay::job {

struct SharedJobOptions {
  std::string input_path, output_path;
  // What all workers have in common; `input` is each line's own.
  Fingerprints fingerprints;
  bool retry_failed = false;
  LeaseOptions leases;
};

// What is to be done after an event.
struct WorkerOrder {
  int64_t worker = 0;
  std::vector<LineServer::Line> lines;  // to be sent; none: the worker is given up
};

// For one thread. Events carry the time at which they happened, which never goes back.
class SharedJob {
 public:
  // Indexes the input, opens the results file and scans it as `forebay run` does, with its errors.
  static base::Result<std::unique_ptr<SharedJob>> Open(const SharedJobOptions& options);

  // Events. An error ends the job: a file failed, or two workers gave one line different answers
  // (kResultsDiffer names them). Workers have numbers of their own that are not used again.
  //
  // `name` is for messages. Workers that are there join before the first of them asks.
  void Join(int64_t worker, std::string name, int64_t now_ns);
  // The worker has less to do than it likes; it gets lines now or when there are some.
  base::Result<std::vector<WorkerOrder>> Ask(int64_t worker, int64_t now_ns);
  // Bytes that the worker says are a finished line. What is no result, another job's, or for a line
  // that the worker was never given, is refused: counted, said, and dropped.
  base::Result<std::vector<WorkerOrder>> Finish(int64_t worker, std::string_view text,
                                                int64_t now_ns);
  base::Result<std::vector<WorkerOrder>> Hear(int64_t worker, int64_t now_ns);
  // It left of its own will.
  base::Result<std::vector<WorkerOrder>> Leave(int64_t worker, int64_t now_ns);
  base::Result<std::vector<WorkerOrder>> Die(int64_t worker, int64_t now_ns);
  base::Result<std::vector<WorkerOrder>> Tick(int64_t now_ns);

  // Puts what was appended on stable storage.
  base::Status Commit() { return log_->Commit(); }
  bool GroupIsFull() const { return log_->GroupIsFull(); }
  bool complete() const { return book_->complete(); }
  // At the end: the results in the input's order. REQUIRES: complete.
  base::Status RewriteInOrder() { return log_->RewriteInOrder(); }

  struct Counts {
    int64_t lines = 0, resumed = 0, resumed_failed = 0, done = 0, failed = 0;
    int64_t done_bytes = 0;  // counted in lines, where prompt and output tokens are in results
    int64_t prompt_tokens = 0, output_tokens = 0;
    int64_t twice = 0;    // later results that were equal to the first
    int64_t refused = 0;  // what came and was no answer of ours
    std::map<std::string, int64_t> by_worker;
  };
  const Counts& counts() const { return counts_; }
  const FailureTally& failures() const { return failures_; }
  // The moment so long after the first line was sent.
  ProgressView Progress(double elapsed_seconds);

 private:
  SharedJob(const SharedJobOptions& options, JobFile input)
      : options_(options), input_(std::move(input)) {}
  base::Status OpenLog();
  base::Result<std::vector<WorkerOrder>> Act(const std::vector<LeaseAction>& actions,
                                             const FoundResult* found);
  base::Result<WorkerOrder> Lease(const LeaseAction& action) const;
  base::Status Keep(int64_t worker, size_t ordinal, const FoundResult& found);
  base::Status Fail(size_t ordinal, const LineError& error);
  base::Status Compare(int64_t worker, size_t ordinal, std::string_view text);
  base::Result<std::string> ReadKept(size_t ordinal) const;
  void Refuse(int64_t worker, std::string_view why);
  const std::string& NameOf(int64_t worker) const;

  const SharedJobOptions options_;
  const JobFile input_;
  std::unique_ptr<ResultsLog> log_;
  std::unique_ptr<LeaseBook> book_;
  std::map<int64_t, std::string> names_;
  std::set<int64_t> present_;     // workers that have neither left, nor died, nor been given up
  std::vector<int32_t> keepers_;  // by ordinal: whose result was kept; -1: an earlier run's
  simdjson::dom::parser parser_;
  Counts counts_;
  FailureTally failures_;
  std::optional<ProgressEstimator> estimator_;
};

}  // namespace forebay::job

// What a running job counts for its progress and its summary.
#pragma once

#include <atomic>
#include <cstdint>

namespace forebay::job {

// Fixed once the run begins.
struct JobSize {
  int64_t lines = 0;    // lines of the input that are not blank
  int64_t resumed = 0;  // done by earlier runs
  int64_t resumed_failed = 0;
  int64_t pending_bytes = 0;  // bytes of the other lines
  int64_t pending() const { return lines - resumed; }
};

// Written by the job's tasks, read by any.
struct JobCounters {
  std::atomic<int64_t> read_bytes{0};          // bytes of lines turned into requests or errors
  std::atomic<int64_t> read_prompt_tokens{0};  // those requests'
  std::atomic<int64_t> done{0};                // results of this run, failed ones included
  std::atomic<int64_t> failed{0};
  std::atomic<int64_t> done_prompt_tokens{0};  // those of results that did not fail
  std::atomic<int64_t> done_output_tokens{0};
  std::atomic<int64_t> done_output_squares{0};  // sum over results of their squares
  // runtime's clock: all but the last 5 % of the pending lines done
  std::atomic<int64_t> tail_began_ns{-1};

  // A result that did not fail.
  void CountOutput(int64_t tokens) {
    done_output_tokens += tokens;
    done_output_squares += tokens * tokens;
  }
};

}  // namespace forebay::job

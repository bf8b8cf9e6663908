// A job: every line of an input file answered once, in a results file that is its own journal.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/status.h"
#include "forebay/engine.h"
#include "job/exit_code.h"
#include "job/files/job_file.h"
#include "job/line_order.h"
#include "job/lines/result_format.h"
#include "job/lines/text_pipeline.h"
#include "job/progress.h"
#include "job/request_builder.h"
#include "job/summary.h"
#include "job/traffic/arrivals.h"
#include "job/traffic/latency.h"
#include "runtime/runtime.h"
#include "schedule/lengths.h"

namespace forebay::job {

inline constexpr base::ErrorCode kBadLines{"input_has_bad_lines"};
inline constexpr base::ErrorCode kStalled{"engine_stalled"};
inline constexpr base::ErrorCode kUnfinished{"job_unfinished"};

struct JobOptions {
  std::string output_path;
  Fingerprints fingerprints;  // the job's; `input` is each line's own
  RequestRules rules;
  ResultStyle style;
  bool strict = false;          // check all lines first, run nothing if one is bad
  bool retry_failed = false;    // run the lines again that failed in earlier runs
  LineOrdering order;           // in which the engine is given the lines
  bool preserve_order = false;  // rewrite the finished file in the input's order
  double grace_seconds = 30;    // how long a drain may take
  // when the lines that this run is to answer come; where there are any, latencies are measured
  Arrivals arrivals;
  bool each_token = false;  // latencies between tokens too (TimedSource)
  ProgressMode progress = ProgressMode::kLines;
  int progress_fd = 2;
  std::string summary_path;  // empty: none
  // told before the engine runs how long the answers are that earlier runs made; empty: nobody
  std::function<void(std::span<const schedule::EarlierAnswer>)> learn;
  std::string isa;                        // for the summary
  runtime::TimeNs process_began = -1;     // on the runtime's clock; -1: now
  std::function<int64_t()> unix_seconds;  // for `created`; empty: the system's clock
};

struct JobOutcome {
  ExitCode exit_code = ExitCode::kComplete;
  base::Status status;  // why not complete
  JobSummary summary;
  Latencies latencies;  // where there are arrivals
};

// Runs the job to its end: reads the lines of `input`, resumes from what the results file holds,
// feeds the engine, appends and commits results, shows progress and the summary. Messages go to
// stderr, results to the file alone. `control` may be set from anywhere, a signal handler too; the
// job itself sets `abort` where it cannot go on.
//
// Tasks: the caller's runs the engine, one reads and tokenizes (so Engine::Refusal is called while
// Run runs), one commits and draws. All blocking goes through `runtime`.
JobOutcome RunJob(runtime::Runtime& runtime, const JobFile& input, const JobOptions& options,
                  TextPipeline& text, Engine& engine, RunControl& control);

}  // namespace forebay::job

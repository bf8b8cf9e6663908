// What a job came to, for people and (--summary FILE) for programs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "forebay/engine.h"
#include "job/counters.h"
#include "job/files/failures.h"

namespace forebay::job {

struct JobSummary {
  std::string end;               // "complete", "drained", ...
  int64_t lines = 0;             // lines of the input that are not blank
  int64_t resumed = 0;           // done by earlier runs
  int64_t done = 0, failed = 0;  // by this run
  int64_t total_failed = 0;      // earlier runs' included
  // why, earlier runs' included
  std::vector<FailureTally::CodeFailure> failures;
  int64_t prompt_tokens = 0, output_tokens = 0;  // tokens of this run's results
  double startup_seconds = 0;  // from the process' begin to the engine's first call
  double elapsed_seconds = 0;  // from there to the last result's commit
  double first_result_seconds = -1;
  double tail_seconds = 0;  // the part of elapsed_seconds after 95 % of this run's lines
  uint64_t peak_rss_bytes = 0;
  std::string isa;
  // Member and value, in runs that measure them; milliseconds, where the member says so.
  std::vector<std::pair<std::string, double>> latencies_ms;
  ModelFacts model;
  EngineStats stats;
};

// One JSON object, in the field names of `vllm bench throughput` where they exist
// (docs/formats/summary.md).
std::string SummaryJson(const JobSummary& summary);
// "62 % measured, 0 % derived, 38 % datasheet": where the prices of the job's forecast come from;
// "": nothing was foreseen.
std::string PricedText(const EngineStats& stats);
// A few lines for the terminal.
std::string SummaryText(const JobSummary& summary);

// SummaryText, through base::Log.
void LogSummary(const JobSummary& summary);

// Writes SummaryJson and LF; kIoError names the file.
base::Status WriteSummary(const JobSummary& summary, const std::string& path);

// What this process has used so far.
uint64_t PeakRssBytes();

}  // namespace forebay::job

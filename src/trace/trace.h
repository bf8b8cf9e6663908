// Length traces: what a job looks like to the scheduler, without its text (docs/formats/traces.md).
#pragma once

#include <cstdint>
#include <istream>
#include <limits>
#include <string>
#include <vector>

#include "base/status.h"
#include "forebay/service.h"

namespace forebay::trace {

inline constexpr base::ErrorCode kTraceInvalid{"trace_invalid"};

struct TraceRow {
  double arrival_seconds = 0;  // since the run's begin
  int32_t prompt_tokens = 0;   // at least 1
  int32_t output_tokens = 0;   // at least 1
  Service service = Service::kBatch;
  // By when the answer is wanted, since the run's begin; infinite: whenever.
  double deadline_seconds = std::numeric_limits<double>::infinity();
};

struct LengthTrace {
  std::string name;
  // in the order of their arrival; a row's index is its request's line
  std::vector<TraceRow> rows;
  // so many tokens at the begin of every prompt are the same in all rows
  int32_t shared_prefix_tokens = 0;
  int32_t choices = 1;  // a row asks for so many answers, each of its output_tokens
  // a row asks for at most so many times its output_tokens; 0: for no bound
  double bound = 0;

  // False: all rows are there from the begin.
  bool online() const { return !rows.empty() && rows.back().arrival_seconds > 0; }
  bool has(Service service) const;
  bool has_deadlines() const;
  // Takes the rows of the service out.
  LengthTrace Take(Service service);
};

struct TraceOptions {
  int64_t max_rows = 0;   // the first so many; 0: all
  double time_scale = 1;  // arrival times are multiplied by it; 0: all at the begin

  bool operator==(const TraceOptions&) const = default;
};

// Lengths beyond this are taken for mistakes.
inline constexpr int32_t kMostTraceTokens = 1 << 24;

// A CSV file's text; `name` stands for it in errors.
base::Result<LengthTrace> ParseTrace(std::istream& text, const std::string& name,
                                     const TraceOptions& options);

// `spec` is the path of a CSV file, or "synthetic:" and a distribution. Errors (kTraceInvalid,
// kIoError) name file, line, column, what was found and what was expected.
base::Result<LengthTrace> ReadTrace(const std::string& spec, const TraceOptions& options);

}  // namespace forebay::trace

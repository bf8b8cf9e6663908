#include "trace/job_lengths.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace forebay::trace {
namespace {

// Tokens that a running choice holds; `own`: without those that it shares.
double MeanTokens(const std::vector<layout::ChoiceShape>& choices, bool own) {
  MeanHeld held;
  for (const layout::ChoiceShape& choice : choices) {
    held.Add(static_cast<double>(choice.prompt - (own ? choice.shared : 0)),
             static_cast<double>(choice.output));
  }
  return held.mean();
}

}  // namespace

void DescribeLengths(JobLengths job, bool all_there, layout::EngineOptions* options) {
  options->job_held = job.held;
  if (options->limits.mean_context != 0) return;
  options->limits.mean_context = std::llround(MeanTokens(job.choices, false));
  if (!all_there) return;
  options->job = std::make_shared<const std::vector<layout::ChoiceShape>>(std::move(job.choices));
  options->job_times = job.times;
  options->job_exact = job.exact;
}

void DescribeTrace(const LengthTrace& trace, layout::EngineOptions* options, bool all_there) {
  JobLengths job{.exact = true};
  for (const TraceRow& row : trace.rows) {
    layout::ChoiceShape choice{.prompt = row.prompt_tokens,
                               .output = row.output_tokens,
                               .bound = std::llround(std::ceil(trace.bound * row.output_tokens)),
                               .shared = std::min(row.prompt_tokens, trace.shared_prefix_tokens)};
    job.choices.push_back(choice);
    // The others of a row share its prompt.
    choice.shared = choice.prompt;
    job.choices.insert(job.choices.end(), static_cast<size_t>(trace.choices - 1), choice);
  }
  job.held = MeanTokens(job.choices, options->prefix_caching);
  DescribeLengths(std::move(job), all_there && !trace.online(), options);
}

}  // namespace forebay::trace

#include "trace/job_lengths.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

namespace forebay::trace {
namespace {

// The mean number of tokens that a running choice holds over its decoding steps. 0: no choices.
double MeanContext(const std::vector<layout::ChoiceShape>& choices) {
  double context = 0, steps = 0;
  for (const layout::ChoiceShape& choice : choices) {
    const auto output = static_cast<double>(choice.output);
    context += output * (static_cast<double>(choice.prompt) + output / 2);
    steps += output;
  }
  return steps == 0 ? 0 : context / steps;
}

}  // namespace

void DescribeLengths(JobLengths job, bool all_there, layout::EngineOptions* options) {
  if (options->limits.mean_context != 0) return;
  options->limits.mean_context = std::llround(MeanContext(job.choices));
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
  DescribeLengths(std::move(job), all_there && !trace.online(), options);
}

}  // namespace forebay::trace

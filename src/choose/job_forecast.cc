#include "choose/job_forecast.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace forebay::choose {

JobForecast JobForecast::Times(double times) const {
  const auto more = [&](int64_t count) { return std::llround(static_cast<double>(count) * times); };
  std::vector<double> generation = generation_seconds;
  for (double& by_replicas : generation) by_replicas *= times;
  return {.seconds = seconds * times,
          .output_tokens = more(output_tokens),
          .steps = more(steps),
          .steps_together = more(steps_together),
          .preemptions = more(preemptions),
          .recomputed_tokens = more(recomputed_tokens),
          .left_out = more(left_out),
          .origins = origins * times,
          .stopped = stopped,
          .together_saves = together_saves * times,
          .context_seconds = context_seconds * times,
          .generation_seconds = std::move(generation)};
}

JobSample SampleJob(std::span<const layout::ChoiceShape> job, int64_t most_choices) {
  JobSample sample;
  const auto count = static_cast<int64_t>(job.size());
  const int64_t taken = std::min(count, most_choices);
  for (int64_t i = 0; i < taken; ++i) sample.job.push_back(job[i * count / taken]);
  if (taken > 0) sample.times = static_cast<double>(count) / static_cast<double>(taken);
  return sample;
}

}  // namespace forebay::choose

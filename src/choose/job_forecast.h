// What a job takes on the replicas of a layout, as choose/foresee.h foresees it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "cost/model.h"
#include "layout/options.h"

namespace forebay::choose {

struct JobForecast {
  double seconds = 0;
  int64_t output_tokens = 0, steps = 0, steps_together = 0, preemptions = 0, recomputed_tokens = 0;
  int64_t left_out = 0;        // choices that are refused, as longer than the plan's context
  cost::PriceOrigins origins;  // of the steps of all replicas
  bool stopped = false;        // before the job's end, which is later than `seconds`
  // Of a replica, on average: by so much the steps that it took alone would have been shorter if
  // all had taken them together.
  double together_saves = 0;
  // Of a plan of copies without stages: what all prompts take one of its replicas, and what all
  // other tokens take so many (1 and so on, fewer than it has), if no step has both and each has as
  // many rows as it can. Roles take no less.
  double context_seconds = 0;
  std::vector<double> generation_seconds;

  // 0 where nothing is known of it.
  double tokens_per_s() const {
    return seconds > 0 && !stopped ? static_cast<double>(output_tokens) / seconds : 0;
  }
  // The forecast of a job that is so many times as long.
  JobForecast Times(double times) const;
};

// By what forecasts are compared: choices that are refused, then the seconds until the others end.
struct JobCost {
  int64_t left_out = std::numeric_limits<int64_t>::max();
  double seconds = std::numeric_limits<double>::infinity();

  friend auto operator<=>(const JobCost&, const JobCost&) = default;
};

inline JobCost CostOf(const JobForecast& job) { return {job.left_out, job.seconds}; }

// As many choices as a forecast of the whole job would take too long over, evenly chosen: the job,
// or a part of it with the same lengths, and by how much its seconds must be multiplied.
struct JobSample {
  std::vector<layout::ChoiceShape> job;
  double times = 1;
};
JobSample SampleJob(std::span<const layout::ChoiceShape> job, int64_t most_choices);

}  // namespace forebay::choose

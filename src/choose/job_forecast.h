// How long a job takes on the replicas of a layout: their steps, one after another, over counts of
// tokens alone. The policy that will run plans each step; equal steps of decoding are taken at
// once. Pure: no device, no clock.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "layout/group_options.h"
#include "layout/options.h"
#include "price/step_load.h"
#include "schedule/policy.h"

namespace forebay::choose {

struct ForecastQuestion {
  std::span<const layout::ChoiceShape> job;  // in the job's order
  int replicas = 1;                          // that share the job
  schedule::Limits limits;                   // each replica's
  const schedule::Policy* policy = nullptr;
  // The stages of a replica's pipeline. Each has a step under way; limits and prices are of all
  // these together, and such a round of steps takes as long as its largest through all stages.
  int stages = 1;
  // The seconds of a step that a replica takes for itself.
  std::function<double(const price::StepLoad&)> alone;
  // Seconds of a step that all take together, if the others waited for none but this replica.
  std::function<double(const price::StepLoad&, const price::RowsOfAll& all)> together;
  layout::GroupOptions group;  // when steps are taken together; of one rank: never
};

struct JobForecast {
  double seconds = 0;
  int64_t output_tokens = 0, steps = 0, steps_together = 0, preemptions = 0, recomputed_tokens = 0;

  double tokens_per_s() const {
    return seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0;
  }
  // The forecast of a job that is so many times as long.
  JobForecast Times(double times) const;
};

// REQUIRES: each choice alone fits the limits' blocks.
JobForecast ForecastJob(const ForecastQuestion& question);

// As many choices as a forecast of the whole job would take too long over, evenly chosen: the job,
// or a part of it with the same lengths, and by how much its seconds must be multiplied.
struct JobSample {
  std::vector<layout::ChoiceShape> job;
  double times = 1;
};
JobSample SampleJob(std::span<const layout::ChoiceShape> job, int64_t most_choices);

}  // namespace forebay::choose

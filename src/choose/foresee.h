// How long a job takes on the replicas of a layout, before anything is made: the engine's own
// choices, request queue and group rule, step by step in virtual time, with prices in place of
// devices. Equal steps of decoding are planned once. Pure: no device, no clock, no tokens of text.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>

#include "choose/job_forecast.h"
#include "engine/choices/choices_view.h"
#include "layout/group_options.h"
#include "layout/options.h"
#include "price/step_load.h"
#include "schedule/mode_rule.h"
#include "schedule/policy.h"

namespace forebay::choose {

// A step, as far as its price depends on it.
struct PricedStep {
  price::StepLoad load;
  StepMode mode;
  price::RowsOfAll all;  // of the group, where the mode meets
  double times = 1;      // steps for which this price stands
};

struct ForeseeQuestion {
  std::span<const layout::ChoiceShape> job;  // in the job's order
  int groups = 1, replicas = 1;              // of a group
  engine::ChoicesOptions choices;            // each replica's; `replica` is set for each
  int64_t max_model_len = 0;
  const schedule::Policy* policy = nullptr;
  schedule::ModeRule mode;                        // of steps that a replica takes for itself
  std::optional<layout::GroupOptions> agreement;  // a group's; nothing: it has none
  bool steals = false;  // replicas of a group without work get some from the others
  int stages = 1;       // of a replica's pipeline
  // Writes the seconds of the step on each stage.
  std::function<void(const PricedStep& step, std::span<double> stages)> price;
  // A job that takes longer is followed no further: JobForecast::stopped.
  double most_seconds = std::numeric_limits<double>::infinity();
  // Of groups that compute prompts: the groups that go on with what these hand over. The whole
  // job's job, max_model_len and most_seconds are the first's. Null: groups do both.
  const ForeseeQuestion* generation = nullptr;
};

// REQUIRES: each choice alone fits a replica, of either role; of two roles that choices.role says
// which, and that neither has an agreement.
JobForecast Foresee(const ForeseeQuestion& question);

}  // namespace forebay::choose

// A layout's plan with all answered that options leave open: how many layers and experts ranks
// hold, from which rows on steps take which mode, and how much KV of running choices lives below.
// Answers follow from prices, or from constants where nothing says what steps take. Pure, but for
// layout/platform.h and the choice of kernels, which ask what machine this is.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "choose/expert_choice.h"
#include "choose/job_forecast.h"
#include "choose/pool_choice.h"
#include "choose/shift_choice.h"
#include "layout/layout_plan.h"

namespace forebay::choose {

// A plan, and what it was chosen from.
struct Decision : layout::LayoutPlan {
  // What pool=auto and expert-size=auto chose, at this mean context and by the prices of this
  // device.
  std::optional<PoolChoice> choice;
  std::optional<ExpertChoice> expert_choice;
  int64_t mean_context = 0;
  std::string priced_by;
  // What the job takes as planned; nothing: little is known of the job or of the devices.
  std::optional<JobForecast> forecast;
  std::vector<ModePrices> mode_prices;  // ShiftChoice::prices
  // What --kv-offload auto chose, or why nothing; empty: it was not asked.
  std::string streaming;
  std::string flags;  // LayoutTrial::flags
  // Of groups that a search has given the role of context: the plan of the others; else null.
  std::shared_ptr<Decision> generation;
};

// Forecasts of jobs by pooled layers and the experts of a layer that a rank holds, of one cut of
// the devices and the same options. The flag: whether the group's replicas meet by their load.
using KnownForecasts = std::map<std::pair<int64_t, int64_t>, std::pair<JobForecast, bool>>;

// What a decision among others may leave out.
struct Effort {
  // A plan with which the job ends later is of no interest: its forecast may be stopped
  // (JobForecast::stopped), and its numbers of layers and experts be the best of a few.
  JobCost rival;
  bool quarters_do = false;               // as CountRival has it
  const Decision* other = nullptr;        // of the same layout with other settings; may be null
  KnownForecasts* known = nullptr;        // may be null; the decision adds its own
  price::SharedPrices* prices = nullptr;  // of all decisions; may be null
};

// The plan of the layout that the options name; of copies of the model, where they name none.
// Errors are those of the options (their value, the devices, the layout, what the model cannot do),
// not of the memory. `num_devices`: the layout's, of the machine's; 0: all.
base::Result<Decision> Decide(const layout::EngineOptions& options,
                              const model::ModelConfig& config, int num_devices = 0,
                              const Effort& effort = {});

// What pool=auto came to, beside no pool and all layers. REQUIRES: decision.choice.
std::string FormatChoice(const Decision& decision);

// The same of expert-size=auto, beside the least size and the most. REQUIRES:
// decision.expert_choice.
std::string FormatExpertChoice(const Decision& decision);

// What a job takes.
std::string FormatJob(const JobForecast& job);
// What so many pooled layers, or experts, come to.
std::string FormatTrial(const Throughput& trial);
// What the job is expected to take. REQUIRES: decision.forecast.
std::string FormatForecast(const Decision& decision);

}  // namespace forebay::choose

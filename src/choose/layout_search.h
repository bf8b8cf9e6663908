// Which layout of the devices runs a job soonest. Pure, as Decide is.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "choose/decide.h"

namespace forebay::choose {

struct LayoutTrial {
  std::string layout;            // as --layout has it; empty: `flags` give groups their roles
  std::string flags;             // that the trial sets beside it; empty: none
  base::Status refused;          // why it cannot run
  std::optional<Decision> plan;  // with its forecast, where it can; of roles the context groups'
};

// How far a search is: layouts of `layouts` with the options as they are, then further trials, and
// the least seconds of a job so far; 0: no layout can run it yet.
struct SearchProgress {
  int64_t tried = 0, layouts = 0, further = 0;
  double best_seconds = 0;
  bool done = false;  // nothing more is tried, and nothing more told
};
using TellSearch = std::function<void(const SearchProgress&)>;

// Each cut of the devices into replicas, stages, and tensor and sequence parallel ranks; those with
// several replicas, or sequence parallel ranks, also with weights that these share, of a model with
// experts these, but where forecasts so far show that it cannot win. The best few,
// and those with shared weights that lack memory, also with other rows of a step and less memory
// for weights that are pulled, where the options leave these open (LayoutTrial::flags): a trial of
// its own, where the job is done sooner so. First those that run, the soonest done first.
//
// Last, on simulated devices, groups with roles that are copies of the model (SplitDevices), where
// the slower role alone takes less than the third best trial.
//
// A layout that shares weights has many candidates, one for each number of layers or experts. A
// few of these are foreseen first, no further than what may still come near the best three, and
// only where one does all others. So a plan's forecast may be stopped (JobForecast::stopped), never
// that of the best: such plans come behind those that were foreseen to their end.
//
// `tell` (may be null) hears of each trial, and of the end, from any thread but one at a time.
// Forecasts run on `threads` threads (0: one a core); the result is the same on any number.
// REQUIRES: options.job. Errors are those of any layout.
base::Result<std::vector<LayoutTrial>> RankLayouts(const layout::EngineOptions& options,
                                                   const model::ModelConfig& config,
                                                   const TellSearch& tell = {}, int threads = 0);

// The trial of options.roles. One that comes to no less than `rival` is followed no further.
// Refused are, beside what DecideRoles refuses, weights that ranks share and KV below the devices:
// no forecast knows them. `prices`: as PricerOf has it. REQUIRES: options.job.
LayoutTrial ForeseeRoles(const layout::EngineOptions& options, const model::ModelConfig& config,
                         const JobCost& rival = {}, price::SharedPrices* prices = nullptr);

// Nobody has named a layout, and one may be chosen as soon as the job is known (and prices of real
// devices are measured): of simulated devices; of several real ones, where the model has no experts
// and steps can be foreseen whatever text chooses.
bool LeavesLayoutOpen(const layout::EngineOptions& options, const model::ModelConfig& config);

// The plan that options ask for: that of their layout, or with layout_by_job the first of
// RankLayouts; copies of the model, where that would be little slower, and a layout in place of
// roles (Decision::generation), since what was foreseen may be a little wrong. Errors are those of
// either; kInvalidArgument where nothing is known of the job.
base::Result<Decision> DecideLayout(const layout::EngineOptions& options,
                                    const model::ModelConfig& config, const TellSearch& tell = {});

}  // namespace forebay::choose

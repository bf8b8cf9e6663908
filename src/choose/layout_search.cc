#include "choose/layout_search.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

namespace forebay::choose {
namespace {

// Ways in which replicas share what most of the model's weights are.
std::vector<layout::Layout> SharedOf(layout::Layout layout, bool experts) {
  if (experts) {
    layout.experts = {&weights::kByExpert};
    layout.expert_size.reset();
    return {layout};
  }
  std::vector<layout::Layout> shared;
  for (const auto* placement : {&weights::kStriped, &weights::kByLayer}) {
    layout.weights = {placement};
    shared.push_back(layout);
  }
  return shared;
}

std::vector<layout::Layout> LayoutsOf(int devices, bool experts) {
  std::vector<layout::Layout> layouts;
  for (int tp = 1; tp <= devices; ++tp) {
    for (int pp = 1; tp * pp <= devices; ++pp) {
      layout::Layout layout{.dp = layout::ReplicasOn(devices, tp, pp), .tp = tp, .pp = pp};
      if (layout.dp == 0) continue;
      layouts.push_back(layout);
      if (layout.dp == 1 || (experts && pp > 1)) continue;
      for (const layout::Layout& shared : SharedOf(layout, experts)) layouts.push_back(shared);
    }
    // Ranks that cut a step's rows, and change to tensor parallelism in steps of few.
    for (int sp = 2; tp * sp <= devices; ++sp) {
      const int replicas = layout::ReplicasOn(devices, tp, sp);
      if (replicas > 0) layouts.push_back({.dp = replicas, .tp = tp, .sp = sp});
    }
  }
  return layouts;
}

// By so much the forecasts of two layouts may be wrong against each other (up to 3 % in the cells
// of docs/parallelism.md).
constexpr double kLittleSlower = 1.02;

double Seconds(const LayoutTrial& trial) {
  return trial.plan ? trial.plan->forecast->seconds : std::numeric_limits<double>::infinity();
}

}  // namespace

base::Result<std::vector<LayoutTrial>> RankLayouts(const layout::EngineOptions& options,
                                                   const model::ModelConfig& config) {
  std::vector<LayoutTrial> trials;
  layout::EngineOptions each = options;
  for (const layout::Layout& layout :
       LayoutsOf(options.machine.devices.count, config.moe.has_value())) {
    each.layout = layout;
    auto plan = Decide(each, config);
    LayoutTrial trial{.layout = layout::FormatLayout(layout),
                      .refused = plan.ok() ? plan->Fits() : plan.status()};
    if (trial.refused.ok() && !plan->forecast) {
      return base::Status(base::kInvalidArgument,
                          "layouts are compared on devices with prices; expected --devices "
                          "sim:8xh200 or a --device-profile");
    }
    if (trial.refused.ok()) {
      trial.layout = layout::FormatLayout(plan->layout);
      // With no layer pooled it is the same as copies.
      if (plan->layout.pools_layers() && plan->layout.pool_layers == 0) continue;
      trial.plan = *std::move(plan);
    }
    trials.push_back(std::move(trial));
  }
  std::ranges::stable_sort(trials, {}, Seconds);
  return trials;
}

bool LeavesLayoutOpen(const layout::EngineOptions& options, const model::ModelConfig& config) {
  return !options.layout && !options.roles && !options.layout_by_job &&
         options.machine.devices.count > 1 && !config.moe;
}

base::Result<Decision> DecideLayout(const layout::EngineOptions& options,
                                    const model::ModelConfig& config) {
  if (!options.layout_by_job || options.machine.devices.count == 1) return Decide(options, config);
  if (options.job == nullptr) {
    return base::Status(base::kInvalidArgument,
                        "--layout auto: the job is not known before it runs; expected an input or "
                        "a trace whose requests are all there, without --mean-context, or a "
                        "layout, as dp=4,weights=striped");
  }
  FB_ASSIGN_OR_RETURN(std::vector<LayoutTrial> trials, RankLayouts(options, config));
  const auto copies = std::ranges::find_if(trials, [&](const LayoutTrial& trial) {
    return trial.plan && trial.plan->layout.dp == options.machine.devices.count &&
           !trial.plan->layout.pools();
  });
  const bool copies_do =
      copies != trials.end() && Seconds(*copies) <= kLittleSlower * Seconds(trials.front());
  LayoutTrial& best = copies_do ? *copies : trials.front();
  if (best.plan) return *std::move(best.plan);
  return best.refused;
}

}  // namespace forebay::choose

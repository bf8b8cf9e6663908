#include "layout/shift_plan.h"

#include <algorithm>
#include <limits>

#include "model/ulysses.h"

namespace forebay::layout {
namespace {

using model::Degrees;
using schedule::ShiftEntry;

constexpr int64_t kAnyRows = std::numeric_limits<int64_t>::max();

// Modes between the ends are there as views alone.
base::Status CheckAll(const ShiftOptions& asked, const Layout& layout) {
  const size_t modes = ModesOf(layout.degrees(), false).size();
  if (modes <= 2) return {};
  if (layout.pools()) {
    return {kShiftInvalid,
            fmt::format("--shift-modes all with weights={}: ranks own the weights of 2 of the {} "
                        "modes; expected ends",
                        layout.weights.text(), modes)};
  }
  if (!asked.copies_weights) return {};
  return {kShiftInvalid,
          fmt::format("--shift-modes all with --shift-weights copy: {} further models beside the "
                      "layout's; expected ends, which has 1",
                      modes - 1)};
}

base::Status CheckAsked(const EngineOptions& options, const Layout& layout) {
  const ShiftOptions& asked = options.shift;
  if (asked.mode && asked.threshold > 0) {
    return {kShiftInvalid, fmt::format("--shift-mode {} and --shift-parallel-threshold {} are both "
                                       "given; expected one of them",
                                       FormatMode(*asked.mode), asked.threshold)};
  }
  const bool all = asked.among == ModeChoice::kAll;
  if (layout.sp > 1) return all ? CheckAll(asked, layout) : base::Status::Ok();
  const std::pair<bool, std::string> flags[] = {
      {asked.two_step_kv, "--kv-replication two-step"},
      {asked.copies_weights, "--shift-weights copy"},
      {asked.mode.has_value(),
       fmt::format("--shift-mode {}", FormatMode(asked.mode.value_or(Degrees{})))},
      {asked.threshold > 0, fmt::format("--shift-parallel-threshold {}", asked.threshold)},
      {asked.among != ModeChoice::kDefault, all ? "--shift-modes all" : "--shift-modes ends"},
      {options.trial.shift_every != 0, fmt::format("--shift-every {}", options.trial.shift_every)}};
  for (const auto& [given, flag] : flags) {
    if (!given) continue;
    return {kShiftInvalid,
            fmt::format("{} of a layout with sp=1, tp={}, which has one mode; expected "
                        "sp of at least 2",
                        flag, layout.tp)};
  }
  return {};
}

base::Status CheckMode(const Degrees& mode, const Layout& layout, const ShiftPlan& plan) {
  if (std::ranges::find(plan.modes, mode) != plan.modes.end()) return {};
  std::string names;
  for (const Degrees& other : plan.modes)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", FormatMode(other));
  return {kShiftInvalid, fmt::format("--shift-mode {} of a layout with sp={}, tp={}; expected {}",
                                     FormatMode(mode), layout.sp, layout.tp, names)};
}

// Two steps are for KV heads that several of those ranks hold that cut rows together.
base::Status CheckTwoSteps(const EngineOptions& options, const model::ModelConfig& config,
                           const Layout& layout, const ShiftPlan& plan) {
  if (!options.shift.two_step_kv) return {};
  for (const ShiftEntry& entry : plan.table.entries) {
    for (int rank = 0; rank < layout.ranks_per_stage(); ++rank) {
      const model::Shard shard = model::ShardOf(config, CutOf(layout, rank), {entry.sp, entry.tp});
      if (model::KvCopies(shard) > 1) return {};
    }
  }
  return {kShiftInvalid,
          fmt::format("--kv-replication two-step with sp={}, tp={} and {} KV heads: ranks "
                      "that cut rows together hold no KV head equally often, and more than once; "
                      "expected sp of twice as many as they have KV heads, or fused",
                      layout.sp, layout.tp, config.num_kv_heads)};
}

// A second model is for a second mode.
base::Status CheckCopies(const ShiftOptions& asked, const Layout& layout, const ShiftPlan& plan) {
  const auto is_own = [&](const ShiftEntry& entry) {
    return layout.degrees() == Degrees{entry.sp, entry.tp};
  };
  if (asked.copies_weights && layout.pools()) {
    return {kShiftInvalid,
            fmt::format("--shift-weights copy with sp={},weights={}: a pool's ranks own what the "
                        "other mode reads; expected views, or replicated weights",
                        layout.sp, layout.weights.text())};
  }
  if (!asked.copies_weights || !std::ranges::all_of(plan.table.entries, is_own)) return {};
  return {kShiftInvalid,
          fmt::format("--shift-weights copy where all steps take the layout's own mode, {}; "
                      "expected steps in another one, or views",
                      FormatMode(layout.degrees()))};
}

}  // namespace

std::string FormatMode(const Degrees& mode) { return fmt::format("{}x{}", mode.sp, mode.tp); }

std::vector<Degrees> ModesOf(const Degrees& layout, bool ends) {
  std::vector<Degrees> modes;
  for (int tp = layout.tp; tp <= layout.ranks(); tp += layout.tp) {
    if (layout.ranks() % tp != 0) continue;
    if (ends && tp != layout.tp && tp != layout.ranks()) continue;
    modes.push_back({layout.ranks() / tp, tp});
  }
  return modes;
}

std::vector<model::ModeRows> ShiftPlan::ModesInUse(int64_t max_rows) const {
  std::vector<model::ModeRows> used;
  for (const ShiftEntry& entry : table.entries) {
    const Degrees mode{entry.sp, entry.tp};
    const int64_t rows = table.flip_every != 0 ? max_rows : std::min(max_rows, entry.most_rows);
    const auto same = std::ranges::find(used, mode, &model::ModeRows::mode);
    if (same == used.end()) {
      used.push_back({mode, rows});
    } else {
      same->rows = std::max(same->rows, rows);
    }
  }
  return used;
}

schedule::ShiftEntry ShiftEntryOf(const Degrees& mode, int64_t most_rows) {
  return {most_rows, static_cast<uint8_t>(mode.sp), static_cast<uint8_t>(mode.tp)};
}

base::Result<ShiftPlan> AskedShift(const EngineOptions& options, const Layout& layout) {
  const ShiftOptions& asked = options.shift;
  FB_RETURN_IF_ERROR(CheckAsked(options, layout));
  ShiftPlan plan;
  if (layout.sp == 1) return plan;
  const bool views_only = !asked.copies_weights && !layout.pools();
  plan.modes = ModesOf(layout.degrees(), asked.among == ModeChoice::kEnds ||
                                             (asked.among == ModeChoice::kDefault && !views_only));
  plan.table.pooled = layout.pools_along_sp();
  if (options.trial.shift_every != 0) {
    plan.table.flip_every = options.trial.shift_every;
    for (const Degrees& mode : plan.modes)
      plan.table.entries.push_back(ShiftEntryOf(mode, kAnyRows));
  } else if (asked.mode) {
    FB_RETURN_IF_ERROR(CheckMode(*asked.mode, layout, plan));
    plan.table.entries = {ShiftEntryOf(*asked.mode, kAnyRows)};
  } else if (asked.threshold > 0) {
    plan.table.entries = {ShiftEntryOf({1, layout.ranks_per_stage()}, asked.threshold),
                          ShiftEntryOf(layout.degrees(), kAnyRows)};
  }
  return plan;
}

base::Status CheckShift(const EngineOptions& options, const model::ModelConfig& config,
                        const Layout& layout, const ShiftPlan& plan) {
  if (layout.sp == 1) return {};
  FB_RETURN_IF_ERROR(CheckTwoSteps(options, config, layout, plan));
  return CheckCopies(options.shift, layout, plan);
}

}  // namespace forebay::layout

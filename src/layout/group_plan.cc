#include "layout/group_plan.h"

#include <algorithm>
#include <limits>

namespace forebay::layout {
namespace {

std::optional<GroupOptions> NoGroup(std::vector<MemoryRequest>* ranks) {
  for (MemoryRequest& rank : *ranks) {
    for (share::PoolPlan& pool : rank.pool) pool.ship = nullptr;
  }
  return std::nullopt;
}

// Rounds of experts have room for the worst case, all rows at one rank: where their rows are left
// open, as many as are staged in a part of a rank's memory.
constexpr int32_t kMostRoundRows = 8192, kLeastRoundRows = 256;
constexpr uint64_t kStagingParts = 64;

base::Result<std::vector<share::ShipPlan>> PlanRounds(const StepMode& mode, share::ShipOptions ship,
                                                      const MachinePlan& machine,
                                                      const std::vector<share::ShipMember>& stage) {
  const bool open = ship.expert_rows == 0;
  if (open) ship.expert_rows = kMostRoundRows;
  ship.expert_rows = std::min(ship.expert_rows, machine.max_num_batched_tokens);
  for (;; ship.expert_rows /= 2) {
    base::Result<std::vector<share::ShipPlan>> plans = share::PlanShip(mode, ship, stage);
    if (!open || !plans.ok() || plans->front().num_experts == 0) return plans;
    const uint64_t staging = plans->front().rows_bytes + plans->front().sums_bytes;
    if (staging <= machine.budget_bytes / kStagingParts || ship.expert_rows / 2 < kLeastRoundRows)
      return plans;
  }
}

}  // namespace

base::Result<std::optional<GroupOptions>> PlanGroup(const EngineOptions& options,
                                                    const MachinePlan& machine,
                                                    std::vector<MemoryRequest>* ranks) {
  using Planned = std::optional<GroupOptions>;
  GroupOptions group{.num_replicas = static_cast<int>(ranks->front().pool.size()),
                     .together = options.ship.mode.value_or(StepMode{.ffn = FfnMode::kShip}),
                     .by_load = !options.ship.mode,
                     .patience = options.ship.patience,
                     .flip_every = options.trial.flip_every};
  if (group.num_replicas < 2 || !group.together.meets()) return Planned();
  if (options.ship.rounds.reduced_wire && machine.has_data) {
    return base::Status(share::kCannotShip,
                        "--expert-wire reduced: sums of experts that other ranks form have other "
                        "bytes than those of one rank; expected exact, or simulated devices");
  }
  const int tp = ranks->front().cut.tp;
  group.together.tp = static_cast<uint8_t>(tp);
  share::ShipOptions ship = options.ship.rounds;
  ship.rows = std::min({ship.rows, machine.max_num_seqs, machine.max_num_batched_tokens});
  // Layers without experts ship no more rows than one round has.
  const share::PoolPlan& pool = ranks->front().pool.front();
  const bool any = group.together.pulls() || pool.options.layers == 0;
  group.most_rows = any ? machine.max_num_batched_tokens : ship.rows;
  group.threshold = options.ship.threshold;
  for (size_t first = 0; first < ranks->size(); first += static_cast<size_t>(tp)) {
    const std::span<MemoryRequest> stage =
        std::span(*ranks).subspan(first, static_cast<size_t>(tp));
    std::vector<share::ShipMember> members;
    for (const MemoryRequest& rank : stage)
      members.push_back({&rank.pool.front(), rank.decoder.get()});
    base::Result<std::vector<share::ShipPlan>> plans =
        PlanRounds(group.together, ship, machine, members);
    if (!plans.ok() && group.by_load) return NoGroup(ranks);
    if (!plans.ok())
      return plans.status().WithContext(fmt::format("--mode {}", schedule::Name(group.together)));
    for (size_t t = 0; t < stage.size(); ++t) {
      const auto plan = std::make_shared<const share::ShipPlan>(std::move((*plans)[t]));
      for (share::PoolPlan& pool : stage[t].pool) pool.ship = plan;
    }
  }
  return Planned(group);
}

std::optional<int64_t> AskedRoutedRows(const EngineOptions& options,
                                       std::span<const share::PoolPlan> pools) {
  if (pools.size() < 2 || !pools.front().options.experts.pools()) return 0;
  const schedule::WantedMode& mode = options.ship.mode;
  if (mode && mode->ffn == FfnMode::kRouted) return std::numeric_limits<int64_t>::max();
  if (options.ship.routed_threshold > 0) return options.ship.routed_threshold;
  return mode ? std::optional<int64_t>(0) : std::nullopt;
}

}  // namespace forebay::layout

#include "engine/group_plan.h"

#include <algorithm>

namespace forebay::engine {
namespace {

// Where no profile says what a step and a copy take.
constexpr double kDefaultThreshold = 16;
// Positions before a row in the step from which the threshold is computed.
constexpr int64_t kTypicalContext = 1024;

base::Result<GroupMode> ParseMode(const std::string& mode) {
  if (mode == "auto") return GroupMode::kAuto;
  if (mode == "pull") return GroupMode::kPull;
  if (mode == "ship" || mode == "gather") return GroupMode::kShip;
  return base::Status(base::kInvalidArgument, fmt::format("--mode \"{}\" is unknown; expected auto, pull, ship or gather", mode));
}

std::optional<GroupOptions> NoGroup(std::vector<MemoryRequest>* ranks) {
  for (MemoryRequest& rank : *ranks) {
    for (model::PoolPlan& pool : rank.pool) pool.ship = nullptr;
  }
  return std::nullopt;
}

}  // namespace

base::Result<std::optional<GroupOptions>> PlanGroup(const EngineOptions& options, const MachinePlan& machine,
                                                    const StepPricer* pricer, std::vector<MemoryRequest>* ranks) {
  using Planned = std::optional<GroupOptions>;
  GroupOptions group{.num_ranks = static_cast<int>(ranks->front().pool.size()), .patience = options.ship_patience,
                     .flip_every = options.ship_flip_every};
  FB_ASSIGN_OR_RETURN(group.mode, ParseMode(options.mode));
  if (group.num_ranks < 2 || group.mode == GroupMode::kPull) return Planned();
  model::ShipOptions ship = options.ship;
  ship.gather = ship.gather || options.mode == "gather";
  ship.rows = std::min({ship.rows, machine.max_num_seqs, machine.max_num_batched_tokens});
  group.most_rows = ship.gather ? machine.max_num_batched_tokens : ship.rows;
  group.threshold = options.ship_threshold;
  const int tp = ranks->front().cut.tp;
  for (size_t first = 0; first < ranks->size(); first += static_cast<size_t>(tp)) {
    const std::span<MemoryRequest> stage = std::span(*ranks).subspan(first, static_cast<size_t>(tp));
    std::vector<model::ShipMember> members;
    for (const MemoryRequest& rank : stage) members.push_back({&rank.pool.front(), rank.decoder.get()});
    base::Result<std::vector<model::ShipPlan>> plans = model::PlanShip(ship, members);
    if (!plans.ok() && group.mode == GroupMode::kAuto) return NoGroup(ranks);
    if (!plans.ok()) return plans.status();
    if (options.ship_threshold <= 0) {
      const double rows = pricer ? ShipThreshold(*pricer, stage[0].pool.front(), plans->front(), kTypicalContext) : kDefaultThreshold;
      // Where most rounds could not ship, meeting for them would only cost.
      group.threshold = std::max(group.threshold, std::min<double>(rows, group.most_rows));
    }
    for (size_t t = 0; t < stage.size(); ++t) {
      const auto plan = std::make_shared<const model::ShipPlan>(std::move((*plans)[t]));
      for (model::PoolPlan& pool : stage[t].pool) pool.ship = plan;
    }
  }
  return Planned(group);
}

}  // namespace forebay::engine

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

}  // namespace

base::Result<std::optional<GroupOptions>> PlanGroup(const EngineOptions& options, const MachinePlan& machine,
                                                    const model::ModelConfig& config, tensor::DType dtype,
                                                    std::vector<MemoryRequest>* ranks) {
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
  std::vector<std::shared_ptr<const model::ShipPlan>> plans;
  for (const MemoryRequest& rank : *ranks) {
    const model::DecoderPlan decoder = model::PlanDecoder(config, dtype, 1, rank.cut);
    base::Result<model::ShipPlan> plan = model::PlanShip(ship, rank.pool.front(), decoder);
    if (!plan.ok() && group.mode == GroupMode::kAuto) return Planned();
    if (!plan.ok()) return plan.status();
    plans.push_back(std::make_shared<const model::ShipPlan>(*std::move(plan)));
    if (options.ship_threshold > 0) continue;
    const double rows = machine.spec.simulated ? model::ShipThreshold(*plans.back(), rank.pool.front(), decoder, machine.profile,
                                                                      kTypicalContext)
                                               : kDefaultThreshold;
    // Where most rounds could not ship, meeting for them would only cost.
    group.threshold = std::max(group.threshold, std::min<double>(rows, group.most_rows));
  }
  for (size_t rank = 0; rank < ranks->size(); ++rank) {
    for (model::PoolPlan& pool : (*ranks)[rank].pool) pool.ship = plans[rank];
  }
  return Planned(group);
}

}  // namespace forebay::engine

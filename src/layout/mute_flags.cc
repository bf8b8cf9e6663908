#include "layout/mute_flags.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace forebay::layout {
namespace {

// What ranks of one role share, and how they reach it.
struct Role {
  Layout layout;
  schedule::WantedMode mode;

  bool shares() const { return layout.pools() && layout.pool_ranks() > 1; }
  bool shares_experts() const { return shares() && layout.pools_experts(); }
  // Ranks that cut rows pull, whatever the load is.
  bool may(FfnMode wanted) const {
    return shares() && layout.sp == 1 && (!mode || mode->ffn == wanted);
  }
};

// What a flag is about.
struct Subject {
  bool (*is_there)(const Role& role);
  std::string_view missing;
};

constexpr Subject kSharedWeights{
    [](const Role& role) { return role.shares(); },
    "no ranks share weights; expected several ranks, and weights=by_layer, striped or sharded, or "
    "experts=by_expert"};
constexpr Subject kSeveralPeers{
    [](const Role& role) {
      const bool whole = role.layout.weights.kind == &weights::kByLayer;
      return role.shares() && role.layout.pool_ranks() > 2 &&
             (role.layout.pools_experts() || !whole);
    },
    "each pull comes from one peer; expected more than two ranks, and weights=striped or sharded, "
    "or experts=by_expert"};
constexpr Subject kSharedExperts{
    [](const Role& role) { return role.shares_experts(); },
    "no ranks share experts; expected several ranks, and experts=by_expert"};
constexpr Subject kShippedExperts{
    [](const Role& role) { return role.shares_experts() && role.may(FfnMode::kShip); },
    "no rows are shipped to experts; expected several ranks, experts=by_expert, and --mode "
    "auto or ship"};
constexpr Subject kPulledExperts{
    [](const Role& role) { return role.shares_experts() && role.may(FfnMode::kPull); },
    "no experts are pulled for steps of a rank's own; expected several ranks, experts=by_expert, "
    "and --mode auto or pull"};
constexpr Subject kChosenMode{
    [](const Role& role) { return role.may(FfnMode::kShip) && !role.mode; },
    "steps have no choice between pulling and shipping; expected ranks that share weights, sp=1, "
    "and --mode auto"};
constexpr Subject kReplicas{[](const Role& role) { return role.layout.dp > 1; },
                            "no rank has another to take requests from; expected dp of at least 2"};

struct Flag {
  bool given;
  std::string text;
  const Subject& subject;
};

// kRouted has an error of its own, where each role is planned.
bool IsWanted(const schedule::WantedMode& mode) { return mode && mode->ffn != FfnMode::kRouted; }

std::string ModeText(const char* flag, const schedule::WantedMode& mode) {
  return fmt::format("{} {}", flag, schedule::Name(mode));
}

std::vector<Flag> FlagsOf(const EngineOptions& options) {
  const share::PoolOptions& pool = options.pool;
  const share::PoolOptions other{};
  const ModeOptions& ship = options.ship;
  return {
      {IsWanted(ship.mode), ModeText("--mode", ship.mode), kSharedWeights},
      {pool.slots.budget_bytes > 0, "--pool-slots", kSharedWeights},
      {pool.slots.look_ahead_layers > 0, "--pool-look-ahead", kSharedWeights},
      {pool.order != other.order, "--pool-order", kSharedWeights},
      {pool.by_matrix, "--pool-parts", kSharedWeights},
      {pool.stream_per_owner != other.stream_per_owner, "--pool-streams", kSharedWeights},
      {pool.slice_bytes > 0, "--pool-slice", kSharedWeights},
      {pool.peers != other.peers, "--pool-peers", kSeveralPeers},
      {pool.waits_by_part, "--pool-wait", kSharedExperts},
      {pool.merges_experts, "--expert-merge", kSharedExperts},
      {ship.rounds.expert_rows > 0, "--expert-rows", kShippedExperts},
      {!ship.rounds.hides_return, "--expert-overlap", kShippedExperts},
      {ship.rounds.reduced_wire, "--expert-wire", kShippedExperts},
      {ship.threshold > 0, "--ship-threshold", kChosenMode},
      {ship.routed_threshold > 0, "--routed-threshold", kPulledExperts},
      {options.steal == Stealing::kAlways, "--steal always", kReplicas},
  };
}

base::Status Check(const Flag& flag, std::span<const Role> roles) {
  if (!flag.given || std::ranges::any_of(roles, flag.subject.is_there)) return {};
  return {base::kInvalidArgument, fmt::format("{} with {}: {}", flag.text,
                                              FormatLayout(roles[0].layout), flag.subject.missing)};
}

}  // namespace

base::Status CheckMuteFlags(const EngineOptions& options, std::span<const Layout> compared) {
  std::vector<Role> roles;
  for (const Layout& layout : compared) roles.push_back({layout, options.ship.mode});
  if (roles.empty() && options.layout_by_job) return {};
  if (options.roles) {
    const schedule::WantedMode mode = options.roles->generation_mode.value_or(options.ship.mode);
    roles = {{options.roles->context, options.ship.mode}, {options.roles->generation, mode}};
  } else if (roles.empty()) {
    const Layout copies{.dp = options.machine.devices.count};
    roles = {{options.layout.value_or(copies), options.ship.mode}};
  }
  for (const Flag& flag : FlagsOf(options)) FB_RETURN_IF_ERROR(Check(flag, roles));
  if (!options.roles || !options.roles->generation_mode) return {};
  const schedule::WantedMode& mode = *options.roles->generation_mode;
  return Check({IsWanted(mode), ModeText("--generation-mode", mode), kSharedWeights},
               std::span(roles).subspan(1));
}

}  // namespace forebay::layout

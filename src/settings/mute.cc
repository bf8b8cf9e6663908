#include "settings/mute.h"

#include <algorithm>
#include <string>
#include <vector>

#include "settings/table.h"

namespace forebay::settings {
namespace {

bool Shares(const Role& role) { return role.layout.pools() && role.layout.pool_ranks() > 1; }
bool SharesExperts(const Role& role) { return Shares(role) && role.layout.pools_experts(); }
// Ranks that cut rows pull, whatever the load is.
bool May(const Role& role, FfnMode wanted) {
  return Shares(role) && role.layout.sp == 1 && (!role.mode || role.mode->ffn == wanted);
}
// kRouted has an error of its own, where each role is planned.
bool SharesOrRoutes(const Role& role) {
  return Shares(role) || (role.mode && role.mode->ffn == FfnMode::kRouted);
}
bool ShipsExperts(const Role& role) { return SharesExperts(role) && May(role, FfnMode::kShip); }
bool PullsExperts(const Role& role) { return SharesExperts(role) && May(role, FfnMode::kPull); }
bool ChoosesMode(const Role& role) { return May(role, FfnMode::kShip) && !role.mode; }
bool HasReplicas(const Role& role) { return role.layout.dp > 1; }
bool PullsFromSeveral(const Role& role) {
  const bool whole = role.layout.weights.kind == &weights::kByLayer;
  return Shares(role) && role.layout.pool_ranks() > 2 && (role.layout.pools_experts() || !whole);
}

// Is it so in one of the roles?
template <bool (*is_so)(const Role&)>
bool Any(std::span<const Role> roles) {
  return std::ranges::any_of(roles, is_so);
}

// The roles of the job, or a role for each layout that is compared.
std::vector<Role> RolesOf(const layout::EngineOptions& engine,
                          std::span<const layout::Layout> compared) {
  if (engine.roles) {
    return {{engine.roles->context, engine.ship.mode},
            {engine.roles->generation, engine.roles->generation_mode.value_or(engine.ship.mode)}};
  }
  std::vector<Role> roles;
  for (const layout::Layout& layout : compared) roles.push_back({layout, engine.ship.mode});
  const layout::Layout copies{.dp = engine.machine.devices.count};
  if (roles.empty()) roles.push_back({engine.layout.value_or(copies), engine.ship.mode});
  return roles;
}

}  // namespace

const Subject kSharedWeights{
    Any<SharesOrRoutes>,
    "no ranks share weights; expected several ranks, and weights=by_layer, striped or sharded, or "
    "experts=by_expert"};
const Subject kSharedWeightsOfGeneration{
    [](std::span<const Role> roles) { return SharesOrRoutes(roles.back()); },
    kSharedWeights.missing};
const Subject kSeveralPeers{
    Any<PullsFromSeveral>,
    "each pull comes from one peer; expected more than two ranks, and weights=striped or sharded, "
    "or experts=by_expert"};
const Subject kSharedExperts{
    Any<SharesExperts>, "no ranks share experts; expected several ranks, and experts=by_expert"};
const Subject kShippedExperts{
    Any<ShipsExperts>,
    "no rows are shipped to experts; expected several ranks, experts=by_expert, and --mode "
    "auto or ship"};
const Subject kPulledExperts{
    Any<PullsExperts>,
    "no experts are pulled for steps of a rank's own; expected several ranks, experts=by_expert, "
    "and --mode auto or pull"};
const Subject kChosenMode{
    Any<ChoosesMode>,
    "steps have no choice between pulling and shipping; expected ranks that share weights, sp=1, "
    "and --mode auto"};
const Subject kReplicas{Any<HasReplicas>,
                        "no rank has another to take requests from; expected dp of at least 2"};

base::Status CheckMute(const RunOptions& options, std::span<const layout::Layout> compared) {
  const layout::EngineOptions& engine = options.engine;
  if (engine.layout_by_job && engine.machine.devices.count > 1 && !engine.roles && compared.empty())
    return {};
  const std::vector<Role> roles = RolesOf(engine, compared);
  const RunOptions defaults;
  for (const Group& group : Table()) {
    for (const Setting& setting : group.settings) {
      const Mute& mute = setting.mute;
      if (mute.subject == nullptr || mute.subject->is_there(roles)) continue;
      const std::string value = setting.value.print(options);
      if (value == setting.value.print(defaults)) continue;
      if (!mute.value.empty() && value != mute.value) continue;
      const bool names_value =
          !setting.value.allowed.empty() && setting.value.arity != Value::Arity::kSwitch;
      const layout::Layout& shown =
          mute.subject == &kSharedWeightsOfGeneration ? roles.back().layout : roles[0].layout;
      return {base::kInvalidArgument,
              fmt::format("{}{} with {}: {}", setting.name(), names_value ? " " + value : "",
                          layout::FormatLayout(shown), mute.subject->missing)};
    }
  }
  return {};
}

}  // namespace forebay::settings

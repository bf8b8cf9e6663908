// SiDP: what layouts leave to the KV cache, as the engine plans it and its arenas have it.
#include "base/check.h"
#include "engine/layout_plan.h"
#include "engine/open_model.h"
#include "repro/grid.h"
#include "repro/rows.h"

namespace forebay::repro {
namespace {

struct Room {
  double tokens = 0;  // of all replicas; 0: the model does not fit
  double kv_gb = 0;   // of a device
  double weights_gb = 0, slots_gb = 0, workspace_gb = 0;
};

base::Result<Room> RoomOf(const Setting& setting) {
  const engine::EngineOptions options = OptionsOf(setting);
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, engine::OpenModel(options.model, true, 0));
  FB_ASSIGN_OR_RETURN(const engine::LayoutPlan plan, engine::PlanLayout(options, files.config));
  const engine::MemoryPlan& memory = plan.ranks[0].memory;
  Room room{.weights_gb = static_cast<double>(memory.weight_bytes + memory.pool_bytes) * 1e-9,
            .slots_gb = static_cast<double>(memory.slot_bytes) * 1e-9,
            .workspace_gb = static_cast<double>(memory.fixed_bytes() - memory.weight_bytes - memory.pool_bytes - memory.slot_bytes) * 1e-9};
  if (!plan.Fits().ok()) return room;
  room.tokens = static_cast<double>(memory.kv_tokens() * plan.replicas());
  room.kv_gb = static_cast<double>(memory.kv_bytes) * 1e-9;
  return room;
}

Setting Pooled(Setting setting) {
  setting.weights = "by_layer";
  return setting;
}

void AddTerms(const Room& room, const std::array<std::string_view, 4>& names, std::vector<Term>* account) {
  const double values[] = {room.tokens, room.weights_gb, room.slots_gb, room.workspace_gb};
  for (size_t i = 0; i < names.size(); ++i) account->push_back({names[i], values[i]});
}

}  // namespace

Findings KvCapacity(const Claim& claim, Lab&) {
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) {
    const Setting setting = ReadLabel(value.label);
    FB_ASSIGN_OR_RETURN(const Room dp, RoomOf(setting));
    FB_ASSIGN_OR_RETURN(const Room sidp, RoomOf(Pooled(setting)));
    Finding finding{.calibrated = sidp.tokens / dp.tokens};
    AddTerms(dp, {"DP: KV tokens", "weights GB", "slots GB", "workspace GB"}, &finding.account);
    AddTerms(sidp, {"SiDP: KV tokens", "weights GB", "slots GB", "workspace GB"}, &finding.account);
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings LayoutsFit(const Claim& claim, Lab&) {
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) {
    const Setting setting = ReadLabel(value.label);
    FB_ASSIGN_OR_RETURN(const Room room, RoomOf(HasWord(value.label, "SiDP") ? Pooled(setting) : setting));
    findings.push_back({.calibrated = room.tokens});
  }
  return findings;
}

Findings KvByLayout(const Claim& claim, Lab&) {
  std::vector<Finding> findings;
  FB_ASSIGN_OR_RETURN(const Room most, RoomOf(ReadLabel("TP8DP1")));
  for (const ClaimedValue& value : claim.values) {
    FB_ASSIGN_OR_RETURN(const Room room, RoomOf(ReadLabel(value.label)));
    findings.push_back({.calibrated = 100 * room.kv_gb / most.kv_gb,
                        .account = {{"KV GB a device", room.kv_gb}, {"weights GB", room.weights_gb}, {"workspace GB", room.workspace_gb}}});
  }
  return findings;
}

}  // namespace forebay::repro

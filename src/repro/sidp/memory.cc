// SiDP: what layouts leave to the KV cache, as the engine plans it and its arenas have it.
#include "choose/decide.h"
#include "engine/open_model.h"
#include "repro/sidp/rows.h"

namespace forebay::repro {
namespace {

struct Room {
  double tokens = 0;  // all replicas together; 0: the model does not fit
  double kv_gb = 0;   // a device's
  double weights_gb = 0, slots_gb = 0, workspace_gb = 0;
};

base::Result<Room> RoomOf(const GroupSetting& setting) {
  const layout::EngineOptions options = OptionsOf(setting);
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, engine::OpenModel(options.model, true, 0));
  FB_ASSIGN_OR_RETURN(const choose::Decision plan, choose::Decide(options, files.config));
  const layout::MemoryPlan& memory = plan.ranks[0].memory;
  const uint64_t weights = memory.bytes(layout::RegionUse::kWeights) +
                           memory.bytes(layout::RegionUse::kPool),
                 slots = memory.bytes(layout::RegionUse::kSlots);
  Room room{.weights_gb = static_cast<double>(weights) * 1e-9,
            .slots_gb = static_cast<double>(slots) * 1e-9,
            .workspace_gb = static_cast<double>(memory.fixed_bytes() - weights - slots) * 1e-9};
  if (!plan.Fits().ok()) return room;
  room.tokens = static_cast<double>(memory.kv_tokens() * plan.replicas());
  room.kv_gb = static_cast<double>(memory.bytes(layout::RegionUse::kKv)) * 1e-9;
  return room;
}

Account TermsOf(const Room& room) {
  return {{"KV tokens", room.tokens},
          {"weights GB", room.weights_gb},
          {"slots GB", room.slots_gb},
          {"workspace GB", room.workspace_gb}};
}

}  // namespace

FindingOr KvCapacity(const GroupSetting& key, double, Lab&) {
  GroupSetting pooled = key;
  pooled.weights = kByLayer;
  FB_ASSIGN_OR_RETURN(const Room dp, RoomOf(key));
  FB_ASSIGN_OR_RETURN(const Room sidp, RoomOf(pooled));
  Finding finding{.calibrated = sidp.tokens / dp.tokens};
  Append("DP: ", TermsOf(dp), &finding.account);
  Append("SiDP: ", TermsOf(sidp), &finding.account);
  return finding;
}

FindingOr KvTokens(const GroupSetting& key, double, Lab&) {
  FB_ASSIGN_OR_RETURN(const Room room, RoomOf(key));
  return Finding{.calibrated = room.tokens};
}

FindingOr KvMillions(const GroupSetting& key, double, Lab&) {
  FB_ASSIGN_OR_RETURN(const Room room, RoomOf(key));
  return Finding{.calibrated = 1e-6 * room.tokens, .account = TermsOf(room)};
}

FindingOr KvByLayout(const GroupSetting& key, double, Lab&) {
  GroupSetting whole = key;
  whole.tp = key.devices;
  FB_ASSIGN_OR_RETURN(const Room most, RoomOf(whole));
  FB_ASSIGN_OR_RETURN(const Room room, RoomOf(key));
  return Finding{.calibrated = 100 * room.kv_gb / most.kv_gb,
                 .account = {{"KV GB a device", room.kv_gb},
                             {"weights GB", room.weights_gb},
                             {"workspace GB", room.workspace_gb}}};
}

}  // namespace forebay::repro

#include "choose/printed_plan.h"

#include "choose/layout_search.h"

namespace forebay::choose {
namespace {

base::Status CheckPrinted(const layout::EngineOptions& options) {
  const bool simulated = layout::RequireSimulated(options.machine.devices).ok();
  const char* const found = options.roles ? "groups with roles"
                            : options.tier.in_memory() || options.tier.in_file()
                                ? "memory below the device"
                            : !simulated                         ? "real devices"
                            : options.machine.devices.count != 1 ? "several devices"
                                                                 : nullptr;
  if (found == nullptr) return {};
  return {kNotOfAMachine,
          fmt::format("--scheduling-policy {} with {}: it takes what choices generate to need no "
                      "memory, and copies no time; expected one simulated device alone",
                      options.policy->name, found)};
}

}  // namespace

base::Result<Decision> DecideFreeGrowth(const layout::EngineOptions& options,
                                        const model::ModelConfig& config) {
  FB_RETURN_IF_ERROR(CheckPrinted(options));
  FB_ASSIGN_OR_RETURN(const Decision real, DecideLayout(options, config));
  if (!real.Fits().ok()) return real;
  const layout::MemoryPlan& memory = real.ranks[0].memory;
  const uint64_t block = real.KvBlockBytes(options.digest),
                 blocks = static_cast<uint64_t>(real.machine.max_num_seqs) *
                          static_cast<uint64_t>(memory.max_blocks_per_sequence);
  layout::EngineOptions asked = options;
  asked.machine.memory_per_rank_bytes = 0;
  asked.machine.memory_bytes =
      real.machine.budget_bytes + (blocks - static_cast<uint64_t>(memory.num_blocks)) * block;
  asked.limits.max_model_len = memory.max_model_len;
  asked.limits.kv_blocks = 0;
  asked.job = nullptr;  // A forecast knows nothing of this.
  FB_ASSIGN_OR_RETURN(Decision plan, DecideLayout(asked, config));
  plan.prompt_blocks = memory.num_blocks;
  return plan;
}

}  // namespace forebay::choose

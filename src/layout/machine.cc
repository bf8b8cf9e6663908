#include "layout/machine.h"

#include <algorithm>

#include "base/units.h"
#include "layout/platform.h"
#include "model/activations.h"
#include "model/kv_groups.h"

namespace forebay::layout {
namespace {

uint64_t ScratchBytes(const model::ModelConfig& config, tensor::DType dtype,
                      const kernels::KernelSet& kernels) {
  const auto heads = static_cast<int32_t>(config.num_heads);
  uint64_t attention = 0;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const kernels::KvLayout layout = model::KvLayoutOf(config, dtype, config.HeadsOf(layer));
    attention = std::max(attention, kernels.attention_scratch(layout, heads));
  }
  if (config.expands_prompts()) {
    attention = std::max(
        attention, kernels.attention_scratch(model::ExpandedLayoutOf(config, dtype, heads), heads));
  }
  uint64_t bytes = base::kMiB + attention;
  bytes = std::max(bytes, model::GroupedScratch(config, dtype));
  return base::RoundUp(bytes, base::kMiB);
}

// The ranks of a CPU and the tier below them share the same memory.
base::Status CheckTierMemory(const EngineOptions& options, uint64_t free) {
  const int ranks = options.machine.devices.count;
  const uint64_t tier = options.tier.memory_bytes(ranks),
                 given = GivenBytes(options.machine) * static_cast<uint64_t>(ranks);
  if (tier == 0 || (tier < free && given <= free - tier)) return base::Status::Ok();
  return base::Status(
      options.tier.in_memory() ? kOffloadingSize : kKvFileSize,
      fmt::format("{} take {} of the host's memory, which with {} of --memory are more than the {} "
                  "that the machine has free, less a margin",
                  options.tier.size_flag(), base::FormatBytes(tier), base::FormatBytes(given),
                  base::FormatBytes(free)));
}

}  // namespace

uint64_t GivenBytes(const MachineOptions& options) {
  return options.memory_per_rank_bytes
             ? options.memory_per_rank_bytes
             : options.memory_bytes / static_cast<uint64_t>(options.devices.count);
}

base::Status PlanCores(const EngineOptions& options, int cores, uint64_t free, MachinePlan* plan) {
  FB_RETURN_IF_ERROR(CheckTierMemory(options, free));
  const MachineOptions& machine = options.machine;
  const int ranks = plan->spec.count;
  plan->workers = std::max(1, (machine.threads ? machine.threads : cores) / ranks);
  const uint64_t given = GivenBytes(machine);
  plan->budget_bytes =
      given ? given : (free - options.tier.memory_bytes(ranks)) / static_cast<uint64_t>(ranks);
  plan->device_bytes = plan->scratch_bytes * static_cast<uint64_t>(plan->workers) + 2 * base::kMiB;
  plan->max_num_seqs = 256;
  plan->max_num_batched_tokens = 512;
  return {};
}

base::Result<MachinePlan> PlanMachine(const EngineOptions& options,
                                      const model::ModelConfig& config,
                                      const kernels::KernelSet& kernels) {
  MachinePlan plan{.spec = options.machine.devices};
  plan.scratch_bytes = ScratchBytes(config, options.machine.dtype, kernels);
  FB_RETURN_IF_ERROR(plan.spec.platform->Plan(options, kernels, &plan));
  const schedule::StepPreset preset = options.policy->make()->preset();
  if (preset.max_num_seqs > 0) plan.max_num_seqs = preset.max_num_seqs;
  if (preset.max_num_batched_tokens > 0)
    plan.max_num_batched_tokens = preset.max_num_batched_tokens;
  const LimitOptions& limits = options.limits;
  if (limits.max_num_seqs > 0) plan.max_num_seqs = limits.max_num_seqs;
  if (limits.max_num_batched_tokens > 0)
    plan.max_num_batched_tokens = limits.max_num_batched_tokens;
  if (config.both_ways && limits.max_model_len > plan.max_num_batched_tokens) {
    return base::Status(
        kMaxModelLen,
        fmt::format("--max-model-len {} is more than the {} rows of a step "
                    "(--max-num-batched-tokens), and {} reads a text in one step; expected at most "
                    "that many",
                    limits.max_model_len, plan.max_num_batched_tokens, config.architecture));
  }
  return plan;
}

}  // namespace forebay::layout

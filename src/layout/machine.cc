#include "layout/machine.h"

#include <algorithm>

#include "base/units.h"
#include "model/activations.h"
#include "model/kv_groups.h"

namespace forebay::layout {
namespace {

constexpr uint64_t kLargeGpu = 70 * base::kGiB;
// Links of simulated devices are shared evenly however copies are cut, and each slice is an event.
constexpr uint64_t kSlice = base::kMiB, kSimulatedSlice = 64 * base::kMiB;
// Left to the machine when the budget is not given: a tenth, at least this.
constexpr uint64_t kLeastMargin = 512 * base::kMiB;

// The built-in profile nearest to this CPU: rates follow from its vector instructions first.
const char* NearestCpuProfile(const kernels::KernelSet& kernels) {
  constexpr std::string_view kZen5 = "(family 26,";
  if (std::string_view(kernels.name).starts_with("amx")) return "emerald-rapids-amx";
  return runtime::CpuName().find(kZen5) != std::string::npos ? "zen5" : "zen4";
}

base::Result<cost::DeviceProfile> ProfileOf(const MachineOptions& machine,
                                            const kernels::KernelSet& kernels) {
  const std::string& given = machine.device_profile;
  if (machine.devices.simulated) {
    if (given.empty()) return cost::LoadProfile(machine.devices.name);
    return base::Status(
        base::kInvalidArgument,
        fmt::format("--device-profile {}: simulated devices name their own; expected --devices "
                    "sim:{}x{}",
                    given, machine.devices.count, given));
  }
  FB_ASSIGN_OR_RETURN(cost::DeviceProfile profile,
                      cost::LoadProfile(given.empty() ? NearestCpuProfile(kernels) : given));
  if (profile.kind == cost::DeviceKind::kCpu) return profile;
  return base::Status(base::kInvalidArgument,
                      fmt::format("--device-profile {}: {} is a GPU; expected a profile of kind "
                                  "cpu, as forebay profile writes it",
                                  given, profile.name));
}

uint64_t FreeMemory(const runtime::Topology& topology) {
  const uint64_t margin = std::max(kLeastMargin, topology.available_memory / 10);
  return topology.available_memory > margin ? topology.available_memory - margin : 0;
}

uint64_t ScratchBytes(const model::ModelConfig& config, tensor::DType dtype,
                      const kernels::KernelSet& kernels) {
  const auto heads = static_cast<int32_t>(config.num_heads);
  uint64_t attention =
      kernels.attention_scratch(model::KvLayoutOf(config, dtype, config.num_kv_heads), heads);
  if (config.expands_prompts()) {
    attention = std::max(
        attention, kernels.attention_scratch(model::ExpandedLayoutOf(config, dtype, heads), heads));
  }
  uint64_t bytes = base::kMiB + attention;
  bytes = std::max(bytes, model::GroupedScratch(config, dtype));
  return base::RoundUp(bytes, base::kMiB);
}

// What the user gave to a rank; 0: nothing was said.
uint64_t GivenBytes(const MachineOptions& options, int ranks) {
  return options.memory_per_rank_bytes ? options.memory_per_rank_bytes
                                       : options.memory_bytes / static_cast<uint64_t>(ranks);
}

// A CPU's ranks, real or simulated, share cores and memory evenly.
void PlanCpu(const MachineOptions& options, int cores, uint64_t memory, MachinePlan* plan) {
  const int ranks = plan->spec.count;
  plan->workers = std::max(1, (options.threads ? options.threads : cores) / ranks);
  const uint64_t given = GivenBytes(options, ranks);
  plan->budget_bytes = given ? given : memory / static_cast<uint64_t>(ranks);
  plan->device_bytes = plan->scratch_bytes * static_cast<uint64_t>(plan->workers) + 2 * base::kMiB;
  plan->max_num_seqs = 256;
  plan->max_num_batched_tokens = 512;
}

// The ranks of a CPU and the tier below them share the same memory.
base::Status CheckTierMemory(const EngineOptions& options, uint64_t free) {
  const int ranks = options.machine.devices.count;
  const uint64_t tier = options.tier.memory_bytes(ranks),
                 given = GivenBytes(options.machine, ranks) * static_cast<uint64_t>(ranks);
  if (tier == 0 || (tier < free && given <= free - tier)) return base::Status::Ok();
  return base::Status(
      options.tier.in_memory() ? kOffloadingSize : kKvFileSize,
      fmt::format("{} take {} of the host's memory, which with {} of --memory are more than the {} "
                  "that the machine has free, less a margin",
                  options.tier.size_flag(), base::FormatBytes(tier), base::FormatBytes(given),
                  base::FormatBytes(free)));
}

void PlanGpu(const MachineOptions& options, MachinePlan* plan) {
  const cost::DeviceProfile& profile = plan->profile;
  const auto memory = static_cast<uint64_t>(profile.memory_bytes);
  const uint64_t given = GivenBytes(options, plan->spec.count);
  plan->budget_bytes =
      given ? given : static_cast<uint64_t>(profile.memory_bytes * options.memory_utilization);
  plan->device_bytes = base::RoundUp(static_cast<uint64_t>(profile.runtime_bytes), 4 * base::kKiB);
  plan->max_num_seqs = memory >= kLargeGpu ? 1024 : 256;
  plan->max_num_batched_tokens = memory >= kLargeGpu ? 16384 : 8192;
}

}  // namespace

base::Result<MachinePlan> PlanMachine(const EngineOptions& options,
                                      const model::ModelConfig& config,
                                      const kernels::KernelSet& kernels) {
  const MachineOptions& machine = options.machine;
  MachinePlan plan{.spec = machine.devices};
  plan.scratch_bytes = ScratchBytes(config, machine.dtype, kernels);
  const bool simulated = plan.spec.simulated;
  const uint64_t tier = options.tier.memory_bytes(plan.spec.count);
  FB_ASSIGN_OR_RETURN(plan.profile, ProfileOf(machine, kernels));
  plan.prices_modes = simulated || !machine.device_profile.empty();
  plan.has_data = !simulated;
  plan.slice_bytes = simulated ? kSimulatedSlice : kSlice;
  if (!simulated) {
    if (machine.memory_utilization != MachineOptions().memory_utilization) {
      return base::Status(
          base::kInvalidArgument,
          fmt::format("--gpu-memory-utilization {} is for simulated devices; expected --memory or "
                      "--memory-per-rank",
                      machine.memory_utilization));
    }
    plan.topology = runtime::ReadTopology();
    const uint64_t free = FreeMemory(plan.topology);
    FB_RETURN_IF_ERROR(CheckTierMemory(options, free));
    PlanCpu(machine, plan.topology.usable_cores, free - tier, &plan);
    plan.stable_bytes =
        GivenBytes(machine, plan.spec.count)
            ? 0
            : plan.topology.total_memory / 2 / static_cast<uint64_t>(plan.spec.count);
  } else if (plan.profile.kind == cost::DeviceKind::kCpu) {
    const auto memory =
        static_cast<uint64_t>(plan.profile.memory_bytes * machine.memory_utilization);
    FB_RETURN_IF_ERROR(CheckTierMemory(options, memory));
    PlanCpu(machine, static_cast<int>(plan.profile.cores), memory - tier, &plan);
  } else {
    PlanGpu(machine, &plan);
  }
  const schedule::StepPreset preset = options.policy->make()->preset();
  if (preset.max_num_seqs > 0) plan.max_num_seqs = preset.max_num_seqs;
  if (preset.max_num_batched_tokens > 0)
    plan.max_num_batched_tokens = preset.max_num_batched_tokens;
  const LimitOptions& limits = options.limits;
  if (limits.max_num_seqs > 0) plan.max_num_seqs = limits.max_num_seqs;
  if (limits.max_num_batched_tokens > 0)
    plan.max_num_batched_tokens = limits.max_num_batched_tokens;
  return plan;
}

}  // namespace forebay::layout

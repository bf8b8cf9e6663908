#include "engine/compose.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "device/sim/sim_device.h"
#include "engine/layout_plan.h"
#include "engine/steal_price.h"
#include "fabric/sim/sim_fabric.h"
#include "kernels/kernel_set.h"

namespace forebay::engine {
namespace {

std::vector<int32_t> EndTokens(const ModelFiles& files) {
  std::vector<int32_t> ids = files.config.eos_token_ids;
  ids.insert(ids.end(), files.generation.eos_token_ids.begin(), files.generation.eos_token_ids.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string NumericsClass(const kernels::KernelSet& kernels, tensor::DType dtype) {
  if (dtype == tensor::DType::kF32) return "pair-f32-kvf32";
  return fmt::format("{}-bf16-kvbf16", kernels.numerics_class);
}

Membership MembershipOf(const LayoutPlan& plan, int rank, fabric::Fabric* fabric) {
  const Layout& layout = plan.layout;
  Membership membership{.cut = CutOf(layout, rank),
                        .fabric = fabric,
                        .tensor = TpRanks(layout, rank),
                        .stages = StageRanks(layout, rank)};
  if (!layout.pools()) return membership;
  membership.pool = &plan.ranks[rank % layout.ranks_per_replica()].request.pool[PlaceOf(layout, rank).replica];
  membership.pool_peers = PoolRanks(layout, rank);
  membership.ship_members = ShipRanks(layout, rank);
  return membership;
}

// Sums over all ranks of the job.
void AddMemory(const LayoutPlan& plan, ModelFacts* facts) {
  const auto replicas = static_cast<uint64_t>(plan.replicas());
  facts->max_model_len = static_cast<int32_t>(plan.ranks[0].memory.max_model_len);
  facts->kv_capacity_tokens = plan.ranks[0].memory.kv_tokens() * plan.replicas();
  for (const auto& [request, memory] : plan.ranks) {
    const uint64_t weights = memory.weight_bytes + memory.pool_bytes;
    facts->weight_bytes += weights * replicas;
    facts->kv_bytes += memory.kv_bytes * replicas;
    facts->workspace_bytes += (memory.fixed_bytes() - weights) * replicas;
  }
}

}  // namespace

base::Result<std::unique_ptr<LocalEngine>> CreateEngine(runtime::Runtime& runtime, const EngineOptions& options,
                                                        const ModelFiles& files, const text::Tokenizer* tokenizer) {
  const model::ModelConfig& config = files.config;
  FB_ASSIGN_OR_RETURN(const LayoutPlan layout_plan, PlanLayout(options, config));
  const Layout& layout = layout_plan.layout;
  const MachinePlan& machine_plan = layout_plan.machine;
  const bool simulated = machine_plan.spec.simulated;
  if (simulated && options.digest) {
    return base::Status(base::kInvalidArgument, fmt::format("--digest: the devices {} have no data to digest", options.devices));
  }
  FB_RETURN_IF_ERROR(layout_plan.Fits());
  if (layout_plan.choice) base::Log(base::LogLevel::kInfo, FormatChoice(layout_plan));
  const kernels::KernelSet* const kernels = layout_plan.kernels;

  EngineParts parts{.replicas_per_group = layout.dp, .group = layout_plan.group, .isa = simulated ? options.devices : kernels->name};
  parts.pool_layers = layout.pool_layers.value_or(0);
  // Ranks that share weights, or meet in a step.
  parts.replicas_per_fate = layout.pools() || layout.ranks_per_replica() > 1 ? layout.dp : 1;
  parts.most_ahead = static_cast<size_t>(layout_plan.replicas()) * static_cast<size_t>(machine_plan.max_num_seqs);
  FB_ASSIGN_OR_RETURN(const std::optional<schedule::StealPrices> steal_prices, PriceStealing(options, config, layout_plan));
  parts.steal = steal_prices.has_value();
  FB_ASSIGN_OR_RETURN(Machine machine, BuildMachine(machine_plan, options, layout.ranks_per_group(), runtime));
  parts.sim = std::move(machine.sim);
  const weights::TensorReader* reader = simulated ? nullptr : files.reader.get();
  for (int group = 0; group < layout.groups && layout.ranks_per_group() > 1; ++group) {
    auto fabrics = simulated ? fabric::CreateSimFabric(*parts.sim, layout.ranks_per_group())
                             : fabric::CreateLocalFabric(runtime, layout.ranks_per_group());
    for (auto& fabric : fabrics) {
      if (static_cast<int>(parts.fabrics.size()) == options.fault.rank) {
        auto dead = simulated ? device::CreateSimCounter(*parts.sim) : device::CreateCpuCounter(runtime, "a planted fault");
        fabric = fabric::PlantFault(std::move(fabric), std::move(dead), options.fault);
      }
      parts.fabrics.push_back(std::move(fabric));
    }
  }
  std::vector<int32_t> kv_windows;
  for (const model::KvGroup& group : layout_plan.ranks[0].memory.kv_groups) kv_windows.push_back(group.spec.window);
  std::vector<std::unique_ptr<Rank>> ranks;
  for (size_t i = 0; i < machine.devices.size(); ++i) {
    fabric::Fabric* const fabric = parts.fabrics.empty() ? nullptr : parts.fabrics[i].get();
    const Membership membership = MembershipOf(layout_plan, static_cast<int>(i) % layout.ranks_per_group(), fabric);
    const MemoryPlan& plan = layout_plan.ranks[ranks.size()].memory;
    FB_ASSIGN_OR_RETURN(auto rank, Rank::Create(std::move(machine.devices[i]), config, plan, machine_plan.max_num_seqs,
                                                options.digest, *kernels, reader, machine_plan.workers, membership));
    if (!simulated && options.touch_kv_bytes > 0) rank->TouchKv(options.touch_kv_bytes, machine_plan.workers);
    ranks.push_back(std::move(rank));
    if (ranks.size() < layout_plan.ranks.size()) continue;
    FB_ASSIGN_OR_RETURN(auto policy, schedule::CreatePolicy(options.policy));
    const ReplicaOptions replica_options{
        .index = static_cast<int>(parts.replicas.size()),
        .limits = {.max_num_seqs = machine_plan.max_num_seqs, .max_num_batched_tokens = machine_plan.max_num_batched_tokens,
                   .block_tokens = kernels::kBlockTokens, .total_blocks = plan.num_blocks},
        .seed = options.seed,
        .prefix_caching = options.prefix_caching,
        .max_blocks_per_sequence = plan.max_blocks_per_sequence,
        .steps_in_flight = layout_plan.steps_in_flight,
        .kv_windows = kv_windows,
        .steal = steal_prices.value_or(schedule::StealPrices{}),
        .stall_timeout = static_cast<runtime::TimeNs>(options.stall_seconds * 1e9)};
    parts.replicas.push_back(std::make_unique<Replica>(runtime, std::exchange(ranks, {}), std::move(policy), replica_options));
  }
  for (const auto& replica : parts.replicas) {
    for (const auto& rank : replica->ranks()) FB_RETURN_IF_ERROR(rank->Connect());
  }

  parts.facts = {.name = files.name,
                 .vocab_size = static_cast<int32_t>(config.vocab_size),
                 .numerics_class = simulated ? "simulated" : NumericsClass(*kernels, layout_plan.dtype),
                 .model_fingerprint = files.fingerprint,
                 .random_weights = files.random_weights};
  AddMemory(layout_plan, &parts.facts);
  parts.context = {tokenizer, EndTokens(files), parts.facts.max_model_len};
  return std::make_unique<LocalEngine>(runtime, std::move(parts));
}

}  // namespace forebay::engine

#include "engine/compose.h"

#include <algorithm>

#include "engine/layout_plan.h"
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
  const char* name = dtype == tensor::DType::kBF16 ? "bf16" : "f32";
  return fmt::format("{}-{}-kv{}", kernels.numerics_class, name, name);
}

}  // namespace

base::Result<std::unique_ptr<LocalEngine>> CreateEngine(runtime::Runtime& runtime, const EngineOptions& options,
                                                        const ModelFiles& files, const text::Tokenizer* tokenizer) {
  const model::ModelConfig& config = files.config;
  FB_ASSIGN_OR_RETURN(const LayoutPlan layout_plan, PlanLayout(options, config));
  const Layout& layout = layout_plan.layout;
  if (layout.tp > 1 || layout.pp > 1 || layout.groups > 1) {
    return base::Status(kLayoutInvalid, fmt::format("--layout {}: groups, tp and pp above 1 do not run yet", options.layout));
  }
  const MachinePlan& machine_plan = layout_plan.machine;
  const bool simulated = machine_plan.spec.simulated;
  if (simulated && options.digest) {
    return base::Status(base::kInvalidArgument, fmt::format("--digest: the devices {} have no data to digest", options.devices));
  }
  FB_RETURN_IF_ERROR(layout_plan.Fits());
  const MemoryPlan& plan = layout_plan.memory;
  const kernels::KernelSet* const kernels = layout_plan.kernels;

  EngineParts parts{.isa = simulated ? options.devices : kernels->name};
  FB_ASSIGN_OR_RETURN(Machine machine, BuildMachine(machine_plan, options, runtime));
  parts.sim = std::move(machine.sim);
  const weights::TensorReader* reader = simulated ? nullptr : files.reader.get();
  const int ranks = static_cast<int>(machine.devices.size());
  if (layout.pools()) {
    parts.fabrics = simulated ? fabric::CreateSimFabric(*parts.sim, ranks) : fabric::CreateLocalFabric(runtime, ranks);
  }
  for (auto& device : machine.devices) {
    const int rank_index = static_cast<int>(parts.replicas.size());
    PoolMembership membership;
    if (layout.pools()) membership = {&layout_plan.pools[rank_index], parts.fabrics[rank_index].get(), PoolRanks(layout, rank_index)};
    FB_ASSIGN_OR_RETURN(auto policy, schedule::CreatePolicy(options.policy));
    FB_ASSIGN_OR_RETURN(auto rank, Rank::Create(std::move(device), config, plan, machine_plan.max_num_seqs, options.digest,
                                                *kernels, reader, machine_plan.workers, membership));
    const ReplicaOptions replica_options{
        .index = rank_index,
        .limits = {.max_num_seqs = machine_plan.max_num_seqs, .max_num_batched_tokens = machine_plan.max_num_batched_tokens,
                   .block_tokens = kernels::kBlockTokens, .total_blocks = plan.num_blocks},
        .seed = options.seed,
        .prefix_caching = options.prefix_caching,
        .max_blocks_per_sequence = plan.max_blocks_per_sequence,
        .stall_timeout = static_cast<runtime::TimeNs>(options.stall_seconds * 1e9)};
    parts.replicas.push_back(std::make_unique<Replica>(runtime, std::move(rank), std::move(policy), replica_options));
  }

  for (const auto& replica : parts.replicas) FB_RETURN_IF_ERROR(replica->rank().ConnectPool());

  parts.facts = {.name = files.name,
                 .vocab_size = static_cast<int32_t>(config.vocab_size),
                 .max_model_len = static_cast<int32_t>(plan.max_model_len),
                 .numerics_class = simulated ? "simulated" : NumericsClass(*kernels, layout_plan.dtype),
                 .model_fingerprint = files.fingerprint,
                 .random_weights = files.random_weights,
                 .kv_capacity_tokens = plan.kv_tokens() * ranks,
                 .weight_bytes = (plan.weight_bytes + plan.pool_bytes) * static_cast<uint64_t>(ranks),
                 .kv_bytes = plan.kv_bytes * static_cast<uint64_t>(ranks),
                 .workspace_bytes = (plan.fixed_bytes() - plan.weight_bytes - plan.pool_bytes) * static_cast<uint64_t>(ranks)};
  parts.context = {tokenizer, EndTokens(files), plan.max_model_len};
  return std::make_unique<LocalEngine>(runtime, std::move(parts));
}

}  // namespace forebay::engine

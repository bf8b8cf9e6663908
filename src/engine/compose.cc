#include "engine/compose.h"

#include <algorithm>

#include "engine/layout.h"
#include "engine/machine.h"
#include "fabric/sim/sim_fabric.h"
#include "kernels/kernel_set.h"

namespace forebay::engine {
namespace {

base::Result<tensor::DType> ComputeType(const std::string& dtype) {
  if (dtype == "auto" || dtype == "bfloat16") return tensor::DType::kBF16;
  if (dtype == "float32") return tensor::DType::kF32;
  if (dtype == "float16" || dtype == "half") {
    return base::Status(base::kInvalidArgument,
                        "--dtype float16 is not supported: its range is too small for the residual streams of the models "
                        "served here, and no kernel of this device computes in it; use bfloat16 or float32");
  }
  return base::Status(base::kInvalidArgument,
                      fmt::format("--dtype \"{}\" is unknown; expected auto, bfloat16 or float32", dtype));
}

base::Status CheckOptions(const EngineOptions& options) {
  const auto at_least = [](const char* flag, int64_t value, int64_t least) {
    if (value >= least) return base::Status::Ok();
    return base::Status(base::kInvalidArgument, fmt::format("{} is {}; expected at least {}", flag, value, least));
  };
  FB_RETURN_IF_ERROR(at_least("--max-num-seqs", options.max_num_seqs, 0));
  FB_RETURN_IF_ERROR(at_least("--max-num-batched-tokens", options.max_num_batched_tokens, 0));
  FB_RETURN_IF_ERROR(at_least("--max-model-len", options.max_model_len, 0));
  FB_RETURN_IF_ERROR(at_least("--num-kv-blocks-override", options.kv_blocks, 0));
  FB_RETURN_IF_ERROR(at_least("--threads", options.threads, 0));
  if (options.memory_utilization > 0 && options.memory_utilization <= 1) return base::Status::Ok();
  return base::Status(base::kInvalidArgument, fmt::format("--gpu-memory-utilization is {}; expected more than 0 and at most 1",
                                                          options.memory_utilization));
}

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

// Every device a replica, where nothing else is asked for.
base::Result<Layout> ChooseLayout(const EngineOptions& options, const model::ModelConfig& config, int num_devices) {
  if (options.layout.empty()) return Layout{.dp = num_devices};
  FB_ASSIGN_OR_RETURN(const Layout layout, ParseLayout(options.layout));
  FB_RETURN_IF_ERROR(ValidateLayout(layout, config, num_devices));
  if (layout.tp == 1 && layout.pp == 1 && layout.groups == 1) return layout;
  return base::Status(kLayoutInvalid, fmt::format("--layout {}: groups, tp and pp above 1 do not run yet", options.layout));
}

// Links of simulated devices are shared evenly however copies are cut, and each slice is an event.
constexpr uint64_t kSlice = base::kMiB, kSimulatedSlice = 64 * base::kMiB;

model::PoolOptions PoolOptionsOf(const EngineOptions& options, const Layout& layout, const model::ModelConfig& config,
                                 bool simulated) {
  model::PoolOptions pool = options.pool;
  pool.placement = layout.weights;
  pool.layers = layout.pool_layers.value_or(config.num_layers);
  pool.attention = layout.pool_attention;
  if (pool.slice_bytes == 0) pool.slice_bytes = simulated ? kSimulatedSlice : kSlice;
  return pool;
}

}  // namespace

base::Result<std::unique_ptr<LocalEngine>> CreateEngine(runtime::Runtime& runtime, const EngineOptions& options,
                                                        const ModelFiles& files, const text::Tokenizer* tokenizer) {
  FB_RETURN_IF_ERROR(CheckOptions(options));
  FB_ASSIGN_OR_RETURN(const tensor::DType dtype, ComputeType(options.dtype));
  FB_ASSIGN_OR_RETURN(const kernels::KernelSet* kernels, kernels::ChooseKernels(options.isa));
  const model::ModelConfig& config = files.config;
  if (options.max_model_len > config.max_position_embeddings) {
    return base::Status(kMaxModelLen, fmt::format("--max-model-len {} is more than the {} positions of the model (config.json, "
                                                  "max_position_embeddings)",
                                                  options.max_model_len, config.max_position_embeddings));
  }
  FB_ASSIGN_OR_RETURN(const MachinePlan machine_plan, PlanMachine(options, config, dtype, *kernels));
  const bool simulated = machine_plan.spec.simulated;
  FB_ASSIGN_OR_RETURN(const Layout layout, ChooseLayout(options, config, machine_plan.spec.count));
  std::vector<model::PoolPlan> pool;
  if (layout.pools()) {
    const model::PoolOptions pool_options = PoolOptionsOf(options, layout, config, simulated);
    FB_ASSIGN_OR_RETURN(pool, model::PlanPools(pool_options, layout.dp, model::PlanDecoder(config, dtype, 1)));
  }
  if (simulated && options.digest) {
    return base::Status(base::kInvalidArgument, fmt::format("--digest: the devices {} have no data to digest", options.devices));
  }
  const MemoryRequest request{.budget_bytes = machine_plan.budget_bytes,
                              .device_bytes = machine_plan.device_bytes,
                              .max_model_len = options.max_model_len,
                              .stable_bytes = machine_plan.stable_bytes,
                              .max_num_seqs = machine_plan.max_num_seqs,
                              .max_num_batched_tokens = machine_plan.max_num_batched_tokens,
                              .max_kv_blocks = options.kv_blocks,
                              .digest = options.digest,
                              .pool = pool};
  FB_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(config, dtype, request));

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
    if (layout.pools()) membership = {&pool[rank_index], parts.fabrics[rank_index].get(), PoolRanks(layout, rank_index)};
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
                 .numerics_class = simulated ? "simulated" : NumericsClass(*kernels, dtype),
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

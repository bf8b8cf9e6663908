#include "engine/compose.h"

#include <algorithm>

#include "kernels/kernel_set.h"
#include "runtime/real/real_runtime.h"
#include "runtime/topology.h"

namespace forebay::engine {
namespace {

// Left to the machine when the budget is not given: a tenth, at least this.
constexpr uint64_t kLeastMargin = 512 * base::kMiB;

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
  FB_RETURN_IF_ERROR(at_least("--max-num-seqs", options.max_num_seqs, 1));
  FB_RETURN_IF_ERROR(at_least("--max-num-batched-tokens", options.max_num_batched_tokens, 1));
  FB_RETURN_IF_ERROR(at_least("--max-model-len", options.max_model_len, 0));
  FB_RETURN_IF_ERROR(at_least("--num-kv-blocks-override", options.kv_blocks, 0));
  return at_least("--threads", options.threads, 0);
}

uint64_t DefaultBudget(const runtime::Topology& topology) {
  const uint64_t margin = std::max(kLeastMargin, topology.available_memory / 10);
  return topology.available_memory > margin ? topology.available_memory - margin : 0;
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

}  // namespace

base::Result<std::unique_ptr<LocalEngine>> CreateEngine(const EngineOptions& options, const ModelFiles& files,
                                                        const text::Tokenizer* tokenizer) {
  FB_RETURN_IF_ERROR(CheckOptions(options));
  FB_ASSIGN_OR_RETURN(const tensor::DType dtype, ComputeType(options.dtype));
  FB_ASSIGN_OR_RETURN(const kernels::KernelSet* kernels, kernels::ChooseKernels(options.isa));
  FB_ASSIGN_OR_RETURN(auto policy, schedule::CreatePolicy(options.policy));
  const model::ModelConfig& config = files.config;
  if (options.max_model_len > config.max_position_embeddings) {
    return base::Status(kMaxModelLen, fmt::format("--max-model-len {} is more than the {} positions of the model (config.json, "
                                                  "max_position_embeddings)",
                                                  options.max_model_len, config.max_position_embeddings));
  }

  const runtime::Topology topology = runtime::ReadTopology();
  device::CpuDeviceOptions device_options;
  device_options.num_workers = options.threads ? options.threads : topology.usable_cores;
  if (device_options.num_workers <= static_cast<int>(topology.cores.size())) device_options.cores = topology.cores;
  device_options.cores.resize(std::min<size_t>(device_options.cores.size(), device_options.num_workers));
  device_options.memory_bytes = options.memory_bytes ? options.memory_bytes : DefaultBudget(topology);
  device_options.profile = options.profile;
  const kernels::KvLayout shape{dtype, static_cast<int32_t>(config.num_kv_heads), static_cast<int32_t>(config.head_dim), 0};
  device_options.scratch_bytes =
      base::RoundUp(base::kMiB + kernels->attention_scratch(shape, static_cast<int32_t>(config.num_heads)), base::kMiB);

  MemoryRequest request{.budget_bytes = device_options.memory_bytes,
                        .device_bytes = device_options.scratch_bytes * device_options.num_workers + 2 * base::kMiB,
                        .max_model_len = options.max_model_len,
                        .stable_bytes = options.memory_bytes ? 0 : topology.total_memory / 2,
                        .max_num_seqs = options.max_num_seqs,
                        .max_num_batched_tokens = options.max_num_batched_tokens,
                        .max_kv_blocks = options.kv_blocks,
                        .digest = options.digest};
  FB_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(config, dtype, request));

  std::unique_ptr<runtime::Runtime> runtime = runtime::CreateRealRuntime();
  FB_ASSIGN_OR_RETURN(auto device, device::CreateCpuDevice(*runtime, device_options));
  FB_ASSIGN_OR_RETURN(auto rank, Rank::Create(std::move(device), config, plan, options.max_num_seqs, options.digest, *kernels,
                                              *files.reader, device_options.num_workers));
  ReplicaOptions replica_options{
      .limits = {.max_num_seqs = options.max_num_seqs, .max_num_batched_tokens = options.max_num_batched_tokens,
                 .block_tokens = kernels::kBlockTokens, .total_blocks = plan.num_blocks},
      .seed = options.seed,
      .prefix_caching = options.prefix_caching,
      .max_blocks_per_sequence = plan.max_blocks_per_sequence,
      .stall_timeout = static_cast<runtime::TimeNs>(options.stall_seconds * 1e9)};
  auto replica = std::make_unique<Replica>(*runtime, std::move(rank), std::move(policy), replica_options);

  ModelFacts facts{.name = files.name,
                   .vocab_size = static_cast<int32_t>(config.vocab_size),
                   .max_model_len = static_cast<int32_t>(plan.max_model_len),
                   .numerics_class = NumericsClass(*kernels, dtype),
                   .model_fingerprint = files.fingerprint,
                   .random_weights = files.random_weights,
                   .kv_capacity_tokens = plan.kv_tokens(),
                   .weight_bytes = plan.weight_bytes,
                   .kv_bytes = plan.kv_bytes,
                   .workspace_bytes = plan.workspace_bytes};
  SequenceContext context{tokenizer, EndTokens(files), plan.max_model_len};
  return std::make_unique<LocalEngine>(std::move(runtime), std::move(replica), std::move(facts), std::move(context), *kernels);
}

}  // namespace forebay::engine

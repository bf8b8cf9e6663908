#include "engine/memory_plan.h"

#include <algorithm>
#include <bit>

#include "model/ship_plan.h"

namespace forebay::engine {
namespace {

// Logits of this many bytes at most are held at once; the head runs over the wanted rows in parts.
constexpr uint64_t kLogitsBytes = 64 * base::kMiB;
// An arena counts its regions in whole pages.
constexpr uint64_t kRegionRounding = 4 * base::kKiB;

base::Status TooSmall(const MemoryPlan& plan, const MemoryRequest& request, uint64_t least_kv) {
  const uint64_t needed = request.device_bytes + plan.fixed_bytes() + least_kv;
  return base::Status(
      kMemoryTooSmall,
      fmt::format("the model does not fit in a rank's memory of {}: weights {}, weight slots {}, workspace of a step {}, device "
                  "{}, and at least {} of KV cache make {}, {} too much; give more memory, more ranks that share the weights, "
                  "a smaller --max-model-len or --max-num-batched-tokens",
                  base::FormatBytes(request.budget_bytes), base::FormatBytes(plan.weight_bytes + plan.pool_bytes),
                  base::FormatBytes(plan.slot_bytes),
                  base::FormatBytes(plan.fixed_bytes() - plan.weight_bytes - plan.pool_bytes - plan.slot_bytes),
                  base::FormatBytes(request.device_bytes), base::FormatBytes(least_kv), base::FormatBytes(needed),
                  base::FormatBytes(needed - request.budget_bytes)));
}

// Arrays of StepBatch: of each step in flight, and of the slots.
uint64_t StepBatchBytes(const MemoryRequest& request, const MemoryPlan& plan) {
  const auto rows = static_cast<uint64_t>(request.max_num_batched_tokens), seqs = static_cast<uint64_t>(request.max_num_seqs);
  const auto array = [](uint64_t count, uint64_t size) { return base::RoundUp(count * size, 64); };
  const uint64_t step = 4 * array(rows, sizeof(int32_t)) + array(rows, sizeof(uint64_t)) + array(rows, sizeof(int32_t)) +
                        array(seqs, sizeof(kernels::SequenceRows));
  const uint64_t table = array(seqs * static_cast<uint64_t>(plan.max_blocks_per_sequence), sizeof(uint32_t));
  return static_cast<uint64_t>(request.steps_in_flight) * step + array(seqs, sizeof(int32_t)) + plan.kv_groups.size() * table;
}

// Fills everything but the KV cache for one max_model_len.
MemoryPlan WithoutKv(const model::ModelConfig& config, tensor::DType dtype, const MemoryRequest& request,
                     int64_t max_model_len) {
  MemoryPlan plan;
  plan.max_model_len = max_model_len;
  plan.capacity = {request.max_num_batched_tokens, LogitRows(config, request.max_num_batched_tokens)};
  plan.max_blocks_per_sequence = static_cast<int32_t>(base::CeilDiv(max_model_len, kernels::kBlockTokens));
  const model::Shard shard = model::ShardOf(config, request.cut);
  plan.dtype = dtype;
  plan.kv_groups = model::PlanKvGroups(config, dtype, shard.layers, shard.kv_heads.size());
  const auto decoder = request.decoder ? request.decoder
                                       : std::make_shared<const model::DecoderPlan>(model::PlanDecoder(config, dtype, 1, request.cut));
  for (const model::PoolPlan& pool : request.pool) {
    plan.pool_bytes = std::max(plan.pool_bytes, base::RoundUp(pool.pool_bytes, kRegionRounding));
    plan.slot_bytes = std::max(plan.slot_bytes, base::RoundUp(pool.slots_bytes(), kRegionRounding));
    plan.pool_table_bytes = std::max(plan.pool_table_bytes, base::RoundUp(pool.table_bytes, kRegionRounding));
  }
  if (const model::ShipPlan* ship = request.pool.empty() ? nullptr : request.pool[0].ship.get()) {
    plan.ship_rows_bytes = base::RoundUp(ship->rows_bytes, kRegionRounding);
    plan.ship_sums_bytes = base::RoundUp(ship->sums_bytes, kRegionRounding);
    plan.capacity.gathered_rows = ship->max_planes > 0 ? ship->gathered_rows() : 0;
    plan.capacity.returned_rows = int64_t{ship->options.rows} * ship->total_planes;
  }
  const uint64_t pooled = request.pool.empty() ? 0 : model::PooledBytes(request.pool[0], *decoder);
  plan.weight_bytes = base::RoundUp(decoder->bytes(max_model_len) - pooled, kRegionRounding);
  plan.table_bytes = base::RoundUp(decoder->table_bytes(), kRegionRounding);
  plan.workspace_bytes = base::RoundUp(model::ActivationBytes(config, dtype, plan.capacity, request.cut), kRegionRounding);
  plan.tensor_staging_bytes = base::RoundUp(model::TensorStagingBytes(config, plan.capacity, request.cut), kRegionRounding);
  plan.stage_staging_bytes = base::RoundUp(model::StageStagingBytes(config, dtype, plan.capacity, request.cut), kRegionRounding);
  plan.steps_in_flight = request.steps_in_flight;
  plan.batch_bytes = base::RoundUp(StepBatchBytes(request, plan), kRegionRounding);
  return plan;
}

void SetBlocks(const MemoryRequest& request, int32_t num_blocks, MemoryPlan* plan) {
  plan->num_blocks = num_blocks;
  plan->kv_bytes = base::RoundUp(static_cast<uint64_t>(num_blocks) * model::KvBlockBytes(plan->kv_groups, request.digest) + 64, kRegionRounding);
}

// Gives the rest of the budget to the KV cache, but no more than all sequences at full length can use.
void GiveRestToKv(const MemoryRequest& request, MemoryPlan* plan) {
  const uint64_t fixed = request.device_bytes + plan->fixed_bytes() + kRegionRounding;
  const uint64_t rest = request.budget_bytes > fixed ? request.budget_bytes - fixed : 0;
  auto useful = static_cast<uint64_t>(request.max_num_seqs) * plan->max_blocks_per_sequence;
  if (request.max_kv_blocks > 0) useful = std::min<uint64_t>(useful, request.max_kv_blocks);
  SetBlocks(request, static_cast<int32_t>(std::min({rest / model::KvBlockBytes(plan->kv_groups, request.digest), useful, uint64_t{0x7FFFFFFF}})), plan);
}

}  // namespace

int64_t LogitRows(const model::ModelConfig& config, int64_t max_num_batched_tokens) {
  const auto row_bytes = static_cast<uint64_t>(config.vocab_size) * sizeof(float);
  const auto fitting = static_cast<int64_t>(std::max<uint64_t>(1, kLogitsBytes / row_bytes));
  return std::min({fitting, int64_t{256}, max_num_batched_tokens});
}

namespace {

// The longest of the model's length and the powers of two below it that a budget of stable_bytes holds; at least a block.
int64_t ChooseLength(const model::ModelConfig& config, tensor::DType dtype, const MemoryRequest& request) {
  MemoryRequest stable = request;
  if (request.stable_bytes != 0) stable.budget_bytes = request.stable_bytes;
  int64_t length = config.max_position_embeddings;
  while (length > kernels::kBlockTokens) {
    MemoryPlan plan = WithoutKv(config, dtype, stable, length);
    GiveRestToKv(stable, &plan);
    if (plan.kv_tokens() >= length) break;
    length = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(length - 1)));
  }
  return length;
}

}  // namespace

MemoryPlan DivideMemory(const model::ModelConfig& config, tensor::DType dtype, const MemoryRequest& request) {
  const int64_t length = request.max_model_len ? request.max_model_len : ChooseLength(config, dtype, request);
  MemoryPlan plan = WithoutKv(config, dtype, request, length);
  GiveRestToKv(request, &plan);
  return plan;
}

uint64_t LeastBytes(const MemoryPlan& plan, const MemoryRequest& request) {
  return request.device_bytes + plan.fixed_bytes() + 2 * kRegionRounding +
         static_cast<uint64_t>(plan.max_blocks_per_sequence) * model::KvBlockBytes(plan.kv_groups, request.digest);
}

base::Status CheckFits(const MemoryPlan& plan, const MemoryRequest& request) {
  const int64_t length = plan.max_model_len;
  if (plan.kv_tokens() >= length) return base::Status::Ok();
  const uint64_t block_bytes = model::KvBlockBytes(plan.kv_groups, false);
  if (plan.num_blocks == 0) return TooSmall(plan, request, block_bytes);
  return base::Status(
      kMemoryTooSmall,
      fmt::format("--max-model-len {} needs {} of KV cache for one sequence, but --memory {} leaves {} ({} tokens); "
                  "give more memory or at most --max-model-len {}",
                  length, base::FormatBytes(static_cast<uint64_t>(plan.max_blocks_per_sequence) * block_bytes),
                  base::FormatBytes(request.budget_bytes), base::FormatBytes(plan.kv_bytes), plan.kv_tokens(),
                  plan.kv_tokens()));
}

base::Result<MemoryPlan> PlanMemory(const model::ModelConfig& config, tensor::DType dtype, const MemoryRequest& request) {
  MemoryPlan plan = DivideMemory(config, dtype, request);
  FB_RETURN_IF_ERROR(CheckFits(plan, request));
  return plan;
}

std::vector<MemoryPlan> DivideReplicaMemory(const model::ModelConfig& config, tensor::DType dtype,
                                            const std::vector<MemoryRequest>& requests) {
  int64_t length = requests[0].max_model_len;
  if (length == 0) {
    length = config.max_position_embeddings;
    for (const MemoryRequest& request : requests) length = std::min(length, ChooseLength(config, dtype, request));
  }
  std::vector<MemoryPlan> plans;
  int32_t blocks = INT32_MAX;
  for (MemoryRequest request : requests) {
    request.max_model_len = length;
    plans.push_back(DivideMemory(config, dtype, request));
    blocks = std::min(blocks, plans.back().num_blocks);
  }
  for (size_t i = 0; i < plans.size(); ++i) SetBlocks(requests[i], blocks, &plans[i]);
  return plans;
}

}  // namespace forebay::engine

// Divides the budget: weights first, then what a step needs, the rest is KV cache. Pure.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "model/decoder.h"
#include "model/pool_plan.h"

namespace forebay::engine {

inline constexpr base::ErrorCode kMemoryTooSmall{"memory_too_small"};
inline constexpr base::ErrorCode kMaxModelLen{"max_model_len_invalid"};

struct MemoryRequest {
  uint64_t budget_bytes = 0;
  uint64_t device_bytes = 0;           // what the device itself takes from the budget (workers' scratch)
  int64_t max_model_len = 0;           // 0: choose
  uint64_t stable_bytes = 0;           // the budget that the choice assumes: what is free changes from run to run
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  int32_t max_kv_blocks = 0;           // 0: no limit of its own
  int32_t steps_in_flight = 1;
  bool digest = false;
  model::ReplicaCut cut;               // the rank's place in its replica
  std::shared_ptr<const model::DecoderPlan> decoder;  // of `cut`; null: it is planned here
  std::vector<model::PoolPlan> pool;   // of the ranks that share weights; the plan is that of the one that needs most
};

struct MemoryPlan {
  int64_t max_model_len = 0;
  model::StepCapacity capacity;
  tensor::DType dtype = tensor::DType::kBF16;
  std::vector<model::KvGroup> kv_groups;
  int32_t num_blocks = 0;              // of each group
  int32_t max_blocks_per_sequence = 0;
  uint64_t weight_bytes = 0;           // of the rank alone
  uint64_t pool_bytes = 0;             // its share of the weights that are pooled
  uint64_t slot_bytes = 0;             // what it pulls lies here
  uint64_t ship_rows_bytes = 0, ship_sums_bytes = 0;  // what ranks leave for each other in steps that ship
  uint64_t pool_table_bytes = 0;       // where pooled tiles lie in each phase; control memory
  uint64_t workspace_bytes = 0;        // activations
  uint64_t tensor_staging_bytes = 0;   // what the ranks of a replica exchange goes through these
  uint64_t stage_staging_bytes = 0;
  uint64_t table_bytes = 0;            // where tiles lie; control memory, as the next
  uint64_t batch_bytes = 0;            // StepBatch, one a step in flight
  int32_t steps_in_flight = 1;
  uint64_t kv_bytes = 0;               // blocks, digests

  // All but the KV cache.
  uint64_t fixed_bytes() const {
    return weight_bytes + pool_bytes + slot_bytes + ship_rows_bytes + ship_sums_bytes + pool_table_bytes + workspace_bytes + tensor_staging_bytes +
           stage_staging_bytes + table_bytes + batch_bytes;
  }
  int64_t kv_tokens() const { return static_cast<int64_t>(num_blocks) * kernels::kBlockTokens; }
};

// Rows of logits that are held at once.
int64_t LogitRows(const model::ModelConfig& config, int64_t max_num_batched_tokens);

// A max_model_len of 0 becomes the model's; where a budget of stable_bytes gives a smaller cache, the largest power of two
// that this one holds. The length is part of every answer, so it must not depend on the memory that happens to be free.
MemoryPlan DivideMemory(const model::ModelConfig& config, tensor::DType dtype, const MemoryRequest& request);
// The budget with which one sequence of full length fits.
uint64_t LeastBytes(const MemoryPlan& plan, const MemoryRequest& request);
// Whether the plan holds one sequence of full length: kMemoryTooSmall says which part is how large and what would fit.
base::Status CheckFits(const MemoryPlan& plan, const MemoryRequest& request);
// Both.
base::Result<MemoryPlan> PlanMemory(const model::ModelConfig& config, tensor::DType dtype, const MemoryRequest& request);

// The plans of a replica's ranks, whose requests differ in cut and pool: they share one KV book, so all have the length and
// the blocks of the one that has fewest.
std::vector<MemoryPlan> DivideReplicaMemory(const model::ModelConfig& config, tensor::DType dtype,
                                            const std::vector<MemoryRequest>& requests);

}  // namespace forebay::engine

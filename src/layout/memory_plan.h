// Divides the budget: weights first, then what a step needs, the rest is KV cache. Pure. What there
// is to divide stands in one table, region_table.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "kv/state/layer_states.h"
#include "kv/tier/store.h"
#include "layout/region.h"
#include "layout/step_arrays.h"
#include "model/decoder.h"
#include "share/pool_plan.h"

namespace forebay::layout {

inline constexpr base::ErrorCode kMemoryTooSmall{"memory_too_small"};
inline constexpr base::ErrorCode kMaxModelLen{"max_model_len_invalid"};
inline constexpr base::ErrorCode kQuantization{"quantization_unsupported"};
inline constexpr base::ErrorCode kKvCacheDtype{"kv_cache_dtype_unsupported"};

struct MemoryRequest {
  uint64_t budget_bytes = 0;
  // what the device itself takes from the budget (workers' scratch)
  uint64_t device_bytes = 0;
  int64_t max_model_len = 0;  // 0: choose
  // the budget that the choice assumes: what is free changes from run to run
  uint64_t stable_bytes = 0;
  int32_t max_num_seqs = 0;
  int32_t max_num_batched_tokens = 0;
  int32_t max_kv_blocks = 0;  // 0: no limit of its own
  int64_t state_every = 0;    // states are kept for prefixes so often; 0: none are
  int32_t steps_in_flight = 1;
  // For KV below the device, beside the budget: memory of the host, a file, and memory of the host
  // through which the file's blocks pass.
  uint64_t host_bytes = 0, file_bytes = 0, staging_bytes = 0;
  // Blocks of running choices that may lie there, at most; 0: nothing is streamed.
  int32_t streamed_blocks = 0;
  bool digest = false;
  bool draws = false;  // the kernel set has draw_rows
  bool record_routing = false;
  std::vector<model::ModeRows> modes;                 // as in model::StepCapacity
  model::ReplicaCut cut;                              // the rank's place in its replica
  std::shared_ptr<const model::DecoderPlan> decoder;  // the plan of `cut`; null: it is planned here
  // Plans of the modes beside the layout's own, whose weights are views.
  std::vector<std::shared_ptr<const model::DecoderPlan>> views;
  bool copies_views = false;  // They are loaded once more instead.
  // One for each rank that shares weights; the plan is that of the one that needs most.
  std::vector<share::PoolPlan> pool;
};

struct MemoryPlan {
  int64_t max_model_len = 0;
  model::StepCapacity capacity;
  tensor::DType dtype = tensor::DType::kBF16;
  std::shared_ptr<const model::DecoderPlan> decoder;  // Of the rank, without what it pools.
  std::vector<std::shared_ptr<const model::DecoderPlan>> views;  // Of its further modes.
  bool copies_views = false;
  std::vector<kv::KvGroup> kv_groups;
  std::vector<kv::StateSpec> states;  // By layer of the rank; empty: none keeps one.
  int32_t kept_states = 0;            // places for them beside those of running choices
  int32_t state_blocks = 0;           // blocks below that those of a choice take, on each rank
  int32_t num_blocks = 0;             // blocks of each group, or its most
  int32_t max_blocks_per_sequence = 0;
  kv::TierBlocks tier_blocks;   // blocks of every group that lie below the device
  uint64_t tier_bytes = 0;      // taken from the host's memory
  uint64_t file_bytes = 0;      // taken from the file
  int32_t streamed_blocks = 0;  // those below that running choices may read by a window
  StepShape step_shape;
  int32_t steps_in_flight = 1;
  // What the rank allocates, in this order: layout/region_table.cc.
  std::vector<Region> regions;

  uint64_t bytes(RegionUse use) const;
  uint64_t weight_bytes() const;  // Its own, those of further modes, and its share of the pool.
  uint64_t fixed_bytes() const;   // All but the KV cache.
  uint64_t kept_state_bytes() const {
    return static_cast<uint64_t>(kept_states) * kv::PlaceBytes(states);
  }
  // Bytes of a block below the device, which has KV or a part of a choice's states: in memory, and
  // in a file.
  uint64_t block_bytes_below(bool digest) const;
  uint64_t block_bytes_in_file(bool digest) const;
  // What running choices hold at most.
  int64_t kv_tokens() const {
    return (static_cast<int64_t>(num_blocks) + streamed_blocks) * kernels::kBlockTokens;
  }
};

// Bytes of the window for each block that is streamed.
uint64_t WindowPlaceBytes(const MemoryPlan& plan);
// Slots of experts that all layers of the stage have in a step.
int64_t ChosenElements(const MemoryPlan& plan);

// Rows of logits that are held at once.
int64_t LogitRows(const model::ModelConfig& config, int64_t max_num_batched_tokens);

// A max_model_len of 0 becomes the model's; where a budget of stable_bytes gives a smaller cache,
// the largest power of two that this one holds. The length is part of every answer, so it must not
// depend on the memory that happens to be free.
MemoryPlan DivideMemory(const model::ModelConfig& config, tensor::DType dtype,
                        const MemoryRequest& request);
// The budget with which one sequence of full length fits.
uint64_t LeastBytes(const MemoryPlan& plan, const MemoryRequest& request);
// Why layers cannot be read one by one from below the device; empty: they can.
std::string LayersCannotStream(const MemoryPlan& plan);
// Whether the plan holds one sequence of full length: kMemoryTooSmall says which part is how large
// and what would fit.
base::Status CheckFits(const MemoryPlan& plan, const MemoryRequest& request);
// Both.
base::Result<MemoryPlan> PlanMemory(const model::ModelConfig& config, tensor::DType dtype,
                                    const MemoryRequest& request);

// Lowers max_num_seqs of a replica's requests to the choices that the KV caches hold at once if
// each holds `held` tokens, and a few more, where more choices then run at once: layers with
// windows take less, and those that see all get more blocks. max_model_len is chosen for what the
// requests were: it must not depend on the job.
void FitPlaces(const model::ModelConfig& config, tensor::DType dtype, double held,
               std::vector<MemoryRequest>* requests);

// The plans of a replica's ranks, whose requests differ in cut and pool: they share one KV book, so
// all have the length, the blocks and the kept states of the one that has fewest.
std::vector<MemoryPlan> DivideReplicaMemory(const model::ModelConfig& config, tensor::DType dtype,
                                            const std::vector<MemoryRequest>& requests);

}  // namespace forebay::layout

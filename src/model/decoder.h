// The layer program of a dense decoder, in named steps. Everything is enqueued on the rank's compute stream; nothing here
// waits, allocates or looks at data. With tp or pp each rank of the replica runs it over its shard; together their bytes are
// those of one rank.
#pragma once

#include "device/device.h"
#include "fabric/collectives.h"
#include "kernels/kernel_set.h"
#include "model/decoder_weights.h"
#include "model/kv_groups.h"
#include "model/step_key.h"
#include "model/weight_pool.h"

namespace forebay::model {

class ShippedFfn;

// Largest step that the buffers hold.
struct StepCapacity {
  int64_t rows = 0;         // max_num_batched_tokens
  int64_t logit_rows = 0;   // rows of logits at once
  int64_t gathered_rows = 0, returned_rows = 0;  // of a step that ships: rows of all ranks; own rows x planes of sums
};

// Activations of a step, cut from the workspace region. T is the compute type.
struct Activations {
  std::byte* residual = nullptr;   // [rows, hidden] T
  std::byte* normed = nullptr;     // [rows, hidden] T
  float* qkv = nullptr;            // [rows, (heads + 2 kv_heads) * head_dim]; heads and columns are the shard's
  std::byte* q = nullptr;          // [rows, heads * head_dim] T
  std::byte* attention = nullptr;  // [rows, heads * head_dim] T
  std::byte* gated = nullptr;      // [max(rows, gathered_rows), intermediate] T
  std::byte* linear = nullptr;     // packed inputs of linear layers
  std::byte* head_input = nullptr; // [logit_rows, hidden] T; this and the next on the last stage alone
  float* logits = nullptr;         // [logit_rows, vocab]: all of the vocabulary
  std::byte* gathered = nullptr;   // [gathered_rows, hidden] T: an owner's input in a step that ships
  float* returned = nullptr;       // [returned_rows, hidden]: the owners' partial sums of this rank's rows
};
uint64_t ActivationBytes(const ModelConfig& config, tensor::DType dtype, const StepCapacity& capacity,
                         const ReplicaCut& cut = {});
Activations CutActivations(const ModelConfig& config, tensor::DType dtype, const StepCapacity& capacity,
                           device::RegionCutter* cutter, const ReplicaCut& cut = {});

// How a rank meets the others of its replica; null where there is nobody to meet.
struct ReplicaLinks {
  fabric::Exchange* tensor = nullptr;         // tp > 1: with the ranks of the stage, in the order of tp_rank
  fabric::Handover* last_stage = nullptr;     // rows come from here, but on the first stage
  fabric::Handover* next_stage = nullptr;     // and go there, but on the last one
};
// Bytes of the region through which the rank's `tensor` exchange goes (0: none), and of that for the next stage.
uint64_t TensorStagingBytes(const ModelConfig& config, const StepCapacity& capacity, const ReplicaCut& cut);
uint64_t StageStagingBytes(const ModelConfig& config, tensor::DType dtype, const StepCapacity& capacity, const ReplicaCut& cut);

struct Decoder {
  const ModelConfig* config = nullptr;
  tensor::DType dtype = tensor::DType::kBF16;
  const kernels::KernelSet* kernels = nullptr;
  device::Stream* stream = nullptr;
  DecoderWeights weights;
  Activations activations;
  KvCache kv;
  StepCapacity capacity;
  WeightPool* pool = nullptr;  // null: all weights are the rank's own
  ShippedFfn* ship = nullptr;  // null: no step ships
  ReplicaLinks links;
  int32_t wire_bytes = 4;  // of an element of a partial sum between ranks: for the price alone

  // Embeds the rows and runs all layers; K and V of every row are in the cache afterwards.
  // `context`: of these rows, for the price alone.
  // In mode kShip the ranks of the pool run the same step; ship->Begin was called. One without rows calls Serve instead.
  void Forward(const kernels::StepBatch& batch, const kernels::ContextSums& context, StepMode mode = StepMode::kLocal) const;
  void Serve() const;
  // Logits of batch.logit_rows[first .. first + count) into activations.logits; on the last stage alone. REQUIRES: count <=
  // capacity.logit_rows.
  void Logits(const kernels::StepBatch& batch, int32_t first, int32_t count) const;

 private:
  // Layers count within the stage, everywhere here.
  int32_t WindowOf(int64_t layer) const;
  // Equal for layers that are equal but for their weights, and for whether some of these are pulled.
  uint16_t KindOf(int64_t layer, StepMode mode) const;
  void AttentionBlock(const kernels::StepBatch& batch, int64_t layer, const kernels::ContextSums& context) const;
  void FeedForwardBlock(const kernels::StepBatch& batch, int64_t layer, StepMode mode) const;
  void Norm(const char* label, const std::byte* x, const float* weight, const int32_t* rows, int32_t num_rows,
            std::byte* out) const;
  // A layer's matrix, from the pool if it is shared.
  void LayerLinear(const char* label, int64_t layer, LayerMatrix matrix, const std::byte* x, std::byte* y, int32_t rows,
                   kernels::LinearOutput output) const;
  void Linear(const char* label, const kernels::PackedWeight& weight, const std::byte* x, std::byte* y, int32_t rows,
              kernels::LinearOutput output) const;
  // residual += x W^T over all ranks' leaves.
  void AddLinear(const char* label, int64_t layer, LayerMatrix matrix, const std::byte* x, int32_t rows) const;
  void RunHead(int32_t count) const;
};

}  // namespace forebay::model

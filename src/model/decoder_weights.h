// The weights of a dense decoder: the declared table (what is loaded, how it is packed, how many bytes) and the loaded form.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/family.h"
#include "model/shard.h"
#include "weights/book/pool_book.h"
#include "weights/loader.h"

namespace forebay::model {

// The matrices of a layer, in the order in which they lie in memory.
enum class LayerMatrix : uint8_t { kQkv, kOutput, kGateUp, kDown };

// The matrix of that name among the members of a layer's plan, or of its weights.
template <typename Layer>
auto& MatrixOf(Layer& layer, LayerMatrix matrix) {
  switch (matrix) {
    case LayerMatrix::kQkv: return layer.qkv;
    case LayerMatrix::kOutput: return layer.output;
    case LayerMatrix::kGateUp: return layer.gate_up;
    default: return layer.down;
  }
}

struct LayerPlan {
  weights::MatrixPlan qkv, output, gate_up, down;
  LayerNames names;
  bool attention_pooled = false;  // qkv and output are shared by the ranks of a pool: not part of bytes()
  bool ffn_pooled = false;        // gate_up and down

  const weights::MatrixPlan& matrix(LayerMatrix matrix) const { return MatrixOf(*this, matrix); }
  bool pooled(LayerMatrix matrix) const { return matrix <= LayerMatrix::kOutput ? attention_pooled : ffn_pooled; }
};

// Everything that is loaded for one rank. Pure: from config, compute type and the rank's place alone.
struct DecoderPlan {
  tensor::DType dtype = tensor::DType::kBF16;
  ModelConfig config;
  Shard shard;
  std::vector<LayerPlan> layers;  // of the rank's stage
  weights::MatrixPlan head;      // of a tied model: packed from the embedding; no rows but on the last stage
  bool embedding_table = false;  // the embedding lies beside the head: on the first stage, where it cannot be gathered from it
  int64_t max_positions = 0;     // rows of the rope tables

  // Bytes of the weight region, alignment included, without what is pooled (with so many rows in the rope tables); and of the
  // control memory that says where all tiles lie.
  uint64_t bytes() const { return bytes(max_positions); }
  uint64_t bytes(int64_t positions) const;
  uint64_t table_bytes() const;
  // Every tensor that the plan reads, with the shape that it must have.
  std::map<std::string, tensor::Shape, std::less<>> TensorShapes() const;
};
DecoderPlan PlanDecoder(const ModelConfig& config, tensor::DType dtype, int64_t max_positions, const ReplicaCut& cut = {});

struct LayerWeights {
  const float* attention_norm = nullptr;  // [hidden]
  const float* ffn_norm = nullptr;        // [hidden]
  const float* q_norm = nullptr;          // [head_dim] or null
  const float* k_norm = nullptr;
  kernels::PackedWeight qkv, output, gate_up, down;  // pooled ones: tiles that the rank does not own are null

  const kernels::PackedWeight& matrix(LayerMatrix matrix) const { return MatrixOf(*this, matrix); }
};

struct DecoderWeights {
  Shard shard;
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;
  kernels::PackedWeight head;            // n = 0: the rank owns no part of it
  const std::byte* embedding = nullptr;  // [vocab, hidden] of T; null: gathered from `head`
  const float* rope_cos = nullptr;       // [max_positions, head_dim / 2]
  const float* rope_sin = nullptr;
};

// Where a rank keeps the tiles that it owns of what is pooled.
struct PoolShare {
  const weights::PoolBook* book = nullptr;  // null: nothing is pooled
  int rank = 0;                             // among the pool's
  const device::Region* region = nullptr;
};

// Cuts `region` (at least plan.bytes()) and `tables` (plan.table_bytes()), and fills them and the rank's share of the pool.
// Without a reader memory is cut and left as it is: for devices of shapes without data. Errors name the tensor.
base::Result<DecoderWeights> LoadDecoder(const DecoderPlan& plan, const weights::TensorReader* reader,
                                         const device::Region& region, const device::Region& tables, const PoolShare& share,
                                         int num_threads);

}  // namespace forebay::model

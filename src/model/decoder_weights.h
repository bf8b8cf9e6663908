// The weights of a decoder: the plan of loading and packing, its bytes, and the loaded form. The
// layers' part is declared by their kinds of blocks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "model/config.h"
#include "model/layer_table.h"
#include "model/shard.h"
#include "weights/loader.h"

namespace forebay::model {

// Everything that is loaded for one rank. Pure: from config, compute type and the rank's place
// alone.
struct DecoderPlan {
  tensor::DType dtype = tensor::DType::kBF16;
  ModelConfig config;
  Shard shard;
  std::vector<LayerPlan> layers;  // layers of the rank's stage
  // A tied model's is packed from the embedding; it has rows on the last stage alone.
  weights::MatrixPlan head;
  // the embedding lies beside the head: on the first stage, where it cannot be gathered from it
  bool embedding_table = false;

  // Bytes of the weight region with so many rows of the rope tables, alignment included, pooled
  // weights not; and of the control memory with the places of all tiles.
  uint64_t bytes(int64_t max_positions) const;
  uint64_t table_bytes() const;
  // Bytes of tiles by their form, pooled or not.
  std::map<kernels::TileForm, uint64_t> BytesByForm() const;
  // Every tensor that the plan reads, with the shape that it must have.
  std::map<std::string, tensor::Shape, std::less<>> TensorShapes() const;
};
DecoderPlan PlanDecoder(const ModelConfig& config, tensor::DType dtype, const ReplicaCut& cut = {});
// As a step in another mode than the layout's own reads it: for views (model/weight_views.h).
DecoderPlan PlanDecoder(const ModelConfig& config, tensor::DType dtype, const ReplicaCut& cut,
                        const Degrees& mode);

// The plans of one model, each made once: those who look for a layout ask for the same again and
// again. Any thread may call it.
class DecoderPlans {
 public:
  // As PlanDecoder. REQUIRES: the model and the compute type are those of all calls.
  std::shared_ptr<const DecoderPlan> Of(const ModelConfig& config, tensor::DType dtype,
                                        const ReplicaCut& cut, const Degrees& mode);

 private:
  std::mutex mutex_;
  std::map<std::pair<ReplicaCut, Degrees>, std::shared_ptr<const DecoderPlan>> plans_;
};
// One of `plans`; null: it is made anew.
std::shared_ptr<const DecoderPlan> DecoderPlanOf(DecoderPlans* plans, const ModelConfig& config,
                                                 tensor::DType dtype, const ReplicaCut& cut,
                                                 const Degrees& mode);

struct DecoderWeights {
  Shard shard;
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;
  const float* final_norm_bias = nullptr;      // null: it has none
  const float* embedding_norm = nullptr;       // null: it has none
  const float* embedding_norm_bias = nullptr;  // likewise
  const std::byte* positions = nullptr;        // [position_rows, hidden] of T; null: none learned
  const std::byte* types = nullptr;            // [token_types, hidden] of T
  const std::byte* layer_inputs = nullptr;     // [vocab, layers, layer_input_size] of T; likewise
  kernels::PackedWeight head;                  // n = 0: the rank owns no part of it
  const std::byte* embedding = nullptr;        // [vocab, hidden] of T; null: gathered from `head`
  const float* rope_cos = nullptr;             // [max_positions, inv_freq]
  const float* rope_sin = nullptr;
  const float* windowed_cos = nullptr;  // of layers with a window; null: theirs are those
  const float* windowed_sin = nullptr;
  const float* q_scale = nullptr;  // [max_positions]; null: no temperature
  // [most experts of a layer + 1]: the extents of the layer that runs (kernels/experts.h)
  int32_t* expert_offsets = nullptr;
};

// Where a rank keeps a run of a pooled matrix; null: another rank has it. Runs are numbered through
// the layer's pooled matrices, as ForEachRun visits them.
using PooledRunAt = std::function<std::byte*(int64_t layer, int64_t run)>;

// Cuts `region` (at least plan.bytes(max_positions)) and `tables` (plan.table_bytes()), and fills
// them and what the rank has of the pooled runs. Without a reader memory is cut and left as it is:
// for devices of shapes without data. `device`: as LoadMatrices'. `pooled_at` is not called where
// nothing is pooled. Errors name the tensor.
base::Result<DecoderWeights> LoadDecoder(const DecoderPlan& plan, int64_t max_positions,
                                         const weights::TensorReader* reader,
                                         const device::Region& region, const device::Region& tables,
                                         const PooledRunAt& pooled_at, int num_threads,
                                         device::Device* device = nullptr);

}  // namespace forebay::model

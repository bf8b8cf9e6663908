// The kinds of blocks that make up layers. A new one is its file in this folder and a row in
// kinds.cc.
#pragma once

#include <string_view>

#include "model/blocks/block.h"
#include "model/family.h"
#include "model/head_map.h"

namespace forebay::model {

// Where a block is planned.
struct LayerSite {
  const ModelConfig& config;
  const LayerNames& names;
  const Shard& shard;
  const HeadMap& heads;  // over the ranks of the stage
  tensor::DType dtype;
  int64_t layer;  // its number in the model

  std::string Label(const Role& role) const {
    return fmt::format("layers.{}.{}", layer, role.name);
  }
  // Adds a norm of `size` elements, as all norms of the model are stored; none without a name.
  void AddNorm(const Role& role, const std::string& name, int64_t size, LayerPlan* plan,
               const weights::HeadOrder& order = {}) const {
    if (name.empty()) return;
    plan->vectors.push_back({.role = role,
                             .tensor = name,
                             .size = size,
                             .exact = config.norm_sums,
                             .plus_one = config.norm_plus_one,
                             .order = order});
  }
  // A block's norms before and after it.
  void AddNorms(const Role& before, const std::string& name, const Role& after,
                const std::string& post_name, LayerPlan* plan) const {
    AddNorm(before, name, config.hidden_size, plan);
    AddNorm(after, post_name, config.hidden_size, plan);
    if (config.norm_biases && !post_name.empty())
      AddNorm(*BiasOfNorm(after), BiasOf(post_name), config.hidden_size, plan);
  }
};

struct BlockWorkspace {
  uint64_t bytes = 0;        // the size of Activations::attention or ::ffn
  int64_t widest_input = 0;  // largest K of its linear layers
  // Of the rank's part of a meeting of those that cut rows.
  uint64_t meeting_bytes = 0;
};

struct AttentionKind {
  std::string_view name;
  // Whether the layer of the model is of this kind; of several that say so, the first row's is.
  bool (*has)(const ModelConfig& config, int64_t layer);
  // Adds its matrices and vectors, as a rank has them.
  void (*plan)(const LayerSite& site, LayerPlan* layer);
  // For steps of `rows` rows, at most those of `capacity`.
  BlockWorkspace (*workspace)(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                              int64_t rows, const StepCapacity& capacity);
  // residual += attention(residual). Afterwards the cache has the K and V that later rows need.
  // `sums`: the contexts of these rows, for the price alone.
  void (*run)(const BlockContext& context, const kernels::StepBatch& batch,
              const kernels::ContextSums& sums, int64_t layer);
};

struct FfnKind {
  std::string_view name;
  bool (*has)(const ModelConfig& config, int64_t layer);
  // As for attention; kFfnNorm is among the vectors.
  void (*plan)(const LayerSite& site, LayerPlan* layer);
  BlockWorkspace (*workspace)(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                              int64_t rows);
  // residual += FFN(residual), with weights that are the rank's own or acquired.
  void (*run)(const BlockContext& context, int64_t layer, int32_t rows);
};

const AttentionKind& AttentionOf(const ModelConfig& config, int64_t layer);
const FfnKind& FfnOf(const ModelConfig& config, int64_t layer);
// The most that any layer of the model needs.
BlockWorkspace AttentionWorkspaceOf(const ModelConfig& config, const Shard& shard,
                                    tensor::DType dtype, int64_t rows,
                                    const StepCapacity& capacity);
BlockWorkspace FfnWorkspaceOf(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                              int64_t rows);

}  // namespace forebay::model

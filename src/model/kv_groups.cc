#include "model/kv_groups.h"

namespace forebay::model {

kernels::KvLayout KvLayoutOf(const ModelConfig& config, tensor::DType dtype, int64_t kv_heads) {
  if (config.mla) {
    return {.dtype = dtype,
            .kv_heads = 1,
            .key_dim = static_cast<int32_t>(config.mla->latent_dim()),
            .value_dim = static_cast<int32_t>(config.mla->kv_lora_rank),
            .values_in_keys = true,
            .stored = config.stored_kv};
  }
  const bool in_chunks = config.packed == kernels::PackedForm::kCuda &&
                         dtype == tensor::DType::kBF16 &&
                         config.head_dim % kernels::kChunkSide == 0;
  return {.dtype = dtype,
          .kv_heads = static_cast<int32_t>(kv_heads),
          .key_dim = static_cast<int32_t>(config.head_dim),
          .value_dim = static_cast<int32_t>(config.head_dim),
          .form = in_chunks ? kernels::PackedForm::kCuda : kernels::PackedForm::kPairs,
          .stored = config.stored_kv};
}

kernels::KvLayout ExpandedLayoutOf(const ModelConfig& config, tensor::DType dtype, int64_t heads) {
  kernels::KvLayout layout{.dtype = dtype,
                           .kv_heads = static_cast<int32_t>(heads),
                           .key_dim = static_cast<int32_t>(config.mla->qk_head_dim()),
                           .value_dim = static_cast<int32_t>(config.mla->v_head_dim),
                           .stored = config.stored_kv};
  layout.block_stride = layout.LayerBytes();
  return layout;
}

std::vector<kv::StateSpec> PlanStates(const ModelConfig& config, const base::Part& layers) {
  std::vector<kv::StateSpec> states;
  if (!config.delta_net) return states;
  const DeltaNetConfig& net = *config.delta_net;
  const kv::StateSpec spec{
      .tail_bytes =
          static_cast<uint64_t>((kernels::kConvTaps - 1) * net.channels()) * sizeof(float),
      .matrix_bytes = static_cast<uint64_t>(net.value_heads * kernels::StateMatrixFloats(
                                                                  net.key_dim, net.value_dim)) *
                      sizeof(float)};
  for (int64_t layer = layers.begin; layer < layers.end; ++layer)
    states.push_back(config.HasState(layer) ? spec : kv::StateSpec{});
  return states;
}

std::vector<kv::KvGroup> PlanKvGroups(const ModelConfig& config, tensor::DType dtype,
                                      const base::Part& layers, int64_t kv_heads) {
  const kernels::KvLayout layout = KvLayoutOf(config, dtype, kv_heads);
  const int64_t token_bytes =
      KvLayoutOf(config, dtype, config.num_kv_heads).LayerBytes() / kernels::kBlockTokens;
  std::vector<kv::KvLayerPlan> plans;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    plans.push_back({{.token_bytes = config.HasState(layer) ? 0 : token_bytes,
                      .by_heads = !config.mla,
                      .reach = config.ReachOf(layer)},
                     layout});
  }
  return kv::PlanKvGroups(plans, layers);
}

}  // namespace forebay::model

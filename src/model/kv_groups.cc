#include "model/kv_groups.h"

#include "model/blocks/state_rules.h"

namespace forebay::model {
namespace {

kernels::KvCodes CodesOf(const ModelConfig& config) {
  if (!config.stored_kv) return kernels::KvCodes::kNone;
  return *config.stored_kv == cost::NumberFormat::kInt8 ? kernels::KvCodes::kInt8
                                                        : kernels::KvCodes::kFP8;
}

}  // namespace

kernels::KvLayout KvLayoutOf(const ModelConfig& config, tensor::DType dtype,
                             const HeadSizes& heads) {
  const auto form_of = [&](int64_t key_dim, int64_t value_dim) {
    const bool in_chunks = config.packed == kernels::PackedForm::kCuda &&
                           dtype == tensor::DType::kBF16 && key_dim % kernels::kChunkSide == 0 &&
                           value_dim % kernels::kChunkSide == 0;
    return in_chunks ? kernels::PackedForm::kCuda : kernels::PackedForm::kPairs;
  };
  if (config.mla) {
    return {.dtype = dtype,
            .kv_heads = 1,
            .key_dim = static_cast<int32_t>(config.mla->latent_dim()),
            .value_dim = static_cast<int32_t>(config.mla->kv_lora_rank),
            .values_in_keys = true,
            .form = form_of(config.mla->latent_dim(), config.mla->kv_lora_rank),
            .codes = CodesOf(config)};
  }
  return {.dtype = dtype,
          .kv_heads = static_cast<int32_t>(heads.kv_heads),
          .key_dim = static_cast<int32_t>(heads.head_dim),
          .value_dim = static_cast<int32_t>(heads.head_dim),
          .form = form_of(heads.head_dim, heads.head_dim),
          .codes = CodesOf(config)};
}

kernels::KvLayout ExpandedLayoutOf(const ModelConfig& config, tensor::DType dtype, int64_t heads) {
  kernels::KvLayout layout{.dtype = dtype,
                           .kv_heads = static_cast<int32_t>(heads),
                           .key_dim = static_cast<int32_t>(config.mla->qk_head_dim()),
                           .value_dim = static_cast<int32_t>(config.mla->v_head_dim),
                           .codes = CodesOf(config)};
  layout.block_stride = layout.LayerBytes();
  return layout;
}

std::vector<kv::StateSpec> PlanStates(const ModelConfig& config, const Shard& shard) {
  std::vector<kv::StateSpec> states;
  if (!config.states) return states;
  const StateShape net = StateShapeOf(config, shard.own_state_heads);
  const kv::StateSpec spec{
      .tail_bytes = static_cast<uint64_t>(net.tail_floats()) * sizeof(float),
      .matrix_bytes = static_cast<uint64_t>(net.matrix_floats()) * sizeof(float),
      .heads = static_cast<int32_t>(net.value_heads),
      .first_head = static_cast<int32_t>(shard.own_state_heads.heads.begin),
      .channels = RuleOf(config.states->kind).channels(*config.states, shard.own_state_heads)};
  for (int64_t layer = shard.layers.begin; layer < shard.layers.end; ++layer)
    states.push_back(config.HasState(layer) ? spec : kv::StateSpec{});
  return states;
}

std::vector<kv::KvGroup> PlanKvGroups(const ModelConfig& config, tensor::DType dtype,
                                      const Shard& shard) {
  std::vector<kv::KvLayerPlan> plans;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const HeadSizes heads = config.HeadsOf(layer);
    const base::Part& own = shard.KvOf(config, layer).own_kv_heads;
    const bool keeps =
        config.HasAttention(layer) && !config.HasState(layer) && config.KvLayerOf(layer) == layer;
    const int64_t token_bytes =
        KvLayoutOf(config, dtype, heads).LayerBytes() / kernels::kBlockTokens;
    plans.push_back({{.token_bytes = keeps ? token_bytes : 0,
                      .by_heads = !config.mla,
                      .reach = config.ReachOf(layer)},
                     KvLayoutOf(config, dtype, {own.size(), heads.head_dim}),
                     own});
  }
  std::vector<kv::KvGroup> groups = kv::PlanKvGroups(plans, shard.layers);
  for (int64_t layer = shard.layers.begin; layer < shard.layers.end; ++layer)
    groups[0].digests_states |= config.HasState(layer);
  return groups;
}

}  // namespace forebay::model

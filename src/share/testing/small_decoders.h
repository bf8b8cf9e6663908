// Plans of decoders that are small, for tests of what ranks share of them.
#pragma once

#include <utility>
#include <vector>

#include "model/decoder_weights.h"

namespace forebay::share {

inline model::DecoderPlan SmallDecoder(int64_t layers) {
  model::ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  config.family = "llama";
  config.vocab_size = 100;
  config.hidden_size = 64;
  config.intermediate_size = 512;
  config.num_layers = layers;
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.sliding_window.assign(static_cast<size_t>(layers), 0);
  config.max_position_embeddings = 64;
  return model::PlanDecoder(config, tensor::DType::kBF16);
}

// Mixtral's, but for layers that have no experts: where `has_experts` is 0.
inline model::DecoderPlan SmallMixture(std::vector<uint8_t> has_experts, int64_t experts) {
  model::ModelConfig config = SmallDecoder(static_cast<int64_t>(has_experts.size())).config;
  config.architecture = "MixtralForCausalLM";
  config.family = "mixtral";
  config.moe = model::MoeConfig{};
  config.moe->num_experts = experts;
  config.moe->experts_per_token = 2;
  config.moe->intermediate_size = 96;
  config.moe->has_experts = std::move(has_experts);
  return model::PlanDecoder(config, tensor::DType::kBF16);
}

}  // namespace forebay::share

// A model family: which architectures it serves and which tensors a decoder of it is made of. One file and one
// registry line each.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "model/config.h"

namespace forebay::model {

// Names of one decoder layer's tensors; "" where the family has none.
struct LayerNames {
  std::string attention_norm, q, k, v, o, q_bias, k_bias, v_bias, o_bias, q_norm, k_norm;
  std::string ffn_norm, gate, up, down, gate_bias, up_bias, down_bias;
};

struct Family {
  std::string_view id;                             // "llama"
  std::span<const std::string_view> architectures;  // of config.json, and GGUF's general.architecture
  // The tensors of layer `layer`.
  LayerNames (*layer_names)(const ModelConfig& config, int64_t layer);
};

// All families; an unknown id or architecture is null.
std::span<const Family* const> Families();
const Family* FindFamily(std::string_view id);
const Family* FamilyOfArchitecture(std::string_view architecture);
// "LlamaForCausalLM, MistralForCausalLM, ...": for error messages.
std::string SupportedArchitectures();

// The names that Llama gave and that most families share; features (biases, QK norm) as the config says.
LayerNames LlamaLayerNames(const ModelConfig& config, int64_t layer);

}  // namespace forebay::model

// GLM-4-0414: norms before and after both blocks, rope on neighbouring pairs of a part of a head,
// biases of q, k and v, gate and up in one tensor.
#include "model/families/families.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kGlm4Architectures[] = {"Glm4ForCausalLM", "glm4"};

void ReadGlm4(JsonFields*, ModelConfig* config) {
  config->attention_out_bias = false;
  config->norm_after = true;
  config->rope_interleaved = true;
}

LayerNames Glm4LayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = LlamaLayerNames(config, layer);
  const std::string prefix = LayerPrefix(layer);
  names.attention_post_norm = prefix + "post_self_attn_layernorm.weight";
  names.ffn_norm = prefix + "post_attention_layernorm.weight";
  names.ffn_post_norm = prefix + "post_mlp_layernorm.weight";
  names.gate = names.up = prefix + "mlp.gate_up_proj.weight";
  return names;
}

}  // namespace

const Family kGlm4{"glm4",
                   "GLM-4-0414",
                   kGlm4Architectures,
                   &Glm4LayerNames,
                   {.partial_rope = true, .read_more = &ReadGlm4, .gguf_implies = &NothingImplied}};

}  // namespace forebay::model

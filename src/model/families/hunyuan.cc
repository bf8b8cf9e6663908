// Hunyuan (dense): norms of each head of q and k behind rope.
#include "model/families/families.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kHunyuanArchitectures[] = {"HunYuanDenseV1ForCausalLM", "hunyuan-dense"};

void ReadHunyuan(JsonFields*, ModelConfig* config) { config->norm_after_rope = true; }

LayerNames HunyuanLayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = LlamaLayerNames(config, layer);
  names.q_norm = LayerPrefix(layer) + "self_attn.query_layernorm.weight";
  names.k_norm = LayerPrefix(layer) + "self_attn.key_layernorm.weight";
  return names;
}

}  // namespace

const Family kHunyuan{
    "hunyuan",
    "Hunyuan (dense)",
    kHunyuanArchitectures,
    &HunyuanLayerNames,
    {.qk_norm = true, .read_more = &ReadHunyuan, .gguf_implies = &NothingImplied}};

}  // namespace forebay::model

// Phi-3, Phi-4, Phi-4-mini: q, k and v in one tensor, gate and up in another; rope of a part of a
// head, and longrope.
#include "model/families/families.h"

namespace forebay::model {
namespace {

constexpr std::string_view kPhi3Architectures[] = {"Phi3ForCausalLM", "phi3"};

LayerNames Phi3LayerNames(const ModelConfig& config, int64_t layer) {
  LayerNames names = LlamaLayerNames(config, layer);
  names.q = names.k = names.v = LayerPrefix(layer) + "self_attn.qkv_proj.weight";
  names.gate = names.up = LayerPrefix(layer) + "mlp.gate_up_proj.weight";
  return names;
}

}  // namespace

const Family kPhi3{"phi3",
                   "Phi-3, Phi-4, Phi-4-mini",
                   kPhi3Architectures,
                   &Phi3LayerNames,
                   {.window = WindowRule::kAllLayers,
                    .default_window = 0,
                    .partial_rope = true,
                    .gguf_implies = &NothingImplied}};

}  // namespace forebay::model

// Qwen3 (dense): per-head norms of q and k.
#include "model/families/families.h"

namespace forebay::model {
namespace {

constexpr std::string_view kQwen3Architectures[] = {"Qwen3ForCausalLM", "qwen3"};

}  // namespace

const Family kQwen3{"qwen3",
                    "Qwen3",
                    kQwen3Architectures,
                    &LlamaLayerNames,
                    {.qk_norm = true, .window = WindowRule::kUpperLayers, .default_head_dim = 128}};

}  // namespace forebay::model

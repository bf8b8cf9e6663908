// Qwen2 and Qwen2.5: biases on q, k and v.
#include "model/families/families.h"

namespace forebay::model {
namespace {

constexpr std::string_view kQwen2Architectures[] = {"Qwen2ForCausalLM", "qwen2"};

}  // namespace

const Family kQwen2{"qwen2",
                    "Qwen2, Qwen2.5",
                    kQwen2Architectures,
                    &LlamaLayerNames,
                    {.qkv_bias = true, .window = WindowRule::kUpperLayers}};

}  // namespace forebay::model

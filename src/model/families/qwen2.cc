// Qwen2 and Qwen2.5: biases on q, k and v.
#include "model/families/families.h"

namespace forebay::model {
namespace {

constexpr std::string_view kArchitectures[] = {"Qwen2ForCausalLM", "qwen2"};

}  // namespace

const Family kQwen2{"qwen2",
                    kArchitectures,
                    &LlamaLayerNames,
                    {.qkv_bias = true, .window = WindowRule::kUpperLayers}};

}  // namespace forebay::model

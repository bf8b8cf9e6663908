// Llama 2, 3, 3.x, SmolLM2, TinyLlama.
#include "model/families/families.h"

namespace forebay::model {
namespace {

constexpr std::string_view kLlamaArchitectures[] = {"LlamaForCausalLM", "llama"};

}  // namespace

const Family kLlama{"llama", "Llama 2, 3, 3.x, TinyLlama, SmolLM2", kLlamaArchitectures,
                    &LlamaLayerNames};

}  // namespace forebay::model

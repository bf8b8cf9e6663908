// Mistral: Llama with a sliding window.
#include "model/families/families.h"

namespace forebay::model {
namespace {

constexpr std::string_view kArchitectures[] = {"MistralForCausalLM", "mistral"};

}  // namespace

const Family kMistral{
    "mistral", kArchitectures, &LlamaLayerNames, {.window = WindowRule::kAllLayers}};

}  // namespace forebay::model

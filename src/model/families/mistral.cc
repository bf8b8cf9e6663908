// Mistral: Llama with a sliding window.
#include "model/families/families.h"

namespace forebay::model {
namespace {

constexpr std::string_view kMistralArchitectures[] = {"MistralForCausalLM", "mistral"};

}  // namespace

const Family kMistral{"mistral",
                      "Mistral",
                      kMistralArchitectures,
                      &LlamaLayerNames,
                      {.window = WindowRule::kAllLayers}};

}  // namespace forebay::model

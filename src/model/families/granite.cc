// Granite 3 and 4 (dense): Llama with factors of embeddings, scores, residual and logits.
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kGraniteArchitectures[] = {"GraniteForCausalLM", "granite"};

}  // namespace

void ReadGraniteFactors(JsonFields* in, ModelConfig* config) {
  constexpr double kLeast = 1e-6, kMost = 1e6;
  const auto factor = [&](const char* key) {
    return static_cast<float>(in->Float(key, kLeast, kMost, 1.0));
  };
  config->embedding_factor = factor("embedding_multiplier");
  config->score_factor = factor("attention_multiplier");
  config->residual_factor = factor("residual_multiplier");
  config->logits_factor = 1 / factor("logits_scaling");
}

const Family kGranite{"granite",
                      "Granite 3, 4 (dense)",
                      kGraniteArchitectures,
                      &LlamaLayerNames,
                      {.read_more = &ReadGraniteFactors, .gguf_implies = &NothingImplied}};

}  // namespace forebay::model

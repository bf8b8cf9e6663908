// Ministral 3, and Mistral Small 3 as published with its vision part: Mistral whose q grows with
// its position.
#include "model/families/families.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kMinistral3Architectures[] = {"Ministral3ForCausalLM",
                                                         "Mistral3ForConditionalGeneration"};

void ReadMinistral3(JsonFields* in, ModelConfig* config) {
  std::optional<JsonFields> rope = in->Object("rope_parameters");
  if (!rope || !rope->Has("llama_4_scaling_beta")) return;
  config->temperature_scale = rope->Float("llama_4_scaling_beta", 0, 1e6);
  config->temperature_floor = rope->Float("original_max_position_embeddings", 1, 1e9);
  config->temperature_shift = 0;
  config->temperature_everywhere = true;
  in->Fail(rope->status());
}

}  // namespace

const Family kMinistral3{"ministral3",
                         kMinistral3Architectures,
                         &LlamaLayerNames,
                         {.window = WindowRule::kAllLayers,
                          .default_window = 0,
                          .text_part = true,
                          .read_more = &ReadMinistral3}};

}  // namespace forebay::model

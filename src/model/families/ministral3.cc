// Ministral 3, and Mistral Small 3 as published with its vision part: Mistral whose q grows with
// its position.
#include "model/families/families.h"
#include "model/files/gguf_fields.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kMinistral3Architectures[] = {
    "Ministral3ForCausalLM", "Mistral3ForConditionalGeneration", "mistral3"};

void ReadMinistral3(JsonFields* in, ModelConfig* config) {
  std::optional<JsonFields> rope = in->Object("rope_parameters");
  if (!rope || !rope->Has("llama_4_scaling_beta")) return;
  config->temperature_scale = rope->Float("llama_4_scaling_beta", 0, 1e6);
  config->temperature_floor = rope->Float("original_max_position_embeddings", 1, 1e9);
  config->temperature_shift = 0;
  config->temperature_everywhere = true;
  in->Fail(rope->status());
}

GgufImplied Ministral3Implied(const GgufSizes& sizes) {
  constexpr char kTemperature[] = "attention.temperature_scale",
                 kMscale[] = "rope.scaling.yarn_log_multiplier", kScaling[] = "rope.scaling.type";
  GgufFields* const in = sizes.in;
  GgufImplied implied;
  if (in->Has(kTemperature)) {
    // It grows with the multiple of the original length, which YaRN's keys say.
    if (const std::string scaling = in->String(kScaling, "none"); scaling != "yarn")
      in->Unsupported(kScaling, scaling, "yarn beside attention.temperature_scale");
    implied.scaling.emplace_back("llama_4_scaling_beta", in->Json(kTemperature));
  }
  if (in->Has(kMscale)) {
    for (const char* name : {"mscale", "mscale_all_dim"})
      implied.scaling.emplace_back(name, in->Json(kMscale));
  }
  return implied;
}

}  // namespace

const Family kMinistral3{"ministral3",
                         "Mistral Small 3, Ministral 3 (text)",
                         kMinistral3Architectures,
                         &LlamaLayerNames,
                         {.window = WindowRule::kAllLayers,
                          .default_window = 0,
                          .text_part = true,
                          .read_more = &ReadMinistral3,
                          .gguf_implies = &Ministral3Implied}};

}  // namespace forebay::model

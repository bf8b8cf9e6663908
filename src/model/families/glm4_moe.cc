// GLM-4.5 to 4.7 (Glm4Moe): experts as DeepSeek V3 has them behind grouped-query attention, rope on
// a part of a head; and GLM-4.7-Flash (Glm4MoeLite), which has DeepSeek's latent attention too.
#include "model/families/deepseek_v3.h"
#include "model/families/families.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kGlm4MoeArchitectures[] = {"Glm4MoeForCausalLM"};
constexpr std::string_view kGlm4MoeLiteArchitectures[] = {"Glm4MoeLiteForCausalLM"};

void ReadGlm4Moe(JsonFields* in, ModelConfig* config) {
  config->attention_out_bias = false;
  config->qk_norm = in->Bool("use_qk_norm", false);
  ReadDeepseekExperts(in, true, config);
}

void ReadGlm4MoeLite(JsonFields* in, ModelConfig* config) {
  ReadLatentAttention(in, config);
  ReadDeepseekExperts(in, true, config);
}

}  // namespace

const Family kGlm4Moe{"glm4_moe",
                      kGlm4MoeArchitectures,
                      &DeepseekV3LayerNames,
                      {.partial_rope = true, .read_more = &ReadGlm4Moe}};
const Family kGlm4MoeLite{"glm4_moe_lite",
                          kGlm4MoeLiteArchitectures,
                          &DeepseekV3LayerNames,
                          {.read_more = &ReadGlm4MoeLite}};

}  // namespace forebay::model

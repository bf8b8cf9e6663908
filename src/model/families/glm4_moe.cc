// GLM-4.5 to 4.7 (Glm4Moe): experts as DeepSeek V3 has them behind grouped-query attention, rope on
// a part of a head; and GLM-4.7-Flash (Glm4MoeLite), which has DeepSeek's latent attention too.
#include "model/families/deepseek_v3.h"
#include "model/families/families.h"
#include "model/files/gguf_fields.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kGlm4MoeArchitectures[] = {"Glm4MoeForCausalLM", "glm4moe"};
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

GgufImplied Glm4MoeImplied(const GgufSizes& sizes) {
  GgufImplied implied = DeepseekExpertsImplied(sizes);
  const bool normed = sizes.in->Find("blk.0.attn_q_norm.weight") != nullptr;
  implied.members.emplace_back("use_qk_norm", normed ? "true" : "false");
  return implied;
}

}  // namespace

const Family kGlm4Moe{
    "glm4_moe",
    "GLM-4.5 to 4.7",
    kGlm4MoeArchitectures,
    &DeepseekV3LayerNames,
    {.partial_rope = true, .read_more = &ReadGlm4Moe, .gguf_implies = &Glm4MoeImplied}};
const Family kGlm4MoeLite{"glm4_moe_lite",
                          "GLM-4.7-Flash",
                          kGlm4MoeLiteArchitectures,
                          &DeepseekV3LayerNames,
                          {.read_more = &ReadGlm4MoeLite}};

}  // namespace forebay::model

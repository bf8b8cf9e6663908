// Seed-OSS: biases of q, k and v by one switch, and of the output projection by another.
#include "model/families/families.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kSeedOssArchitectures[] = {"SeedOssForCausalLM", "seed_oss"};

void ReadSeedOss(JsonFields* in, ModelConfig* config) {
  config->attention_out_bias = in->Bool("attention_out_bias", false);
}

GgufImplied SeedOssImplied(const GgufSizes&) { return {.members = {}, .output_bias_key = true}; }

}  // namespace

const Family kSeedOss{"seed_oss",
                      "Seed-OSS",
                      kSeedOssArchitectures,
                      &LlamaLayerNames,
                      {.read_more = &ReadSeedOss, .gguf_implies = &SeedOssImplied}};

}  // namespace forebay::model

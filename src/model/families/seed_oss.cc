// Seed-OSS: biases of q, k and v by one switch, and of the output projection by another.
#include "model/families/families.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kSeedOssArchitectures[] = {"SeedOssForCausalLM"};

void ReadSeedOss(JsonFields* in, ModelConfig* config) {
  config->attention_out_bias = in->Bool("attention_out_bias", false);
}

}  // namespace

const Family kSeedOss{
    "seed_oss", kSeedOssArchitectures, &LlamaLayerNames, {.read_more = &ReadSeedOss}};

}  // namespace forebay::model

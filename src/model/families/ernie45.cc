// ERNIE 4.5 (dense): Llama whose rope turns neighbouring pairs, and one switch for all biases.
#include "model/families/families.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kErnie45Architectures[] = {"Ernie4_5ForCausalLM", "ernie4_5"};

void ReadErnie45(JsonFields* in, ModelConfig* config) {
  config->rope_interleaved = true;
  config->attention_bias = config->attention_out_bias = config->mlp_bias =
      in->Bool("use_bias", false);
}

}  // namespace

const Family kErnie45{"ernie4_5",
                      "ERNIE 4.5 (dense)",
                      kErnie45Architectures,
                      &LlamaLayerNames,
                      {.read_more = &ReadErnie45, .gguf_implies = &NothingImplied}};

}  // namespace forebay::model

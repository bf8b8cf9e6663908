// SmolLM3: Llama with layers without rope.
#include "model/families/families.h"
#include "model/files/config_reader.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kSmolLm3Architectures[] = {"SmolLM3ForCausalLM", "smollm3"};

void ReadSmolLm3(JsonFields* in, ModelConfig* config) { ReadLayersWithoutRope(in, 4, config); }

}  // namespace

const Family kSmolLm3{"smollm3",
                      "SmolLM3",
                      kSmolLm3Architectures,
                      &LlamaLayerNames,
                      {.window = WindowRule::kUpperLayers,
                       .read_more = &ReadSmolLm3,
                       .gguf_implies = &NothingImplied}};

}  // namespace forebay::model

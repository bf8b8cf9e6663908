// EXAONE 4: norms after blocks and none before, norms of each head of q and k. Where some layers
// have windows, the full ones have no rope.
#include <algorithm>

#include "model/families/families.h"
#include "model/files/gguf_fields.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kExaone4Architectures[] = {"Exaone4ForCausalLM", "exaone4"};

void ReadExaone4(JsonFields*, ModelConfig* config) {
  config->norm_before = false;
  config->norm_after = true;
  if (std::ranges::count(config->sliding_window, 0) == config->num_layers) return;
  for (const int32_t window : config->sliding_window) config->without_rope.push_back(window == 0);
}

// Files without a window have it in no layer.
GgufImplied Exaone4Implied(const GgufSizes& sizes) {
  if (sizes.in->Has("attention.sliding_window")) return {};
  return {.members = {{"sliding_window", "null"}}};
}

}  // namespace

const Family kExaone4{"exaone4",
                      "EXAONE 4",
                      kExaone4Architectures,
                      &LlamaLayerNames,
                      {.qk_norm = true,
                       .window = WindowRule::kTypedLayers,
                       .window_pattern = 4,
                       .read_more = &ReadExaone4,
                       .gguf_implies = &Exaone4Implied}};

}  // namespace forebay::model

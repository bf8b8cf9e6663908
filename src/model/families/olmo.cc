// OLMo 2 and 3: norms after blocks and none before, norms of q and k over all heads of a row. OLMo
// 3 has windows on three layers of four, and scales rope in the full ones alone.
#include "model/families/families.h"
#include "model/files/json_fields.h"

namespace forebay::model {
namespace {

constexpr std::string_view kOlmo2Architectures[] = {"Olmo2ForCausalLM", "olmo2"};
constexpr std::string_view kOlmo3Architectures[] = {"Olmo3ForCausalLM", "olmo2"};

void ReadOlmo(JsonFields*, ModelConfig* config) {
  config->norm_before = false;
  config->norm_after = true;
  config->qk_norm_of_rows = true;
}

}  // namespace

const Family kOlmo2{"olmo2",
                    "OLMo 2",
                    kOlmo2Architectures,
                    &LlamaLayerNames,
                    {.read_more = &ReadOlmo, .gguf_implies = &NothingImplied}};
const Family kOlmo3{"olmo3",
                    "OLMo 3",
                    kOlmo3Architectures,
                    &LlamaLayerNames,
                    {.window = WindowRule::kTypedLayers,
                     .window_pattern = 4,
                     .windows_unscaled = true,
                     .read_more = &ReadOlmo,
                     .gguf_implies = &NothingImplied}};

}  // namespace forebay::model

// Any text as config.json and as generation_config.json.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/derived.h"
#include "model/files/config_reader.h"

using namespace forebay;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = model::ParseHfConfig(text, "config.json");
  if (config.ok()) {
    FB_CHECK(static_cast<int64_t>(config->rope.inv_freq.size()) == config->head_dim / 2, "{}",
             config->head_dim);
    FB_CHECK(static_cast<int64_t>(config->sliding_window.size()) == config->num_layers, "{}",
             config->num_layers);
    const model::DerivedFigures figures = model::Derive(*config);
    FB_CHECK(0 < figures.active_params && figures.active_params <= figures.params, "{}",
             figures.params);
  }
  (void)model::ParseGenerationConfig(text, "generation_config.json");
  return 0;
}

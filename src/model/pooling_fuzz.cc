// Any two texts as modules.json and as the config.json of its pooling module.
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "model/pooling.h"

using namespace forebay;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t border = std::min(text.find('\n'), text.size());
  const auto pooling = model::ParsePooling(text.substr(0, border), text.substr(border), "model");
  if (!pooling.ok()) {
    FB_CHECK(pooling.status().message().starts_with("model/"), "{}", pooling.status().message());
    FB_CHECK(pooling.status().message().size() < 1000, "an error of {} bytes",
             pooling.status().message().size());
  }
  return 0;
}

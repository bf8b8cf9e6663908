// Any two texts as modules.json and as the config.json of its modules.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "model/pooling/pooling.h"

using namespace forebay;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t border = std::min(text.find('\n'), text.size());
  const auto config_of = [&](const std::string&) -> base::Result<std::string> {
    return std::string(text.substr(border));
  };
  const auto pooling = model::ParsePooling(text.substr(0, border), config_of, "model");
  if (!pooling.ok()) {
    FB_CHECK(pooling.status().message().starts_with("model/"), "{}", pooling.status().message());
    FB_CHECK(pooling.status().message().size() < 1000, "an error of {} bytes",
             pooling.status().message().size());
  }
  return 0;
}

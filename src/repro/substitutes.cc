#include "repro/substitutes.h"

#include <fmt/core.h>

#include <algorithm>

#include "cost/profile.h"
#include "model/builtin_configs.h"

namespace forebay::repro {
namespace {

// What numbers are tried on where the device is a paper's.
constexpr char kAnyDevice[] = "h200";

}  // namespace

base::Result<Substitutes> ParseSubstitutes(std::string_view text) {
  Substitutes substitutes;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t equals = part.find('=');
    if (equals == 0 || equals == std::string_view::npos || equals + 1 == part.size()) {
      return base::Status(base::kInvalidArgument,
                          fmt::format("--set: \"{}\" is no NAME=VALUE; expected as "
                                      "model=Qwen2.5-72B,device=b200,link=5e10",
                                      part));
    }
    const std::string_view name = part.substr(0, equals), value = part.substr(equals + 1);
    if (name == "model") {
      substitutes.model = value;
    } else if (name == "device") {
      substitutes.device = value;
    } else {
      substitutes.numbers +=
          fmt::format(":{}={}", name == "link" ? "link_bytes_per_s" : name, value);
    }
  }
  if (!substitutes.model.empty())
    FB_RETURN_IF_ERROR(model::LoadBuiltinConfig(substitutes.model).status());
  const std::string device = substitutes.device.empty() ? kAnyDevice : substitutes.device;
  FB_RETURN_IF_ERROR(cost::LoadProfile(device + substitutes.numbers).status());
  return substitutes;
}

}  // namespace forebay::repro

#include "layout/devices.h"

#include <algorithm>
#include <charconv>

namespace forebay::layout {
namespace {

constexpr int kMostDevices = 1024;

base::Status Invalid(std::string_view text, std::string_view why) {
  return base::Status(
      kDevicesInvalid,
      fmt::format("--devices \"{}\": {}; expected cpu, 2xcpu, sim:h200 or sim:8xh200", text, why));
}

}  // namespace

base::Result<DevicesSpec> ParseDevices(std::string_view text) {
  DevicesSpec spec{.text = std::string(text)};
  std::string_view rest = text;
  if (rest.starts_with("sim:")) {
    spec.platform = &SimulatedPlatform();
    rest.remove_prefix(4);
  }
  const size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits > 0 && digits < rest.size() && rest[digits] == 'x') {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + digits, spec.count);
    if (error != std::errc() || spec.count < 1 || spec.count > kMostDevices) {
      return Invalid(text, fmt::format("{} is no count of devices (1 to {})",
                                       rest.substr(0, digits), kMostDevices));
    }
    rest.remove_prefix(digits + 1);
  }
  spec.name = rest;
  if (rest.empty()) return Invalid(text, "no device is named");
  if (spec.platform == &CpuPlatform() && spec.name != "cpu") {
    return Invalid(text, fmt::format("this build has no device \"{}\"", rest));
  }
  return spec;
}

base::Status RequireSimulated(const DevicesSpec& devices) {
  if (devices.platform == &SimulatedPlatform()) return base::Status::Ok();
  return {kDevicesInvalid,
          fmt::format("--devices \"{}\": not simulated; expected sim:h200 or sim:8xh200",
                      devices.text)};
}

}  // namespace forebay::layout

#include "layout/devices.h"

#include <algorithm>
#include <charconv>

namespace forebay::layout {
namespace {

constexpr int kMostDevices = 1024;

base::Status Invalid(std::string_view text, std::string_view why) {
  return base::Status(
      kDevicesInvalid,
      fmt::format("--devices \"{}\": {}; expected cpu, 2xcpu, cuda, 2xcuda, cuda:0,2, sim:h200 or "
                  "sim:8xh200",
                  text, why));
}

// The GPUs of `spec`, of which `count` ranks were asked for where `counted`: "cuda" has the first
// ones, "cuda:0,2" those, each with `count` ranks.
base::Status ParseGpus(std::string_view text, bool counted, DevicesSpec* spec) {
  const std::string_view name = spec->name;
  if (name == "cuda") {
    for (int i = 0; i < spec->count; ++i) spec->ordinals.push_back(i);
    return {};
  }
  std::vector<int> listed;
  const char* at = name.data() + 5;
  const char* const end = name.data() + name.size();
  while (true) {
    int ordinal = -1;
    const auto [next, error] = std::from_chars(at, end, ordinal);
    if (error != std::errc() || ordinal < 0 || (next != end && *next != ','))
      return Invalid(text, fmt::format("\"{}\" is no list of GPUs", name.substr(5)));
    listed.push_back(ordinal);
    if (next == end) break;
    at = next + 1;
  }
  const int each = counted ? spec->count : 1;
  for (const int ordinal : listed) spec->ordinals.insert(spec->ordinals.end(), each, ordinal);
  spec->count = static_cast<int>(spec->ordinals.size());
  return {};
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
  const bool counted = digits > 0 && digits < rest.size() && rest[digits] == 'x';
  if (counted) {
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + digits, spec.count);
    if (error != std::errc() || spec.count < 1 || spec.count > kMostDevices) {
      return Invalid(text, fmt::format("{} is no count of devices (1 to {})",
                                       rest.substr(0, digits), kMostDevices));
    }
    rest.remove_prefix(digits + 1);
  }
  spec.name = rest;
  if (rest.empty()) return Invalid(text, "no device is named");
  if (spec.platform == &CpuPlatform() && (rest == "cuda" || rest.starts_with("cuda:"))) {
    spec.platform = &CudaPlatform();
    FB_RETURN_IF_ERROR(ParseGpus(text, counted, &spec));
    return spec;
  }
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

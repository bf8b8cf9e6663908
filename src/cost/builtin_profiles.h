// src/cost/profiles/*.json, as they stood when the build was configured (CMakeLists.txt writes the
// definition).
#pragma once

#include <span>
#include <string_view>

namespace forebay::cost {

struct BuiltinProfile {
  std::string_view name;
  std::string_view json;
};

// Sorted by name.
std::span<const BuiltinProfile> BuiltinProfiles();

}  // namespace forebay::cost

// How many interleavings a test tries.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace forebay::base {

// `few`, or as many as tools/soak.sh asks for.
inline uint64_t Interleavings(uint64_t few) {
  const char* const asked = std::getenv("FOREBAY_INTERLEAVINGS");
  return asked == nullptr ? few : std::strtoull(asked, nullptr, 10);
}

}  // namespace forebay::base

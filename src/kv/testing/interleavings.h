// How many interleavings tests of the tier's protocol try.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace forebay::kv {

// `few`, or as many as tools/soak.sh asks for.
inline uint64_t Interleavings(uint64_t few) {
  const char* const asked = std::getenv("FOREBAY_INTERLEAVINGS");
  return asked == nullptr ? few : std::strtoull(asked, nullptr, 10);
}

}  // namespace forebay::kv

// What a block of the cache holds, for tests of what moves blocks.
#pragma once

#include <vector>

#include "kv/cache.h"

namespace forebay::kv {

// All that belongs to a block of a group, strip by strip.
inline std::vector<std::byte> BytesOf(const Cache& cache, int32_t group, BlockId block) {
  std::vector<std::byte> bytes;
  for (const Cache::Strip& strip : cache.strips()[static_cast<size_t>(group)]) {
    const std::byte* const data = strip.Of(block);
    bytes.insert(bytes.end(), data, data + strip.bytes);
  }
  return bytes;
}

}  // namespace forebay::kv

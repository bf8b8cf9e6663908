// The strips of a block, packed in host memory.
#pragma once

#include <numeric>

#include "device/copy.h"
#include "kv/cache.h"
#include "kv/tier/store.h"

namespace forebay::kv {

inline uint64_t StripBytes(std::span<const Cache::Strip> strips) {
  return std::accumulate(strips.begin(), strips.end(), uint64_t{0},
                         [](uint64_t sum, const Cache::Strip& strip) { return sum + strip.bytes; });
}

// copy(in the cache, below, bytes) of each strip of the move's block.
template <typename Byte, typename Copy>
void ForEachStrip(const Cache& cache, const TierMove& move, Byte* below, const Copy& copy) {
  for (const Cache::Strip& strip : cache.strips()[static_cast<size_t>(move.group)]) {
    copy(cache.region().data + strip.offset + static_cast<uint64_t>(move.device) * strip.bytes,
         below, strip.bytes);
    below += strip.bytes;
  }
}

inline void EnqueueDown(device::Stream& stream, const Cache& cache, const TierMove& move,
                        std::byte* below) {
  ForEachStrip(cache, move, below, [&](std::byte* above, std::byte* to, uint64_t bytes) {
    stream.Enqueue(device::MakeCopy("kv_down", to, above, bytes));
  });
}

inline void EnqueueUp(device::Stream& stream, const Cache& cache, const TierMove& move,
                      const std::byte* below) {
  ForEachStrip(cache, move, below, [&](std::byte* above, const std::byte* from, uint64_t bytes) {
    stream.Enqueue(device::MakeCopy("kv_up", above, from, bytes));
  });
}

}  // namespace forebay::kv

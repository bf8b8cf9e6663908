// The strips of a block, packed in host memory.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/units.h"
#include "device/copy.h"
#include "kv/cache.h"
#include "kv/tier/store.h"

namespace forebay::kv {

inline uint64_t StripBytes(std::span<const Cache::Strip> strips) {
  return std::accumulate(strips.begin(), strips.end(), uint64_t{0},
                         [](uint64_t sum, const Cache::Strip& strip) { return sum + strip.bytes; });
}

// Where each group of the cache lies in a block below, and the bytes of one: it has the KV of all
// groups, one behind the other, or else a part of a state.
struct BlockBelow {
  std::vector<uint64_t> offsets;
  uint64_t bytes = 0;

  // `alignment`: of each group's part.
  BlockBelow(const Cache& cache, uint64_t alignment) {
    for (size_t group = 0; group < cache.strips().size(); ++group) {
      const bool is_kv = group < cache.num_kv_groups();
      const uint64_t part = base::RoundUp(StripBytes(cache.strips()[group]), alignment);
      offsets.push_back(is_kv ? bytes : 0);
      bytes = is_kv ? bytes + part : std::max(bytes, part);
    }
  }
};

// copy(in the cache, below, bytes) of each strip of the move's block.
template <typename Byte, typename Copy>
void ForEachStrip(const Cache& cache, const TierMove& move, Byte* below, const Copy& copy) {
  for (const Cache::Strip& strip : cache.strips()[static_cast<size_t>(move.group)]) {
    copy(strip.Of(move.device), below, strip.bytes);
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

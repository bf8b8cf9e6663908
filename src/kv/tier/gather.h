// One layer's part of each of some blocks, copied from below into its place of a window's slot.
#pragma once

#include <span>

#include "device/device.h"
#include "kv/book/stream_book.h"

namespace forebay::kv {

// What a slot is filled with (kv/tier/window.h). The blocks live until it is.
struct LayerFetch {
  std::span<const StreamedBlock> blocks;
  int64_t layer = 0;  // in the first KV group
  std::byte* slot = nullptr;
  uint64_t part_bytes = 0;  // a place of the slot
  const char* label = "";   // a literal
};

// Where the parts lie: that of the block number i of the fetch at data + its block below *
// below_stride + i * index_stride.
struct PartsBelow {
  const std::byte* data = nullptr;
  uint64_t below_stride = 0, index_stride = 0;
};

void EnqueueGather(device::Stream& stream, const LayerFetch& fetch, const PartsBelow& parts);

}  // namespace forebay::kv

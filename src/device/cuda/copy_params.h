// What the kernels of copies take whose extent is in memory: kernels/cuda/pair/copies.cu.
#pragma once

#include <cstddef>
#include <cstdint>

namespace forebay::device {

inline constexpr int kCopyThreads = 256;
// Bytes of an item that a block of pair_copy_items copies.
inline constexpr uint64_t kCopyPieceBytes = 64 << 10;
inline constexpr int kMostGatheredParts = 8;

// Item i of `num_items` where offsets[i] < offsets[i + 1]. A block (item, piece).
struct CopyItemsParams {
  std::byte* to;
  const std::byte* from;
  uint64_t item_bytes;
  const int32_t* offsets;
};

// Row i of the rows [offsets[borders[0]], offsets[borders[num_parts]]) lies at place i of the part
// with offsets[borders[part]] <= i < offsets[borders[part + 1]], and goes to place i. A block a
// row.
struct GatherRowsParams {
  std::byte* to;
  const std::byte* parts[kMostGatheredParts];
  int32_t borders[kMostGatheredParts + 1];
  int32_t num_parts;
  const int32_t* offsets;
  uint64_t row_bytes;
};

}  // namespace forebay::device

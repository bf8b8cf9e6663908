// The copy of bytes as an operation: what copy streams run.
#pragma once

#include "device/operation.h"

namespace forebay::device {

// When the copied data are used. kLater writes past a CPU's caches: no line is read before it is
// overwritten, and the kernels' lines stay.
enum class CopyUse : uint8_t { kSoon, kLater };
// Less stays in the caches whatever its use.
inline constexpr uint64_t kLeastPastCaches = 256 << 10;

// Copies `bytes` from `source` (own or a peer's memory) to `destination`. REQUIRES: the ranges do
// not overlap; `label` is a literal.
Operation MakeCopy(const char* label, void* destination, const void* source, uint64_t bytes,
                   CopyUse use = CopyUse::kSoon);

// Equal items, packed in both places. Item i is copied if offsets[i] < offsets[i + 1]; offsets are
// control memory, read when the copy begins. Used later.
struct ItemCopy {
  std::byte* destination = nullptr;
  const std::byte* source = nullptr;
  uint64_t item_bytes = 0;
  int64_t num_items = 0;
  const int32_t* offsets = nullptr;  // [num_items + 1]
};
// Its description says the bytes that are copied once it has begun.
Operation MakeItemCopy(const char* label, const ItemCopy& copy);

inline constexpr int kMostParts = 8;
// Rows of a matrix of which each part holds some, at their places in the matrix: part i the rows
// [offsets[borders[i]], offsets[borders[i + 1]]). Offsets are control memory, read when the copy
// begins.
struct PartsCopy {
  std::byte* destination = nullptr;
  const std::byte* parts[kMostParts] = {};
  int num_parts = 0;
  const int32_t* offsets = nullptr;
  int32_t borders[kMostParts + 1] = {};
  int64_t most_rows = 0;
  uint64_t row_bytes = 0;

  Range RowsOf(int part) const { return {offsets[borders[part]], offsets[borders[part + 1]]}; }
};
// `desc`: its bytes are filled in once it has begun.
Operation MakePartsCopy(const cost::OpDesc& desc, const PartsCopy& copy);

}  // namespace forebay::device

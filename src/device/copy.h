// The copy of bytes as an operation: what copy streams run.
#pragma once

#include "device/operation.h"

namespace forebay::device {

// When what is copied is used: kLater is written past a CPU's caches, so that no line is read
// before it is overwritten, and none is pushed out that kernels use.
enum class CopyUse : uint8_t { kSoon, kLater };
// Less stays in the caches whatever its use.
inline constexpr uint64_t kLeastPastCaches = 256 << 10;

// Copies `bytes` from `source` (own or a peer's memory) to `destination`. REQUIRES: the ranges do
// not overlap; `label` is a literal.
Operation MakeCopy(const char* label, void* destination, const void* source, uint64_t bytes,
                   CopyUse use = CopyUse::kSoon);

// Equal items, one behind the other in both places, of which item i is copied where
// offsets[i] < offsets[i + 1]: control memory, read when the copy begins. Used later.
struct ItemCopy {
  std::byte* destination = nullptr;
  const std::byte* source = nullptr;
  uint64_t item_bytes = 0;
  int64_t num_items = 0;
  const int32_t* offsets = nullptr;  // [num_items + 1]
};
// Its description says the bytes that are copied once it has begun.
Operation MakeItemCopy(const char* label, const ItemCopy& copy);

}  // namespace forebay::device

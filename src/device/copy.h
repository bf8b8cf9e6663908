// The copy of bytes as an operation: what copy streams run.
#pragma once

#include "device/operation.h"

namespace forebay::device {

// Copies `bytes` from `source` (own or a peer's memory) to `destination`. REQUIRES: the ranges do
// not overlap; `label` is a literal.
Operation MakeCopy(const char* label, void* destination, const void* source, uint64_t bytes);

}  // namespace forebay::device

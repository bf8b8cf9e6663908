// Commits memory before steps need it.
#pragma once

#include <cstdint>

#include "device/device.h"

namespace forebay::device {

// Writes a zero to each page of the region's first `bytes`, or all of it if those are more, with
// `threads`: a first touch is slow where a virtual machine's host takes free pages back (some 1
// GB/s), and comes at the start now, not in a step. REQUIRES: real memory, nothing in it is used
// yet.
void TouchPages(const Region& region, uint64_t bytes, int threads);

}  // namespace forebay::device

// A heap that the GPU reaches: in a program that links gpu_heap.cc every `new` comes from pinned
// memory once one is given, so that tests of kernels pass their vectors to a GPU as they are.
#pragma once

#include <cstddef>

namespace forebay::bench {

// `data`, aligned to 4 KiB, is the heap from here on; it stays so.
void UsePinnedHeap(void* data, size_t bytes);

}  // namespace forebay::bench

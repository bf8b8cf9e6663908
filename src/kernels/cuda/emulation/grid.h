// Runs a kernel's grid on the calling thread, block by block in an order drawn from a seed. For
// tests: the code of a kernel, compiled for the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/status.h"

namespace forebay::gpu::emulation {

// A wait that can never end, or an operation that a GPU does not define.
inline constexpr base::ErrorCode kKernelFault{"kernel_fault"};

// A thread's code: FB_KERNEL's fb_emulated_<name>.
using ThreadFunction = void (*)(const void* params);

struct Grid {
  int blocks[3] = {1, 1, 1};
  int threads = 32;         // a block; whole warps
  int cluster_blocks = 1;   // along x
  size_t shared_bytes = 0;  // dynamic, a block
  uint64_t seed = 0;        // of the schedule; 0: threads take turns
  // Runs the kernel before, which this one overlaps with, as late as that may be: the first thread
  // that awaits it calls it, and each block awaits it.
  std::function<void()> previous = {};
};

// `params` are copied before the first thread starts. Errors: kKernelFault, which names the block,
// and for a wait that cannot end where each thread of it stands.
base::Status RunGrid(ThreadFunction function, const void* params, size_t params_bytes,
                     const Grid& grid);

}  // namespace forebay::gpu::emulation

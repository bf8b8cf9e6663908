// What gpu_check prints of a GPU, beside tests: lines of JSON.
#pragma once

#include "bench/gpu/gpu.h"

namespace forebay::bench {

// What the machine is.
void PrintFacts(Gpu& gpu);
// Rates of memory, copies, launches and plain arithmetic.
void PrintLimits(Gpu& gpu);
// Rates of the kernels of class mma_k16f25, and of draws.
void PrintKernelRates(Gpu& gpu);
void PrintDrawRates(Gpu& gpu);

}  // namespace forebay::bench

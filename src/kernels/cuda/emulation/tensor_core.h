// One step of Hopper's tensor cores as the emulation computes it.
#pragma once

#include <cstdint>

namespace forebay::gpu::emulation {

// The sum of c and 16 products of bf16 (arXiv 2511.10909, 2512.07004; measured on an H100): each
// addend is aligned to the greatest exponent and cut towards zero 25 bits below it, the sum is
// exact and is cut to fp32.
float TensorCoreStep(const uint16_t a[16], const uint16_t b[16], float c);

// The step of 16 x 8 outputs at once: of c[i][j], row a[i] and column j of b.
void TensorCoreTile(const uint16_t (&a)[16][16], const uint16_t (&b)[16][8], float (&c)[16][8]);

}  // namespace forebay::gpu::emulation

#pragma once

#include <immintrin.h>

namespace forebay::runtime {

// FTZ (bit 15) and DAZ (bit 6) of MXCSR, for the calling thread or fiber.
inline void FlushDenormals() { _mm_setcsr(_mm_getcsr() | 0x8040u); }

}  // namespace forebay::runtime

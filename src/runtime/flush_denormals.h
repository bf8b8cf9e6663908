#pragma once

#include <immintrin.h>

namespace forebay::runtime {

// FTZ (bit 15) and DAZ (bit 6) of MXCSR, for the calling thread or fiber. Both ways: a task
// inherits its parent's bits.
inline void SetFlushDenormals(bool flush) {
  constexpr unsigned kBits = 0x8040;
  _mm_setcsr(flush ? _mm_getcsr() | kBits : _mm_getcsr() & ~kBits);
}

}  // namespace forebay::runtime

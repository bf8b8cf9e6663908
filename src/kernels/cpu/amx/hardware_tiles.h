// The tiles of the machine, for the loops of this folder. The instructions are written as assembly:
// intrinsics want their tile as a literal, not as a template's argument.
#pragma once

#include "kernels/cpu/amx/tile_config.h"
#include "kernels/cpu/simd.h"

namespace forebay::kernels {
namespace {

class HardwareTiles {
 public:
  FB_INLINE explicit HardwareTiles(int x_rows) {
    const TileConfig config(x_rows);
    asm volatile("ldtilecfg %0" : : "m"(config));
  }
  FB_INLINE void Release() { asm volatile("tilerelease"); }

  template <int kTile>
  FB_INLINE void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  template <int kTile>
  FB_INLINE void Load(const void* rows, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(rows), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  FB_INLINE void Store(float* rows, int64_t stride) const {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(rows), "r"(stride), "i"(kTile)
                 : "memory");
  }
  template <int kSum, int kX, int kW>
  FB_INLINE void MultiplyAdd() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kX), "i"(kW));
  }
};

}  // namespace
}  // namespace forebay::kernels

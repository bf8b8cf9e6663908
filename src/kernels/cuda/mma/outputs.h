// Where linear kernels write eights of outputs: eight neighbours of a row, 16 bytes of bf16.
#pragma once

#include "kernels/cuda/mma/arithmetic.h"
#include "kernels/cuda/mma/params.h"
#include "kernels/cuda/pair/linear_rows.h"

namespace forebay::kernels::cuda {

inline constexpr int kEight = 8;

// An eight in device memory: the first `count` of it are outputs, from 0 to all.
struct EightPlace {
  uint16_t* at;
  int count;

  // Asks for them: to 16 bytes of shared memory, by this thread's next WaitCopies. What is there of
  // other elements is open.
  FB_DEVICE void Fetch(std::byte* shared) const {
    if (whole()) return gpu::CopyAsync16(shared, at, true);
#pragma unroll 1
    for (int e = 0; e < count; ++e) As<uint16_t>(shared)[e] = at[e];
  }
  FB_DEVICE void Store(const std::byte* shared) const {
    if (whole()) {
      *reinterpret_cast<Whole*>(at) = *As<Whole>(shared);
      return;
    }
#pragma unroll 1
    for (int e = 0; e < count; ++e) at[e] = As<uint16_t>(shared)[e];
  }

 private:
  struct alignas(16) Whole {
    uint32_t pairs[kEight / 2];
  };
  FB_DEVICE bool whole() const {
    return count == kEight && reinterpret_cast<uintptr_t>(at) % sizeof(Whole) == 0;
  }
};

// Eight `eight` of a panel's part of a row; nothing where the row or the panel has ended.
FB_DEVICE EightPlace PlaceOf(const LinearOutputs& to, int row, int column, int width, int eight) {
  const int left = row < to.rows ? width - eight * kEight : 0;
  return {As<uint16_t>(to.y + InRows(to.form, row, column + eight * kEight, to.y_stride)),
          left < kEight ? left : kEight};
}

}  // namespace forebay::kernels::cuda

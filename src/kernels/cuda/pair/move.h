// A block copies bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/gpu.h"

namespace forebay::kernels::cuda {

struct alignas(16) Move16 {
  uint64_t low, high;
};

template <typename Unit>
FB_DEVICE void MoveUnits(std::byte* to, const std::byte* from, uint64_t bytes) {
  for (uint64_t i = gpu::Tid(); i < bytes / sizeof(Unit); i += gpu::Threads())
    reinterpret_cast<Unit*>(to)[i] = reinterpret_cast<const Unit*>(from)[i];
}

FB_DEVICE void MoveBytes(std::byte* to, const std::byte* from, uint64_t bytes) {
  const uint64_t odd = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
  if (odd % sizeof(Move16) == 0) {
    MoveUnits<Move16>(to, from, bytes);
  } else if (odd % sizeof(uint32_t) == 0) {
    MoveUnits<uint32_t>(to, from, bytes);
  } else {
    MoveUnits<std::byte>(to, from, bytes);
  }
}

}  // namespace forebay::kernels::cuda

// What a GPU can do at this moment, as operations of a cuda device: memory that is only read,
// products from registers. Profiles time them, as kernels/cpu/probes.h on a CPU.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/operation.h"

namespace forebay::kernels::cuda {

struct ReadProbe {
  const std::byte* data;
  int64_t bytes;    // a multiple of 16
  std::byte* sums;  // a word a block, 4 blocks a multiprocessor
};
void Read(const ReadProbe& args, const device::WorkerContext& context);

struct FmaProbe {
  int blocks;
  int64_t rounds;
  std::byte* sums;  // 1 KiB a block
};
void Multiply(const FmaProbe& args, const device::WorkerContext& context);
double FlopsOf(const FmaProbe& args);

}  // namespace forebay::kernels::cuda

// What the trials of a GPU take.
#pragma once

#include <cstdint>

namespace forebay::kernels::cuda {

// d = c + A B, one step of the tensor cores an output: a block has rows x columns outputs, whose
// operands lie behind those of the block before.
struct StepTrialParams {
  const uint16_t* a;  // [blocks, rows, 16] bf16
  const uint16_t* b;  // [blocks, columns, 16] bf16
  const float* c;     // [blocks, rows, columns]
  float* d;
};
inline constexpr int kMmaTrialRows = 16, kMmaTrialColumns = 8;
inline constexpr int kWgmmaTrialRows = 64, kWgmmaTrialColumns = 64;

// d = what the operation `which` makes of a, b and c, element by element.
enum class Arithmetic : int32_t { kFma, kAdd, kMultiply, kDivide, kRoot, kExp, kRoundToBF16 };
struct ArithmeticTrialParams {
  Arithmetic which;
  const uint32_t* a;  // bits of fp32
  const uint32_t* b;
  const uint32_t* c;
  uint32_t* d;
  int32_t count;
};

// Reads [0, words) of 16 bytes, each thread every grid's width; what is read comes to one number.
struct ReadTrialParams {
  const uint32_t* data;
  int64_t words;
  uint32_t* sum;  // [blocks]
};

// `rounds` rounds of kFmaChains fused multiply-adds a thread, each chain from its last sum.
struct FmaTrialParams {
  int64_t rounds;
  float factor, addend;
  float* sums;  // [blocks, kFmaThreads]
};
inline constexpr int kFmaChains = 8, kFmaThreads = 256;

}  // namespace forebay::kernels::cuda

// The size of a block of the KV cache, shared by books, kernels and schedules.
#pragma once

namespace forebay::kv {

// Positions of a block, and of a step of the online softmax.
inline constexpr int kBlockTokens = 32;

}  // namespace forebay::kv

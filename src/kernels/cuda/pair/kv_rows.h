// Where K and V of a step's rows lie (kernels/kv_layout.h), for kernels of every class.
#pragma once

#include "kernels/cuda/pair/arithmetic.h"

namespace forebay::kernels::cuda {

inline constexpr int kPositions = 32;  // kBlockTokens

FB_DEVICE std::byte* BlockOf(const KvParams& kv, uint32_t entry) {
  constexpr uint32_t kInWindow = 0x80000000u;
  const auto index = static_cast<int64_t>(entry & ~kInWindow);
  return (entry & kInWindow) != 0 ? kv.window + index * kv.layer_bytes
                                  : kv.resident + index * kv.block_stride;
}

// Which element of a head's K, or V, is element `j` of position `t` of the block. V begins
// key_dim * kPositions elements behind K.
FB_DEVICE int KeyAt(const KvParams& kv, int t, int j) {
  return kv.form == PackedForm::kCuda ? InHeadHalf(t, j) / 2 : (j / 2 * kPositions + t) * 2 + j % 2;
}
FB_DEVICE int ValueAt(const KvParams& kv, int t, int j) {
  return kv.form == PackedForm::kCuda ? InHeadHalf(t, j) / 2
                                      : (t / 2 * kv.value_dim + j) * 2 + t % 2;
}

// The sequence that row `row` of the step belongs to; -1: none of these. By one warp.
FB_DEVICE int FindSequence(const StepBatch& batch, int32_t row) {
  for (int32_t begin = 0; begin < batch.num_sequences; begin += gpu::kWarpLanes) {
    const int32_t s = begin + gpu::Lane();
    const bool mine = s < batch.num_sequences && row >= batch.sequences[s].first_row &&
                      row < batch.sequences[s].first_row + batch.sequences[s].num_rows;
    const uint32_t found = gpu::Ballot(mine);
    if (found != 0) return begin + gpu::PopCount((found & (0 - found)) - 1);
  }
  return -1;
}

// The first position that position `last` sees.
FB_DEVICE int32_t FirstSeen(const AttentionParams& args, int32_t last) {
  if (args.reach_window > 0) return last < args.reach_window ? 0 : last - args.reach_window + 1;
  return args.reach_chunk > 0 ? last - last % args.reach_chunk : 0;
}

}  // namespace forebay::kernels::cuda

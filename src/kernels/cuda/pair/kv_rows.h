// Where K and V of a step's rows lie (kernels/kv_layout.h), for kernels of every class.
#pragma once

#include "kernels/cuda/pair/arithmetic.h"

namespace forebay::kernels::cuda {

inline constexpr int kPositions = 32;  // kBlockTokens
// KvCodes' values.
enum : int32_t { kNoCodes, kFP8Codes, kInt8Codes };

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

// What a code stands for, before its scale; exact in bf16.
FB_DEVICE float FP8Value(uint8_t code) {
  const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24, size = code & 0x7F;
  if (size == 0x7F) return gpu::FromBits(sign | 0x7FC00000u);
  if (size < 8)  // multiples of 2^-9
    return gpu::FromBits(sign | gpu::Bits(static_cast<float>(size) * 0x1p-9f));
  return gpu::FromBits(sign | ((size << 20) + ((127 - 7) << 23)));
}
FB_DEVICE float CodeValue(int32_t codes, uint32_t code) {
  return codes == kFP8Codes ? FP8Value(static_cast<uint8_t>(code))
                            : static_cast<float>(static_cast<int8_t>(code));
}

// Where the scales of a head's part of a block begin: 32 of K, then of V. REQUIRES: codes of int8.
FB_DEVICE float* ScalesOf(const KvParams& kv, std::byte* part) {
  return As<float>(part + (kv.key_dim + kv.value_dim) * kPositions);
}

enum : uint64_t { kKeyDigest = 1, kValueDigest = 2 };

// The digest of a layer's row at a slot of a block. REQUIRES: there are digests.
FB_DEVICE void KeepDigest(const DigestParams& args, uint32_t entry, int slot, uint64_t digest) {
  constexpr uint32_t kInWindow = 0x80000000u;
  uint64_t& sum = args.digests[(entry & ~kInWindow) * int64_t{kPositions} + slot];
  sum = args.first_layer ? digest : sum + digest;
}

// Calls put(j, element) for the elements of a head and returns the hash of all; by one warp.
template <typename T, typename At, typename Put>
FB_DEVICE uint64_t PutHashed(int elements, uint64_t key, At at, Put put) {
  constexpr int kPer = kPerWord<T>;
  uint64_t sum = 0;
  for (int word = gpu::Lane(); word * kPer < elements; word += gpu::kWarpLanes) {
    uint64_t bits = 0;
    for (int i = 0; i < kPer && word * kPer + i < elements; ++i) {
      const T value = at(word * kPer + i);
      put(word * kPer + i, value);
      bits |= WordBits(value, i);
    }
    sum += DigestProduct(bits, word);
  }
  return base::Mix64(key + WarpSum(sum));
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

// The first position that `last` sees.
FB_DEVICE int32_t FirstSeen(const AttentionParams& args, int32_t last) {
  if (args.reach_window > 0) return last < args.reach_window ? 0 : last - args.reach_window + 1;
  return args.reach_chunk > 0 ? last - last % args.reach_chunk : 0;
}
// The last position that `position` sees of those of its sequence.
FB_DEVICE int32_t LastSeen(const AttentionParams& args, const SequenceRows& sequence,
                           int32_t position) {
  const int32_t end = sequence.first_position + sequence.num_rows - 1;
  return args.reach_ahead < end - position ? position + args.reach_ahead : end;
}

}  // namespace forebay::kernels::cuda

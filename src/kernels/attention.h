// Causal attention of a step's rows over the paged KV cache; prefill and decode are one operation with one order of sums:
//   KV is cut at absolute multiples of 1,024 positions; a part runs an online softmax in steps of 32 absolute positions
//   (block maximum, rescale where a row's maximum grew, probabilities, their sum), scores chained over head_dim pairs and
//   P.V over position pairs in the class's order (odd element first), probabilities rounded to T before P.V and summed
//   (unrounded, 16 fixed lanes and a fixed tree); parts merge in ascending order by one function, also on one thread;
//   the output is divided by the sum once and rounded once to T.
#pragma once

#include "device/device.h"
#include "kernels/kv_layout.h"
#include "kernels/step_batch.h"

namespace forebay::kernels {

struct KernelSet;

struct AttentionArgs {
  StepBatch batch;
  KvLayout layout;
  KvLayer layer;
  const std::byte* q = nullptr;  // [rows, heads, head_dim] of T, after rope, rounded
  std::byte* out = nullptr;      // [rows, heads, head_dim] of T
  int32_t heads = 0;             // query heads; query head h uses KV head h / (heads / kv_heads)
  float scale = 0;               // multiplies the fp32 score
  int32_t sliding_window = 0;    // 0: none; W: position i sees i-W+1 .. i
  int64_t context_tokens = 0;    // sum over rows of positions seen: for the price
};

void Attention(device::Stream& stream, const KernelSet& kernels, const AttentionArgs& args);

// From the fused fp32 projection: bias was added; per-head RMS norm of q and k (if weights are given), rope (halves:
// element i pairs with i + head_dim / 2), rounding to T; q goes to `q`, k and v into the KV blocks of each row's position.
// If digests are asked for, the hash of the rounded k and v is added to the position's digest (set, not added, by the
// first layer of a step, so that a recomputed position counts once).
struct RopeKvArgs {
  StepBatch batch;
  KvLayout layout;
  KvLayer layer;
  const float* qkv = nullptr;       // [rows, (heads + 2 kv_heads) * head_dim] fp32: q heads, k heads, v heads
  std::byte* q = nullptr;           // [rows, heads, head_dim] of T
  const float* q_norm = nullptr;    // [head_dim] or null
  const float* k_norm = nullptr;
  float norm_eps = 0;
  const float* rope_cos = nullptr;  // [positions, head_dim / 2] fp32, scaled; null: no rope on this layer
  const float* rope_sin = nullptr;
  int32_t heads = 0;
  uint64_t* digests = nullptr;      // [blocks * 32] by resident block index and position within it, or null
  int32_t layer_index = 0;
  bool first_layer = false;
};

void RopeKv(device::Stream& stream, const KernelSet& kernels, const RopeKvArgs& args);

}  // namespace forebay::kernels

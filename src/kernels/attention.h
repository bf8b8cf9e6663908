// Causal attention of a step's rows over the paged KV cache; prefill and decode are one operation
// with one order of sums, in which a row's result depends on its position and the KV it sees alone.
// Per row and query head (classes `mma_*`, of bf16: kernels/mma_attention.h):
//
//   KV is cut into parts at absolute multiples of 1,024 positions; each part that the row sees has
//   its own online
//   softmax, in steps of 32 absolute positions (the blocks that the row sees, ascending):
//     score[t] = scale * (chain over pairs of key_dim, odd element first, fp32 FMA), times the
//     key's own scale where the cache has such (kernels/kv_codes.h); unseen positions: -infinity
//     m' = maximum over the block (lanes t % 16, then the tree); if m' > m: sums and values *=
//     exp(m - m'), m = m'
//     p[t] = exp(score[t] - m), unseen exactly 0; sum lane t % 16 += p[t], ascending t
//     values[j] = chain of round(p[t]) v[t][j] over position pairs, odd first, from the first to
//     the last pair with a seen position; an unseen half counts as p = v = +0. Where the cache has
//     scales, p[t] meets the value's before it is rounded, unless it is 0
//   the part's sum is the tree over its 16 lanes; parts merge in ascending order (factors exp(m_old
//   - m), exp(m_part - m)
//   for m = max; sums and values fma(part, factor, old * old factor)); one part alone is taken as
//   it is;
//   out = round(values / sum).
//   With a cap c (of scores) a score is Cap(scale * chain, c). A sink is one more score of its head
//   that has no value: after the last part m' = max(m, sink), values *= exp(m - m'), sum =
//   fma(1, exp(sink - m'), sum * exp(m - m')).
//   The tree: lanes i and i + 8, then i + 4, i + 2, i + 1. max(a, b) = a > b ? a : b. exp is
//   kernels::Exp.
//
// Unseen positions are never used and may hold NaN: blocks need not be cleared.
#pragma once

#include <vector>

#include "base/reach.h"
#include "device/device.h"
#include "kernels/kv_layout.h"
#include "kernels/step_batch.h"

namespace forebay::kernels {

struct KernelSet;

struct AttentionArgs {
  StepBatch batch;  // other rows than those of its sequences are left alone
  KvLayout layout;
  KvLayer layer;
  const std::byte* q = nullptr;       // [rows, heads, key_dim] of T, after rope, rounded
  std::byte* out = nullptr;           // [rows, heads, value_dim] of T
  RowForm out_form = RowForm::kRows;  // kChunks: of T bf16, all heads of a row
  int32_t heads = 0;  // query heads; query head h uses KV head h / (heads / kv_heads)
  // Heads from one row of q and out to the next, where these have more than the operation's; 0:
  // `heads`. `q` and `out` point to the first of its own.
  int32_t row_heads = 0;
  float scale = 0;               // multiplies the fp32 score
  float score_cap = 0;           // 0: none
  const float* sinks = nullptr;  // [heads] or null
  base::Reach reach;             // what a row sees of its sequence
  // Whether the attention before it in the stream had this batch, reach, and count and size of
  // heads: what a device has found out of the rows holds on.
  bool as_before = false;
  ContextSums context;  // sums over all rows: for the price

  int64_t HeadsOfRow() const { return row_heads > 0 ? row_heads : heads; }
};

void Attention(device::Stream& stream, const KernelSet& kernels, const AttentionArgs& args);

// From the fused fp32 projection: bias was added; per-head RMS norm of q and k (if weights are
// given), rope (halves: element i pairs with i + head_dim / 2), a norm after it (if `norm_after`
// says so: with these weights in place of the norm before, or without), q times its position's
// `q_scale` (if given), a norm without weight of v (if `v_norm` says so), rounding to T; head_dim
// is both key_dim and value_dim; q goes to `q`, k and v into the KV blocks of each row's position,
// in codes where the cache has such. Norm: as RmsNorm, over head_dim. Rope: out[i] =
// fma(x[i], cos, -(x[i + half] sin)), out[i + half] = fma(x[i + half], cos, x[i] sin). If digests
// are asked for, the hash (digest.h) of k and v as they are kept is added to the position's digest
// (set, not added, by the first layer of a step, so that a recomputed position counts once);
// blocks are resident then.
struct RopeKvArgs {
  StepBatch batch;
  KvLayout layout;
  KvLayer layer;
  // [rows, (heads + 2 kv_heads) * head_dim] fp32: q heads, k heads, v heads
  const float* qkv = nullptr;
  std::byte* q = nullptr;         // [rows, heads, head_dim] of T
  const float* q_norm = nullptr;  // [head_dim] or null
  const float* k_norm = nullptr;
  float norm_eps = 0;
  bool norm_after = false;  // q and k are normed after rope, and not before
  bool v_norm = false;
  const float* q_scale = nullptr;  // [positions] or null
  // [positions, head_dim / 2] fp32, scaled; null: no rope on this layer
  const float* rope_cos = nullptr;
  const float* rope_sin = nullptr;
  int32_t heads = 0;
  int64_t prefill_rows = 0;  // ContextSums::prefill_rows, for the price
  // [blocks * 32] by resident block index and position within it, or null
  uint64_t* digests = nullptr;
  int32_t layer_index = 0;
  // logical number of the first KV head here: part of a digest's key
  int32_t first_kv_head = 0;
  // the number of first KV heads that are copies, counted in another rank's digest
  int32_t digested_elsewhere = 0;
  bool first_layer = false;
};

void RopeKv(device::Stream& stream, const KernelSet& kernels, const RopeKvArgs& args);

// For operations on a step's KV blocks. The layout is one that kernels can read (FB_CHECK), with so
// many query heads.
void CheckKvLayout(const char* label, const KvLayout& layout, int32_t heads);
// The operation reads the batch's positions and sequences.
void DeclareBatch(const StepBatch& batch, device::Operation* operation);
// The layer's part of the blocks, and the digests where there are any, that the step's rows write.
void WrittenBlocks(const StepBatch& batch, const KvLayout& layout, const KvLayer& layer,
                   const uint64_t* digests, std::vector<device::Access>* accesses);

}  // namespace forebay::kernels

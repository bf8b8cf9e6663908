// Attention of classes `amx_*_p1024`, in which tiles multiply scores and values too; linear layers
// are those of class `amx_*` (kernels/tile_order.h). The arguments are those of
// kernels/attention.h; what follows takes the place of its order of sums, for bf16 that is not kept
// in codes. Per row and query head, with c = scale * log2(e) rounded to fp32:
//
//   KV is cut into parts at absolute multiples of 1,024 positions. A part that holds a position
//   that the row sees is one step of the softmax: nothing within it is rescaled.
//     score[t] = chain of tile steps over key_dim, padded with +0 to whole steps
//     M = ceil(greatest score that is seen * c) - 1, a whole number
//     p[t] = MmaProbability(score[t]) (kernels/mma_attention.h), unseen exactly 0
//     a lane t % 16 adds its p[t], ascending; the part's sum is the tree over its 16 lanes
//     values[j] = chain of tile steps over the part's blocks of 32 positions, of round(p[t]) and
//     v[t][j]; what is not seen counts as p = v = +0
//   Parts merge in ascending order as in classes `mma_*`, caps of scores and sinks count as there,
//   and out[j] = round(fma(values[j], 1 / sum, 0)).
//
// A NaN among scores does not count for their maximum. round(p[t]) flushes denormals, as tiles and
// compute threads do. Zeros before and behind what a row sees change no byte: a value of -0 becomes
// +0 at the end. So any rows may pass the tiles together.
#pragma once

#include "device/operation.h"
#include "kernels/kv_layout.h"
#include "kernels/linear_sets.h"
#include "kernels/tile_order.h"

namespace forebay::kernels {

struct AttentionArgs;
using AttentionFunction = void (*)(const AttentionArgs&, const device::WorkerContext&);

// "amx_split_p1024", ...
const char* PartClassOf(TileOrder order);

namespace ref {
// The oracle; null for kUnknown. Of fp32 as class `pair`.
AttentionFunction TileAttention(TileOrder order);
}  // namespace ref
namespace amx {
// Of fp32 as avx512f. REQUIRES of both: the calling threads flush denormals (FTZ and DAZ).
void Attention(const AttentionArgs& args, const device::WorkerContext& context);
// The same loop around tiles in plain C++ that sum in this order, on any machine with AVX2 (of fp32
// as avx2). For tests.
AttentionFunction AttentionOnModelTiles(TileOrder order);
}  // namespace amx

// Scores from one line to the next: no power of two, or the rows of a tile would share a set of the
// first cache.
inline constexpr int64_t kScoreStride = kPartTokens + 16;
// Blocks of a part that are rounded to probabilities, and whose values are copied, at a time.
inline constexpr int kChunkBlocks = 4;
}  // namespace forebay::kernels

// Numerics class `amx`: the order in which tiles (TDPBF16PS) add products of bf16.
//
// Per output and leaf one chain of steps of 32 values of K, from +0 on; a leaf is padded with +0 to
// whole steps. A step adds 16 pairs of products to a sum in fp32 by fused multiply-adds, rounded to
// nearest even, denormals flushed (inputs and results). Intel's documents disagree on the order
// within a step, so that the class has one name for each order that may be met, and a machine's is
// found by trial at start.
#pragma once

#include <cstdint>

#include "kernels/linear.h"
#include "tensor/bf16.h"

namespace forebay::kernels {

enum class TileOrder : uint8_t {
  // even elements in one chain from +0, odd ones in another; their sum is added (SDM, page of
  // TDPBF16PS)
  kSplit,
  kEvenFirst,  // one chain, the even element of each pair first (Intrinsics Guide, _tile_dpbf16ps)
  kOddFirst,   // one chain, the odd element first, as class `pair`
  kUnknown,    // none of the known orders
};
inline constexpr TileOrder kTileOrders[] = {TileOrder::kSplit, TileOrder::kEvenFirst,
                                            TileOrder::kOddFirst};
inline constexpr int kTileDepth = 32;

// "amx_split", ...
const char* NumericsClassOf(TileOrder order);

// The order whose oracle gives the bytes of `linear` for random numbers: sums that round, that
// cancel, around the denormal border, of any size; no NaN. kUnknown: none does. A few milliseconds.
TileOrder FindTileOrder(LinearFunction linear);

namespace ref {
// sum + one step. x, w: 32 elements. REQUIRES: denormals are flushed.
float TileStep(TileOrder order, const tensor::BF16* x, const tensor::BF16* w, float sum);
}  // namespace ref

}  // namespace forebay::kernels

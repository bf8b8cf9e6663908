// y = x W^T (+ bias), the linear layers. Exactness: per output and leaf one fp32 FMA chain over K,
// the odd element of each pair first, then the even one (class `pair`; of bf16 alone: class
// `amx`, kernels/tile_order.h; classes `mma_*`, kernels/mma_order.h), denormals flushed; leaves are
// added in a fixed binary tree keyed by leaf index (neighbours 2i and 2i+1 at each level; a leaf
// without a partner passes up unchanged).
#pragma once

#include <cstdint>

#include "device/device.h"
#include "kernels/packed_weight.h"

namespace forebay::kernels {

struct KernelSet;

// What becomes of a sum s = tree(leaves) + bias:
enum class LinearOutput : uint8_t {
  kF32,       // y fp32 = s
  kRounded,   // y T = round(s)
  kResidual,  // y T = round(s + y): y is the residual stream, read and written
  kSiluMul,   // gate/up weights: y T = round(silu(s_gate) * s_up)
  // y fp32 planes: one a maximal subtree of the leaves given (no bias); see PartialPlanes
  kPartial,
  kGeluMul,         // gate/up weights: y T = round(gelu(s_gate) * s_up), see kernels::Gelu
  kClampedSiluMul,  // gate/up weights: y T = round(ClampedSilu(s_gate) * (clamped s_up + 1))
  kErfGelu,         // y T = round(erf_gelu(s)), see kernels::ErfGelu
  kErfGeluMul,      // gate/up weights: y T = round(erf_gelu(s_gate) * s_up)
  kReluSquared,     // y T = round(max(s, 0)^2)
};

// Whether the weight holds gate and up, and the output is their product.
constexpr bool IsGated(LinearOutput output) {
  return output == LinearOutput::kSiluMul || output == LinearOutput::kGeluMul ||
         output == LinearOutput::kClampedSiluMul || output == LinearOutput::kErfGeluMul;
}

struct LinearArgs {
  PackedWeight weight;
  const std::byte* x = nullptr;  // [.., K] of T = weight.dtype, row stride x_stride elements
  // [rows]: row i is row x_rows[i] of x, gathered while x is packed; null: row i. Experts have it.
  const int32_t* x_rows = nullptr;
  // [rows, n], row stride y_stride elements; kPartial: [planes, rows, n] fp32
  std::byte* y = nullptr;
  int64_t x_stride = 0, y_stride = 0;
  // Rows of x are codes (ExpertsArgs::codes), x_stride bytes apart. Experts of int8 have it.
  bool coded_x = false;
  // Of x kChunks only where RowFormOf(weight) is, of y where the output is T and its next reader
  // says so; the stride is the row's elements then.
  RowForm x_form = RowForm::kRows, y_form = RowForm::kRows;
  int32_t rows = 0;
  LinearOutput output = LinearOutput::kRounded;
  // The weight's leaves that count: for all but kPartial every one, and every one of the layer.
  int32_t leaf_begin = 0, leaf_end = 0;
  // Room for the packed form of x, shared by the workers: LinearWorkspaceBytes, 64-byte aligned.
  std::byte* workspace = nullptr;
};

// What a set computes a layer with, called on each worker. REQUIRES: the calling threads flush
// denormals (FTZ and DAZ).
using LinearFunction = void (*)(const LinearArgs& args, const device::WorkerContext& context);

// How the layer's x is read as it lies: kChunks where weights of bf16 lie in chunks and all leaves
// of K are whole ones. Operations that write x for this layer alone write it so.
RowForm RowFormOf(const PackedWeight& weight);

// Bytes of workspace that rows x K of `dtype` need, for any kernel set whose weights of bf16 lie in
// this form.
uint64_t LinearWorkspaceBytes(tensor::DType dtype, int64_t rows, int64_t k,
                              PackedForm packed = PackedForm::kPairs);

// Maximal subtrees of the fixed tree over num_leaves leaves that lie in [leaf_begin, leaf_end),
// ascending: writes the first leaf and the level of each; returns how many. (8 leaves over 3 ranks:
// rank 0 owns 3 = one subtree of 2, one of 1.)
int PartialPlanes(int num_leaves, int leaf_begin, int leaf_end, int first_leaf[kMaxLeaves],
                  int level[kMaxLeaves]);
// Planes of the weight's leaves [leaf_begin, leaf_end) in the tree of the whole layer; first_leaf
// counts there.
int PartialPlanes(const LeafBorders& leaves, int leaf_begin, int leaf_end,
                  int first_leaf[kMaxLeaves], int level[kMaxLeaves]);

// Checks the arguments (FB_CHECK), describes the operation and enqueues it.
void Linear(device::Stream& stream, const KernelSet& kernels, const char* label,
            const LinearArgs& args);

}  // namespace forebay::kernels

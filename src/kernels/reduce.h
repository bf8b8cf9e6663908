// The second half of a linear layer whose leaves lie on several ranks: the partial planes of all of
// them (LinearOutput:: kPartial) are added in the fixed tree of linear.h, and the sum is finished
// as a whole layer would finish it. The result has the same bytes for every split.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "kernels/linear.h"

namespace forebay::kernels {

// One maximal subtree, own or a peer's; see PartialPlanes.
struct ReducePlane {
  const float* sums = nullptr;  // [rows, n], row stride `stride`
  int32_t first_leaf = 0, level = 0;
};

struct ReduceArgs {
  tensor::DType dtype = tensor::DType::kBF16;     // T
  LinearOutput output = LinearOutput::kResidual;  // kResidual, kRounded or kF32
  ReducePlane planes[kMaxLeaves];                 // ascending; together all leaves, each once
  int32_t num_planes = 0, num_leaves = 0;
  const float* bias = nullptr;  // [n] or null
  // [rows, n] as `output` says, row stride y_stride
  std::byte* y = nullptr;
  // What kResidual adds the sum to, laid out as y is; null: y itself.
  const std::byte* residual = nullptr;
  int64_t stride = 0, y_stride = 0;  // elements
  int32_t rows = 0, n = 0;
  // Rows of all ranks; this rank adds its part of them, the others theirs. 0: it adds
  // all.
  int32_t of_rows = 0;
  int32_t ranks = 1;               // whose planes these are: for the price
  int32_t wire_bytes = 4;          // an element's bytes between ranks: for the price
  int8_t merges[kMaxLeaves] = {};  // filled in by ReducePlanes
};

// Appends the planes of a rank that owns leaves [leaf_begin, leaf_end) of args->num_leaves, packed
// at `sums` as Linear writes them. REQUIRES: args->rows and stride are
// set; ranks in the order of their leaves.
void AddPlanes(int leaf_begin, int leaf_end, const float* sums, ReduceArgs* args);
// How many planes that rank writes.
int NumPlanes(int num_leaves, int leaf_begin, int leaf_end);

// Takes rows [begin, begin + rows) of the planes alone. REQUIRES: all planes were added.
void KeepRows(int64_t begin, int32_t rows, ReduceArgs* args);

// Checks the arguments (FB_CHECK), describes the operation (an all-reduce of `ranks` ranks, with
// of_rows a reduce-scatter) and enqueues it.
void ReducePlanes(device::Stream& stream, const KernelSet& kernels, const char* label,
                  ReduceArgs args);

}  // namespace forebay::kernels

// The matrices of a mixture of experts: row p of the grouped order (kernels/route.h) goes through
// the matrix of its expert. Exactness: a row has the bytes that a dense layer (kernels/linear.h) of
// that matrix, one leaf, would give it, however many rows are beside it.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "kernels/linear.h"

namespace forebay::kernels {

struct ExpertsArgs {
  // What every expert's matrix is like: one leaf. `tiles` is null, see runs. `bias`: those of all
  // experts one after another, [num_experts, num_panels * kPanelColumns]; null: there is none.
  PackedWeight weight;
  // [num_experts]: the tiles of an expert, panel after panel in one run. Runs lie anywhere.
  const std::byte* const* runs = nullptr;
  // [num_experts + 1] in control memory: expert e has rows [offsets[e], offsets[e + 1]) of the
  // grouped order, of which the first rows may be other experts'. Read when the operation runs.
  const int32_t* offsets = nullptr;
  int32_t num_experts = 0;
  int32_t max_rows = 0;          // the grouped order has at most; offsets[num_experts] is no more
  const std::byte* x = nullptr;  // [.., K] of T = weight.dtype
  const int32_t* x_rows = nullptr;     // [max_rows]: row p is row x_rows[p] of x; null: row p
  int32_t x_count = 0;                 // with x_rows: rows of x, one for each
  std::byte* y = nullptr;              // [max_rows, n] of T in grouped order
  int64_t x_stride = 0, y_stride = 0;  // elements
  LinearOutput output = LinearOutput::kRounded;  // or gated
  // Of weights of kW8A8 with x_rows: where the codes of all rows of x go, which experts then share,
  // [x_count] times CodedRowBytes(k). `coded`: an operation before has made them. Null: each
  // expert's rows become codes on the way.
  std::byte* codes = nullptr;
  bool coded = false;
  // Heads in place of experts, for Heads alone: `runs` and `offsets` are null, weight.tiles is
  // [num_experts * num_panels], and every head takes rows [0, max_rows) of an x and a y of its own,
  // so many elements behind those of the head before.
  int64_t x_step = 0, y_step = 0;

  bool heads() const { return offsets == nullptr; }
  // The expert's rows of the grouped order.
  int64_t FirstRow(int32_t expert) const {
    return heads() ? int64_t{expert} * max_rows : offsets[expert];
  }
  int32_t RowsOf(int32_t expert) const {
    return heads() ? max_rows : offsets[expert + 1] - offsets[expert];
  }
  // Elements from x and from y to the expert's first row; of x where rows are not gathered.
  int64_t FirstX(int32_t expert) const {
    return heads() ? expert * x_step : offsets[expert] * x_stride;
  }
  int64_t FirstY(int32_t expert) const {
    return heads() ? expert * y_step : offsets[expert] * y_stride;
  }
  const float* Bias(int32_t expert) const {
    return weight.bias == nullptr
               ? nullptr
               : weight.bias + int64_t{expert} * weight.num_panels * kPanelColumns;
  }
  const std::byte* Tile(int32_t expert, int32_t panel) const {
    return heads() ? weight.tiles[expert * weight.num_panels + panel]
                   : runs[expert] + panel * weight.TileBytes(0, 0);
  }
};

using ExpertsFunction = void (*)(const ExpertsArgs& args, const device::WorkerContext& context);

// A row of K inputs as codes, with its scale.
constexpr int64_t CodedRowBytes(int64_t k) {
  return (k + kQuadValues - 1) / kQuadValues * kQuadValues + static_cast<int64_t>(sizeof(float));
}

// Bytes of worker scratch that these matrices need, in any kernel set. `stored`: some tiles are not
// expanded.
uint64_t ExpertsScratch(tensor::DType dtype, int64_t max_rows, int64_t k, int64_t num_panels,
                        bool stored);

// Checks the arguments (FB_CHECK) and enqueues the operation, which completes its description from
// the offsets when it begins: rows, flops, and the bytes of the experts that have rows.
void Experts(device::Stream& stream, const KernelSet& kernels, const char* label,
             const ExpertsArgs& args);
// The same for a matrix a head: all heads have all rows, and nothing is left to complete.
void Heads(device::Stream& stream, const KernelSet& kernels, const char* label,
           const ExpertsArgs& args);

}  // namespace forebay::kernels

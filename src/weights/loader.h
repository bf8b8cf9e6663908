// Reads tensors, rounds them once to the compute type and packs them where the memory plan says.
#pragma once

#include <span>

#include "device/device.h"
#include "weights/matrix_plan.h"
#include "weights/tensor_reader.h"

namespace forebay::weights {

// Where a matrix lies, or where those of a layer's experts lie. Its tables are control memory.
struct PlacedWeight {
  kernels::PackedWeight weight;            // experts': what one's is like, without tiles
  const std::byte* const* runs = nullptr;  // [num_experts]: an expert's tiles, panel after panel
  int32_t num_experts = 0;                 // 0: it is one matrix
};

struct PlacedMatrix {
  const MatrixPlan* plan = nullptr;
  PlacedWeight placed;
};

// Cuts tables of where the runs lie, panel table and bias out of `tables`, control memory. All runs
// are null: not kept here and not loaded, until SetRun says where one is.
PlacedWeight PlaceMatrix(const MatrixPlan& plan, device::RegionCutter* tables);
// The number of pointers to its runs; and the runs with their own pointers, as many, at
// `pointers`.
size_t NumRuns(const PlacedWeight& placed);
PlacedWeight WithOwnRuns(PlacedWeight placed, const std::byte** pointers);
void SetRun(const PlacedWeight& placed, const RunPlace& run, const std::byte* memory);

// Checks every tensor's shape first, then reads and packs with `num_threads` threads. `device`:
// whose memory is filled; null: the host reaches it.
base::Status LoadMatrices(const TensorReader& reader, std::span<const PlacedMatrix> matrices,
                          int num_threads, device::Device* device = nullptr);

// A tensor of this shape, rounded to `dtype` and widened again, at `out`.
base::Status LoadVector(const TensorReader& reader, const std::string& name,
                        const tensor::Shape& shape, tensor::DType dtype, float* out);

// A matrix [rows, columns] row by row, rounded to `dtype`, at `out`. `device`: as above.
base::Status LoadRowMajor(const TensorReader& reader, const std::string& name, int64_t rows,
                          int64_t columns, tensor::DType dtype, std::byte* out, int num_threads,
                          device::Device* device = nullptr);

}  // namespace forebay::weights

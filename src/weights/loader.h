// Reads tensors, rounds them once to the compute type and packs them where the memory plan says.
#pragma once

#include <functional>
#include <span>

#include "device/device.h"
#include "weights/matrix_plan.h"
#include "weights/tensor_reader.h"

namespace forebay::weights {

// A matrix with its memory: `weight` points into the arena; tiles are filled by LoadMatrices.
struct PlacedMatrix {
  const MatrixPlan* plan = nullptr;
  kernels::PackedWeight weight;
};

// Asks `tile` for each tile's memory, in order (leaf, panel); null: the tile is not kept here and will not be loaded. Cuts
// tile pointers, panel table and bias out of `tables`, control memory.
PlacedMatrix PlaceMatrix(const MatrixPlan& plan, const std::function<std::byte*(uint64_t bytes)>& tile,
                         device::RegionCutter* tables);

// Checks every tensor's shape first, then reads and packs with `num_threads` threads.
base::Status LoadMatrices(const TensorReader& reader, std::span<const PlacedMatrix> matrices, int num_threads);

// A vector tensor [size], rounded to `dtype` and widened again, at `out`.
base::Status LoadVector(const TensorReader& reader, const std::string& name, int64_t size, tensor::DType dtype, float* out);

// A matrix [rows, columns] row by row, rounded to `dtype`, at `out`.
base::Status LoadRowMajor(const TensorReader& reader, const std::string& name, int64_t rows, int64_t columns,
                          tensor::DType dtype, std::byte* out, int num_threads);

}  // namespace forebay::weights

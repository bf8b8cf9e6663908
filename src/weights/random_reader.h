// Random weights, for benchmarks of a bare config.json. Results say so.
#pragma once

#include <map>

#include "weights/tensor_reader.h"

namespace forebay::weights {

// Values are a pure function of (seed, tensor name, index): uniform with mean 0 and deviation 0.02
// for matrices, and 1 for vectors whose name ends in "norm.weight". Any name and shape that the
// declared table asks for exists.
class RandomReader : public TensorReader {
 public:
  RandomReader(uint64_t seed, std::map<std::string, tensor::Shape, std::less<>> shapes);
  base::Result<tensor::Shape> ShapeOf(std::string_view name) const override;
  bool Has(std::string_view name) const override;
  base::Status ReadRows(std::string_view name, int64_t begin, int64_t end,
                        float* out) const override;

 private:
  uint64_t seed_;
  std::map<std::string, tensor::Shape, std::less<>> shapes_;
};

}  // namespace forebay::weights

// What a pooled row goes through: dense layers that sentence-transformers puts behind a pooling, or
// those of a head that gives labels. They run on the host, once a text, with weights as files store
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "weights/tensor_reader.h"

namespace forebay::model {

struct DenseLayer {
  enum class Activation : uint8_t { kNone, kTanh, kErfGelu };
  std::string folder;  // beside the model, whose tensors they are; "": they are the model's own
  std::string name;    // tensors name.weight [out, in] and, with a bias, name.bias [out]
  int64_t in = 0, out = 0;
  bool bias = true;
  Activation activation = Activation::kNone;
  std::string norm;  // LayerNorm behind it, without bias: its weight [out]; "": there is none
  float norm_eps = 0;

  // Its tensors and their shapes.
  std::vector<std::pair<std::string, tensor::Shape>> Tensors() const;
  friend bool operator==(const DenseLayer&, const DenseLayer&) = default;
};

// Immutable once its layers are there; any thread may apply it.
class DenseHead {
 public:
  // The next layer, whose tensors are the reader's. Errors name the tensor.
  base::Status Add(const DenseLayer& layer, const weights::TensorReader& reader);
  // One output, whose weights of the inputs these are, and nothing else.
  void AddOutput(const std::string& name, std::vector<float> weight);

  // Sums are in double, over inputs in ascending order, and rounded to fp32 with the bias; then the
  // activation and the norm, in fp32. REQUIRES: as many numbers as the first layer has inputs.
  std::vector<float> Apply(std::vector<float> row) const;

 private:
  struct Loaded {
    DenseLayer layer;
    std::vector<float> weight;      // [in, out]
    std::vector<float> bias, norm;  // [out], or empty
  };
  std::vector<Loaded> layers_;
};

// The vector of so many rows, of which `sum` has the sums in double, in the order of positions:
// their mean, rounded to fp32, and what the head, if there is one, makes of it.
std::vector<float> VectorOf(std::span<const double> sum, int64_t rows, const DenseHead* head);

}  // namespace forebay::model

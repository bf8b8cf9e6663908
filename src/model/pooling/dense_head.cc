#include "model/pooling/dense_head.h"

#include <cmath>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "kernels/exp.h"
#include "weights/loader.h"

namespace forebay::model {
namespace {

float Activated(DenseLayer::Activation activation, float x) {
  switch (activation) {
    case DenseLayer::Activation::kNone: break;
    case DenseLayer::Activation::kTanh: return kernels::Tanh(x);
    case DenseLayer::Activation::kErfGelu: return kernels::ErfGelu(x);
  }
  return x;
}

void NormRow(const std::vector<float>& weight, float eps, std::vector<float>* row) {
  const auto size = static_cast<double>(row->size());
  double sum = 0, squares = 0;
  for (const float x : *row) sum += x;
  const double mean = sum / size;
  for (const float x : *row) squares += (x - mean) * (x - mean);
  const double scale = 1 / std::sqrt(squares / size + eps);
  for (size_t i = 0; i < row->size(); ++i)
    (*row)[i] = static_cast<float>(((*row)[i] - mean) * scale * weight[i]);
}

}  // namespace

std::vector<std::pair<std::string, tensor::Shape>> DenseLayer::Tensors() const {
  std::vector<std::pair<std::string, tensor::Shape>> tensors = {{name + ".weight", {out, in}}};
  if (bias) tensors.emplace_back(name + ".bias", tensor::Shape{out});
  if (!norm.empty()) tensors.emplace_back(norm, tensor::Shape{out});
  return tensors;
}

base::Status DenseHead::Add(const DenseLayer& layer, const weights::TensorReader& reader) {
  Loaded loaded{.layer = layer};
  const auto load = [&](const std::string& tensor, const tensor::Shape& shape,
                        std::vector<float>* values) {
    values->resize(static_cast<size_t>(shape.elements()));
    return weights::LoadVector(reader, tensor, shape, tensor::DType::kF32, values->data());
  };
  std::vector<float> stored;  // [out, in]
  FB_RETURN_IF_ERROR(load(layer.name + ".weight", {layer.out, layer.in}, &stored));
  if (layer.bias) FB_RETURN_IF_ERROR(load(layer.name + ".bias", {layer.out}, &loaded.bias));
  if (!layer.norm.empty()) FB_RETURN_IF_ERROR(load(layer.norm, {layer.out}, &loaded.norm));
  for (int64_t in = 0; in < layer.in; ++in) {
    for (int64_t out = 0; out < layer.out; ++out)
      loaded.weight.push_back(stored[static_cast<size_t>(out * layer.in + in)]);
  }
  layers_.push_back(std::move(loaded));
  return base::Status::Ok();
}

void DenseHead::AddOutput(const std::string& name, std::vector<float> weight) {
  layers_.push_back({.layer = {.name = name, .in = std::ssize(weight), .out = 1, .bias = false},
                     .weight = std::move(weight)});
}

std::vector<float> DenseHead::Apply(std::vector<float> row) const {
  for (const Loaded& loaded : layers_) {
    const auto outputs = static_cast<size_t>(loaded.layer.out);
    FB_CHECK(std::ssize(row) == loaded.layer.in, "{} numbers for {} of {} inputs", row.size(),
             loaded.layer.name, loaded.layer.in);
    // Outputs lie side by side, so that their chains run beside each other.
    std::vector<double> sums(outputs);
    const float* weight = loaded.weight.data();
    for (const float x : row) {
      for (size_t out = 0; out < outputs; ++out) sums[out] += static_cast<double>(x) * weight[out];
      weight += outputs;
    }
    row.resize(outputs);
    for (size_t out = 0; out < outputs; ++out) {
      const double bias = loaded.bias.empty() ? 0 : loaded.bias[out];
      row[out] = Activated(loaded.layer.activation, static_cast<float>(sums[out] + bias));
    }
    if (!loaded.norm.empty()) NormRow(loaded.norm, loaded.layer.norm_eps, &row);
  }
  return row;
}

std::vector<float> VectorOf(std::span<const double> sum, int64_t rows, const DenseHead* head) {
  std::vector<float> vector;
  vector.reserve(sum.size());
  for (const double of_rows : sum)
    vector.push_back(static_cast<float>(of_rows / static_cast<double>(rows)));
  return head != nullptr ? head->Apply(std::move(vector)) : vector;
}

}  // namespace forebay::model

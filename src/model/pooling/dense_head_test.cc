#include "model/pooling/dense_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "weights/random_reader.h"

namespace forebay::model {
namespace {

using ::testing::ElementsAre;

weights::RandomReader ReaderOf(const DenseLayer& layer) {
  std::map<std::string, tensor::Shape, std::less<>> shapes;
  for (const auto& [name, shape] : layer.Tensors()) shapes.emplace(name, shape);
  return {7, std::move(shapes)};
}

std::vector<float> ValuesOf(const weights::RandomReader& reader, const std::string& name) {
  const tensor::Shape shape = *reader.ShapeOf(name);
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  EXPECT_TRUE(reader.ReadRows(name, 0, shape.rank() > 1 ? shape[0] : 1, values.data()).ok());
  return values;
}

// What the layer says, in double with libm.
std::vector<double> Expected(const DenseLayer& layer, const weights::RandomReader& reader,
                             const std::vector<float>& row) {
  const std::vector<float> weight = ValuesOf(reader, layer.name + ".weight");
  std::vector<double> out;
  for (int64_t i = 0; i < layer.out; ++i) {
    double sum = layer.bias ? ValuesOf(reader, layer.name + ".bias")[static_cast<size_t>(i)] : 0;
    for (int64_t j = 0; j < layer.in; ++j)
      sum += static_cast<double>(weight[static_cast<size_t>(i * layer.in + j)]) *
             row[static_cast<size_t>(j)];
    if (layer.activation == DenseLayer::Activation::kTanh) sum = std::tanh(sum);
    if (layer.activation == DenseLayer::Activation::kErfGelu)
      sum *= 0.5 * (1 + std::erf(sum / std::sqrt(2.0)));
    out.push_back(sum);
  }
  if (layer.norm.empty()) return out;
  double mean = 0, variance = 0;
  for (const double x : out) mean += x / static_cast<double>(out.size());
  for (const double x : out) variance += (x - mean) * (x - mean) / static_cast<double>(out.size());
  for (double& x : out) x = (x - mean) / std::sqrt(variance + layer.norm_eps);
  return out;
}

TEST(DenseHead, ALayerIsWhatItSays) {
  using Activation = DenseLayer::Activation;
  for (const DenseLayer& layer :
       {DenseLayer{.name = "a", .in = 5, .out = 3},
        DenseLayer{.name = "b", .in = 4, .out = 4, .bias = false, .activation = Activation::kTanh},
        DenseLayer{.name = "c",
        .in = 6,
        .out = 8,
        .activation = Activation::kErfGelu,
        .norm = "c.norm.weight",
        .norm_eps = 1e-5f}}) {
    const weights::RandomReader reader = ReaderOf(layer);
    DenseHead head;
    ASSERT_TRUE(head.Add(layer, reader).ok());
    std::vector<float> row;
    for (int64_t i = 0; i < layer.in; ++i) row.push_back(static_cast<float>(20 * (i % 3) - 15));
    const std::vector<double> expected = Expected(layer, reader, row);
    const std::vector<float> found = head.Apply(row);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 3e-6) << layer.name << i;
  }
}

TEST(DenseHead, LayersFollowEachOther) {
  DenseHead head;
  head.AddOutput("sum", {1, 2, 3});
  head.AddOutput("twice", {2});
  EXPECT_THAT(head.Apply({1, 0, -1}), ElementsAre(-4));
}

TEST(DenseHead, ErrorsNameTheTensor) {
  const DenseLayer layer{.name = "a", .in = 5, .out = 3};
  DenseLayer wider = layer;
  wider.in = 6;
  DenseHead head;
  EXPECT_THAT(head.Add(wider, ReaderOf(layer)).message(), testing::HasSubstr("a.weight"));
  wider = layer;
  wider.name = "b";
  EXPECT_EQ(head.Add(wider, ReaderOf(layer)).code(), weights::kTensorMissing);
}

}  // namespace
}  // namespace forebay::model

#include "weights/formats/dequantize.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/expand.h"
#include "testing/test_data.h"
#include "weights/formats/mapped_file.h"
#include "weights/formats/safetensors.h"
#include "weights/formats/unpack.h"

namespace forebay::weights {
namespace {

using tensor::DType;

const TensorInfo& Named(const SafetensorsFile& file, std::string_view name) {
  for (const TensorInfo& tensor : file.tensors) {
    if (tensor.name == name) return tensor;
  }
  ADD_FAILURE() << name << " is missing";
  return file.tensors[0];
}

class GoldenBlocks : public testing::TestWithParam<DType> {};

TEST_P(GoldenBlocks, AreBitExact) {
  const std::string type(Name(GetParam()));
  auto file = MappedFile::Open(TestData() + "/golden/quant/" + type + ".safetensors");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  auto parsed = ParseSafetensors(file->bytes());
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const TensorInfo& raw = Named(*parsed, "raw");
  const TensorInfo& expected = Named(*parsed, "dequantized");
  ASSERT_EQ(raw.data.size(), tensor::BytesOf(GetParam(), expected.shape.elements()));
  std::vector<float> values(expected.shape.elements());
  ExpandElements(GetParam(), raw.data.data(), expected.shape.elements(), values.data());
  EXPECT_EQ(std::memcmp(values.data(), expected.data.data(), expected.data.size()), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, GoldenBlocks,
                         testing::Values(DType::kQ8_0, DType::kQ4_0, DType::kQ4_1),
                         [](const auto& info) { return std::string(Name(info.param)); });

// Types that are read as codes and scales: those blocks' values, and what their tiles hold.
class GoldenForms : public testing::TestWithParam<const char*> {};

TEST_P(GoldenForms, AreBitExact) {
  const std::string type = GetParam();
  auto file = MappedFile::Open(TestData() + "/golden/quant/" + type + ".safetensors");
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  auto parsed = ParseSafetensors(file->bytes());
  ASSERT_TRUE(parsed.ok()) << parsed.status().ToString();
  const TensorInfo& raw = Named(*parsed, "raw");
  const TensorInfo& expected = Named(*parsed, "dequantized");
  uint32_t id = 0;
  while (FindGgmlType(id) == nullptr || FindGgmlType(id)->name != type) ++id;
  const StoredType& stored = *FindGgmlType(id);
  const int64_t count = expected.shape.elements();
  ASSERT_EQ(raw.data.size(),
            static_cast<size_t>(count) / stored.format.elements * stored.format.bytes);
  std::vector<float> values(static_cast<size_t>(count));
  ExpandBlocks(stored.form, raw.data.data(), count, values.data());
  EXPECT_EQ(std::memcmp(values.data(), expected.data.data(), expected.data.size()), 0);

  StoredRowMemory row;
  UnpackBlocks(stored.form, raw.data.data(), count, &row);
  EXPECT_EQ(FindBadGroup(stored.form, row, count), -1);
  const kernels::StoredRow view = row.view();
  const kernels::StoredRow* columns[kernels::kPanelColumns] = {};
  columns[9] = &view;
  std::vector<std::byte> tile(static_cast<size_t>(kernels::PartsOf(stored.form, 0, count).bytes));
  kernels::PackTile(stored.form, 0, count, columns, tile.data());
  std::vector<float> column(values.size());
  kernels::ref::ExpandColumn({stored.form, DType::kF32, tile.data(), 0, count, 0, count / 2,
                              reinterpret_cast<std::byte*>(column.data())},
                             9);
  EXPECT_EQ(std::memcmp(column.data(), expected.data.data(), expected.data.size()), 0);
}

INSTANTIATE_TEST_SUITE_P(Types, GoldenForms,
                         testing::Values("Q8_0", "Q6_K", "Q5_K", "Q4_K", "Q3_K", "Q2_K", "Q5_1",
                                         "Q5_0", "Q4_1", "Q4_0", "IQ4_XS", "IQ4_NL"),
                         [](const auto& info) { return std::string(info.param); });

// The value of a half by its definition.
float HalfByDefinition(uint32_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  const float sign = half & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 31) return mantissa ? std::numeric_limits<float>::quiet_NaN() : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(mantissa), -24);
  return sign * std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
}

TEST(ExpandElements, ReadsEveryHalf) {
  std::vector<uint16_t> halves(65536);
  for (uint32_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  // Some by the loop over whole blocks, some by the loop over what is left.
  float values[33];
  for (uint32_t i = 0; i + 33 <= halves.size(); ++i) {
    ExpandElements(DType::kF16, reinterpret_cast<const std::byte*>(&halves[i]), 33, values);
    for (uint32_t j : {0u, 32u}) {
      const float expected = HalfByDefinition(i + j);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(values[j])) << i + j;
      } else {
        ASSERT_EQ(std::memcmp(&values[j], &expected, 4), 0)
            << i + j << ": " << values[j] << ", not " << expected;
      }
    }
  }
}

TEST(ExpandElements, WidensBF16OfAnyLengthAndAlignment) {
  for (int64_t count : {0, 1, 31, 32, 33, 100}) {
    std::vector<std::byte> source(2 * count + 1);
    for (int64_t i = 0; i < count; ++i) {
      const uint16_t bits = static_cast<uint16_t>(0x3F80 + 7 * i);
      std::memcpy(&source[2 * i + 1], &bits, 2);
    }
    std::vector<float> values(count);
    ExpandElements(DType::kBF16, source.data() + 1, count, values.data());
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), static_cast<uint32_t>(0x3F80 + 7 * i) << 16);
    }
  }
}

TEST(ExpandElements, NothingNeedsNoMemory) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0})
    ExpandElements(dtype, nullptr, 0, nullptr);
}

TEST(FindNotFinite, FindsTheFirstAnywhere) {
  std::vector<float> values(700, std::numeric_limits<float>::max());
  EXPECT_EQ(FindNotFinite(values.data(), 700), -1);
  for (const float bad : {INFINITY, -INFINITY, std::nanf("")}) {
    for (int64_t at : {0, 255, 256, 600, 699}) {
      std::vector<float> copy = values;
      copy[at] = bad;
      copy[699] = bad;
      EXPECT_EQ(FindNotFinite(copy.data(), 700), at);
    }
  }
}

}  // namespace
}  // namespace forebay::weights

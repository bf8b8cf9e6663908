#include "weights/formats/expert_tensors.h"
#include "weights/formats/quantised_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#include "testing/test_data.h"
#include "weights/formats/testing/weight_files.h"
#include "weights/formats/weight_source.h"

namespace forebay::weights {
namespace {

using testing::HasSubstr;

using Folder = SafetensorsFolder;

std::vector<float> Counted(int count, float first = 0) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(first + static_cast<float>(i));
  return values;
}

std::vector<float> Read(const WeightSource& source, const std::string& name) {
  const TensorInfo* tensor = source.Find(name);
  if (tensor == nullptr) {
    ADD_FAILURE() << name << " is not there";
    return {};
  }
  std::vector<float> values(static_cast<size_t>(tensor->shape.elements()));
  const base::Status status = source.ReadRows(name, 0, tensor->rows(), values.data());
  EXPECT_TRUE(status.ok()) << status.ToString();
  return values;
}

// 2 experts of 3 inputs and 2 outputs; see the header.
TEST(ExpertTensors, StacksThatAreTransposed) {
  Folder folder;
  folder.F32("m.experts.gate_up_proj", "[2, 3, 4]", Counted(24));
  folder.F32("m.experts.down_proj", "[2, 2, 3]", Counted(12, 100));
  const auto source = WeightSource::Open(folder.Write());
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(source->tensors().size(), 6u);
  EXPECT_EQ(*source->ShapeOf("m.experts.1.up_proj.weight"), (tensor::Shape{2, 3}));
  EXPECT_EQ(Read(*source, "m.experts.0.gate_proj.weight"), (std::vector<float>{0, 4, 8, 1, 5, 9}));
  EXPECT_EQ(Read(*source, "m.experts.1.up_proj.weight"),
            (std::vector<float>{14, 18, 22, 15, 19, 23}));
  EXPECT_EQ(*source->ShapeOf("m.experts.1.down_proj.weight"), (tensor::Shape{3, 2}));
  EXPECT_EQ(Read(*source, "m.experts.1.down_proj.weight"),
            (std::vector<float>{106, 109, 107, 110, 108, 111}));
  float row[3];
  ASSERT_TRUE(source->ReadRows("m.experts.1.up_proj.weight", 1, 2, row).ok());
  EXPECT_EQ(row[2], 23);
  tensor::BF16 rounded[3];
  ASSERT_TRUE(source->ReadRows("m.experts.1.up_proj.weight", 1, 2, rounded).ok());
  EXPECT_EQ(tensor::ToFloat(rounded[0]), 15);
}

TEST(ExpertTensors, StacksAsTheyAreMultiplied) {
  Folder folder;
  folder.F32("m.experts.gate_up_proj", "[2, 4, 3]", Counted(24));
  folder.F32("m.experts.down_proj", "[2, 3, 2]", Counted(12, 100));
  const auto source = WeightSource::Open(folder.Write());
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(Read(*source, "m.experts.1.gate_proj.weight"),
            (std::vector<float>{12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(Read(*source, "m.experts.1.up_proj.weight"),
            (std::vector<float>{18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(Read(*source, "m.experts.0.down_proj.weight"),
            (std::vector<float>{100, 101, 102, 103, 104, 105}));
}

// An extent of 0 allows any other beside it: nothing counts up to these.
TEST(ExpertTensors, StacksWithoutElements) {
  for (const char* shape : {"[1099511627776, 0, 4]", "[1099511627776, 4, 0]", "[0, 4, 4]"}) {
    Folder folder;
    folder.F32("m.experts.gate_proj", shape, {});
    const auto source = WeightSource::Open(folder.Write());
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    EXPECT_FALSE(source->Has("m.experts.0.gate_proj.weight"));
  }
  Folder folder;
  folder.F32("m.experts.gate_proj.bias", "[1099511627776, 0]", {});
  folder.Add("m.experts.down_proj_blocks", "U8", "[1099511627776, 0, 1, 16]", "");
  EXPECT_TRUE(WeightSource::Open(folder.Write()).ok());
}

// Granite's names of the same.
TEST(ExpertTensors, StacksOfGranite) {
  Folder folder;
  folder.F32("m.block_sparse_moe.input_linear.weight", "[2, 4, 3]", Counted(24));
  folder.F32("m.block_sparse_moe.output_linear.weight", "[2, 3, 2]", Counted(12, 100));
  folder.F32("m.shared_mlp.input_linear.weight", "[4, 3]", Counted(12));
  const auto source = WeightSource::Open(folder.Write());
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(Read(*source, "m.block_sparse_moe.experts.1.up_proj.weight"),
            (std::vector<float>{18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(Read(*source, "m.block_sparse_moe.experts.0.down_proj.weight"),
            (std::vector<float>{100, 101, 102, 103, 104, 105}));
  EXPECT_NE(source->Find("m.shared_mlp.input_linear.weight"), nullptr);
}

TEST(ExpertTensors, OfLlama4AreThoseOfItsFile) {
  const auto source = WeightSource::Open(TestData() + "/golden/models/llama4-text");
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const std::string layer = "model.layers.1.feed_forward.experts.";
  EXPECT_EQ(source->Find(layer + "gate_up_proj"), nullptr);
  EXPECT_EQ(*source->ShapeOf(layer + "3.gate_proj.weight"), (tensor::Shape{40, 64}));
  EXPECT_EQ(*source->ShapeOf(layer + "3.down_proj.weight"), (tensor::Shape{64, 40}));
  EXPECT_EQ(source->Find(layer + "4.gate_proj.weight"), nullptr);
}

// A block of 32 values as GGUF stores a type, and what they are.
struct Block {
  std::string bytes;
  std::vector<float> values;
};

// A whole number up to 2047 in fp16.
uint16_t Half(int value) {
  if (value == 0) return 0;
  const int exponent = std::bit_width(static_cast<unsigned>(value)) - 1;
  return static_cast<uint16_t>((exponent + 15) << 10 | (value - (1 << exponent))
                                                           << (10 - exponent));
}

// 16 bytes of quants of 4 bits: number i in the lower half of byte i, number i + 16 in the upper.
void AppendNibbles(const std::vector<int>& quants, std::string* out) {
  for (size_t i = 0; i < 16; ++i)
    out->push_back(static_cast<char>(quants[i] | quants[i + 16] << 4));
}

// Unlike for each `number`.
Block BlockOf(std::string_view type, int number) {
  Block block;
  std::vector<int> quants;
  for (int i = 0; i < 32; ++i) quants.push_back((7 * number + i) % 16);
  if (type == "Q8_0") Append(&block.bytes, Half(2));
  if (type == "Q4_0") Append(&block.bytes, Half(3));
  if (type == "Q4_1") {
    Append(&block.bytes, Half(4));
    Append(&block.bytes, Half(1 + number));
  }
  if (type.starts_with("Q4")) AppendNibbles(quants, &block.bytes);
  for (int i = 0; i < 32; ++i) {
    const int plain = 37 * number + i, quant = quants[static_cast<size_t>(i)];
    int value = plain;
    if (type == "F32") Append(&block.bytes, static_cast<float>(plain));
    if (type == "F16") Append(&block.bytes, Half(plain));
    if (type == "BF16")
      Append<uint16_t>(&block.bytes, tensor::ToBF16(static_cast<float>(plain)).bits);
    if (type == "Q8_0") {
      block.bytes.push_back(static_cast<char>(quant - 5));
      value = 2 * (quant - 5);
    }
    if (type == "Q4_0") value = 3 * (quant - 8);
    if (type == "Q4_1") value = 4 * quant + 1 + number;
    block.values.push_back(static_cast<float>(value));
  }
  return block;
}

// 3 experts: up has 2 rows of 32, down 32 of 1 in fp32.
TEST(ExpertTensors, StacksOfGguf) {
  constexpr int kExperts = 3, kRows = 2;
  const std::string layer = "model.layers.7.mlp.experts.";
  for (const auto& [type, id] :
       {std::pair{"F32", 0}, {"F16", 1}, {"Q4_0", 2}, {"Q4_1", 3}, {"Q8_0", 8}, {"BF16", 30}}) {
    SCOPED_TRACE(type);
    std::string up, down;
    for (int block = 0; block < kExperts * kRows; ++block) up += BlockOf(type, block).bytes;
    for (const float value : Counted(32 * kExperts)) Append(&down, value);
    base::TemporaryFolder folder;
    const std::string path = folder.Write(
        "m.gguf",
        GgufBytes(2, 1)
            .String("general.architecture", "qwen3moe")
            .Tensor("blk.7.ffn_up_exps.weight", {32, kRows, kExperts}, static_cast<uint32_t>(id), 0)
            .Tensor("blk.7.ffn_down_exps.weight", {1, 32, kExperts}, 0, (up.size() + 31) / 32 * 32)
            .Data(up)
            .Data(down)
            .bytes());
    const auto source = WeightSource::Open(path);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    for (int expert = 0; expert < kExperts; ++expert) {
      std::vector<float> expected;
      for (int row = 0; row < kRows; ++row)
        std::ranges::copy(BlockOf(type, kRows * expert + row).values, std::back_inserter(expected));
      const std::string name = fmt::format("{}{}.up_proj.weight", layer, expert);
      EXPECT_EQ(*source->ShapeOf(name), (tensor::Shape{kRows, 32}));
      EXPECT_EQ(Read(*source, name), expected);
      float row[32];
      ASSERT_TRUE(source->ReadRows(name, 1, 2, row).ok());
      EXPECT_TRUE(std::equal(row, row + 32, expected.begin() + 32));
    }
    EXPECT_EQ(*source->ShapeOf(layer + "1.down_proj.weight"), (tensor::Shape{32, 1}));
    EXPECT_EQ(Read(*source, layer + "1.down_proj.weight"), Counted(32, 32));
  }
}

TEST(ExpertTensors, StacksThatFitNothingAreRefused) {
  Folder alone;
  alone.F32("m.experts.gate_up_proj", "[2, 3, 4]", Counted(24));
  EXPECT_THAT(WeightSource::Open(alone.Write()).status().ToString(),
              HasSubstr("m.experts.gate_up_proj has no down_proj beside it"));
  Folder misshapen;
  misshapen.F32("m.experts.gate_up_proj", "[2, 3, 4]", Counted(24));
  misshapen.F32("m.experts.down_proj", "[2, 3, 3]", Counted(18));
  const base::Status status = WeightSource::Open(misshapen.Write()).status();
  EXPECT_EQ(status.code(), kTensorShape);
  EXPECT_THAT(status.message(), HasSubstr("[2, 3, 4]"));
}

// In either order of a stack.
TEST(ExpertTensors, WhatIsNotFiniteIsNamedByItsExpert) {
  for (const char* fused : {"[2, 3, 4]", "[2, 4, 3]"}) {
    std::vector<float> values = Counted(24);
    values[23] = NAN;  // of expert 1 the last of up, either way
    Folder folder;
    folder.F32("m.layers.7.experts.gate_up_proj", fused, values);
    folder.F32("m.layers.7.experts.down_proj", fused[4] == '3' ? "[2, 2, 3]" : "[2, 3, 2]",
               Counted(12));
    const std::string path = folder.Write();
    const auto source = WeightSource::Open(path);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    float row[3];
    EXPECT_TRUE(source->ReadRows("m.layers.7.experts.1.gate_proj.weight", 1, 2, row).ok());
    const base::Status status = source->ReadRows("m.layers.7.experts.1.up_proj.weight", 1, 2, row);
    EXPECT_EQ(status.code(), kTensorNotFinite);
    EXPECT_THAT(status.message(), HasSubstr(path));
    EXPECT_THAT(status.message(),
                HasSubstr("m.layers.7.experts.1.up_proj.weight: row 1, column 2 is nan"));
  }
}

TEST(ExpertTensors, TextPartsLoseTheirPrefix) {
  Folder folder;
  folder.F32("language_model.model.norm.weight", "[2]", {1, 2});
  folder.F32("vision_model.norm.weight", "[1]", {3});
  const auto source = WeightSource::Open(folder.Write());
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(Read(*source, "model.norm.weight"), (std::vector<float>{1, 2}));
  EXPECT_NE(source->Find("vision_model.norm.weight"), nullptr);
}

// 130 x 129: 2 x 2 blocks. 0x38 is 1, 0x7E the greatest (448), 0x01 the least (2^-9), 0x80 -0.
TEST(ScaledTensors, AreQuantTimesScale) {
  constexpr int kRows = 130, kColumns = 129;
  std::string quants(kRows * kColumns, '\x38');
  quants[0] = '\x7E';
  quants[1] = '\x01';
  quants[2] = '\x80';
  quants[3] = '\xC4';  // -3
  Folder folder;
  folder.Add("w.weight", "F8_E4M3", "[130, 129]", quants);
  folder.F32("w.weight_scale_inv", "[2, 2]", {0.5f, 2, 3, 0.1f});
  const auto source = WeightSource::Open(folder.Write());
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  const std::vector<float> values = Read(*source, "w.weight");
  EXPECT_EQ(values[0], 224);
  EXPECT_EQ(values[1], 0x1p-10f);
  EXPECT_TRUE(values[2] == 0 && std::signbit(values[2]));
  EXPECT_EQ(values[3], -1.5f);
  EXPECT_EQ(values[127 * kColumns + 127], 0.5f);
  EXPECT_EQ(values[127 * kColumns + 128], 2);
  EXPECT_EQ(values[128 * kColumns + 127], 3);
  EXPECT_EQ(values[129 * kColumns + 128], 0.1f);
  tensor::BF16 rounded[kColumns];
  ASSERT_TRUE(source->ReadRows("w.weight", 129, 130, rounded).ok());
  EXPECT_EQ(rounded[128].bits, tensor::ToBF16(0.1f).bits);
}

TEST(ScaledTensors, ANanIsNamed) {
  Folder folder;
  folder.Add("w.weight", "F8_E4M3", "[1, 2]", std::string("\x38\xFF", 2));
  folder.F32("w.weight_scale_inv", "[1, 1]", {1});
  const auto source = WeightSource::Open(folder.Write());
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  float values[2];
  EXPECT_EQ(source->ReadRows("w.weight", 0, 1, values).code(), kTensorNotFinite);
}

TEST(ScaledTensors, WeightAndScalesNeedEachOther) {
  Folder no_weight;
  no_weight.F32("w.weight_scale_inv", "[1, 1]", {1});
  EXPECT_EQ(WeightSource::Open(no_weight.Write()).status().code(), kScaleWithoutWeight);
  Folder other_type;
  other_type.F32("w.weight", "[1, 1]", {1}).F32("w.weight_scale_inv", "[1, 1]", {1});
  EXPECT_EQ(WeightSource::Open(other_type.Write()).status().code(), kScaleWithoutWeight);
  Folder misshapen;
  misshapen.Add("w.weight", "F8_E4M3", "[1, 2]", "\x38\x38");
  misshapen.F32("w.weight_scale_inv", "[1, 2]", {1, 1});
  EXPECT_EQ(WeightSource::Open(misshapen.Write()).status().code(), kTensorShape);
  Folder no_scales;
  no_scales.Add("w.weight", "F8_E4M3", "[1, 2]", "\x38\x38");
  const auto source = WeightSource::Open(no_scales.Write());
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  float values[2];
  EXPECT_EQ(source->ReadRows("w.weight", 0, 1, values).code(), kTensorTypeUnsupported);
}

}  // namespace
}  // namespace forebay::weights

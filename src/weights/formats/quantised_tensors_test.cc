#include "weights/formats/quantised_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "weights/formats/testing/weight_files.h"
#include "weights/formats/weight_source.h"

namespace forebay::weights {
namespace {

using Folder = SafetensorsFolder;
using kernels::TileForm;
using ::testing::HasSubstr;

constexpr int kRows = 16, kColumns = 64, kGroups = 2;  // groups of 32

int CodeOf(int row, int k) { return (row * 7 + k * 3 + k / 32) % 16; }
int ZeroOf(int row, int group) { return (row * 5 + group) % 15 + 1; }
float ScaleOf(int row, int group) { return 0.25f * static_cast<float>(row + 1 + 20 * group); }

std::string Words(int count, const std::function<uint32_t(int word, int place)>& code) {
  std::string data;
  for (int word = 0; word < count; ++word) {
    uint32_t value = 0;
    for (int place = 0; place < 8; ++place) value |= code(word, place) << (4 * place);
    Append(&data, value);
  }
  return data;
}
std::string Floats(int count, const std::function<float(int)>& value) {
  std::string data;
  for (int i = 0; i < count; ++i) Append(&data, value(i));
  return data;
}

void ExpectValues(Folder& folder, TileForm form,
                  const std::function<float(int row, int k)>& expected,
                  const std::string& name = "w.weight") {
  const auto source = WeightSource::Open(folder.Write());
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  EXPECT_EQ(source->FormOf(name), form);
  const tensor::Shape shape = *source->ShapeOf(name);
  std::vector<float> values(static_cast<size_t>(shape.elements()));
  ASSERT_TRUE(source->ReadRows(name, 0, shape[0], values.data()).ok());
  std::vector<StoredRowMemory> rows(static_cast<size_t>(shape[0]));
  ASSERT_TRUE(source->ReadStored(name, 0, shape[0], rows.data()).ok());
  std::vector<float> expanded(static_cast<size_t>(shape[1]));
  for (int row = 0; row < shape[0]; ++row) {
    kernels::ExpandRow(form, rows[static_cast<size_t>(row)].view(), 0, shape[1], expanded.data());
    for (int k = 0; k < shape[1]; ++k) {
      ASSERT_EQ(values[static_cast<size_t>(row * shape[1] + k)], expected(row, k))
          << row << " " << k;
      ASSERT_EQ(expanded[static_cast<size_t>(k)], expected(row, k)) << row << " " << k;
    }
  }
}

std::string ErrorOf(Folder& folder, base::ErrorCode code) {
  const auto source = WeightSource::Open(folder.Write());
  EXPECT_EQ(source.status().code(), code) << source.status().ToString();
  return source.ok() ? "" : source.status().message();
}

// compressed-tensors.
struct Packed {
  explicit Packed(bool zeros) : has_zeros(zeros) {}
  void AddTo(Folder* folder) const {
    folder->Add("w.weight_packed", "I32", "[16, 8]", Words(kRows * 8, [](int word, int place) {
                  return static_cast<uint32_t>(CodeOf(word / 8, word % 8 * 8 + place));
                }));
    if (has_scales) {
      folder->Add("w.weight_scale", "F32", "[16, 2]",
                  Floats(kRows * kGroups, [](int i) { return ScaleOf(i / 2, i % 2); }));
    }
    if (has_zeros) {
      folder->Add("w.weight_zero_point", "I32", "[2, 2]", Words(4, [](int word, int place) {
                    return static_cast<uint32_t>(ZeroOf(word / 2 * 8 + place, word % 2));
                  }));
    }
    std::string shape;
    Append<int64_t>(&shape, kRows);
    Append<int64_t>(&shape, columns);
    folder->Add("w.weight_shape", "I64", "[2]", shape);
  }
  bool has_zeros, has_scales = true;
  int64_t columns = kColumns;
};

TEST(PackQuantized, IsCodeLessZeroPointTimesScale) {
  for (const bool zeros : {false, true}) {
    Folder folder;
    Packed(zeros).AddTo(&folder);
    ExpectValues(folder, TileForm::kW4Group32, [&](int row, int k) {
      const int zero = zeros ? ZeroOf(row, k / 32) : 8;
      return static_cast<float>(CodeOf(row, k) - zero) * ScaleOf(row, k / 32);
    });
  }
}

TEST(PackQuantized, BadTensorsAreNamed) {
  Packed packed(false);
  packed.has_scales = false;
  Folder no_scales;
  packed.AddTo(&no_scales);
  EXPECT_THAT(ErrorOf(no_scales, kQuantisedTensors), HasSubstr("w.weight_packed: its scales"));
  packed.has_scales = true;
  packed.columns = 32;  // 8 bits a weight
  Folder other_bits;
  packed.AddTo(&other_bits);
  EXPECT_THAT(ErrorOf(other_bits, kQuantisedTensors), HasSubstr("rows of 32 values in 8 words"));
  packed.columns = kColumns;
  Folder order;
  packed.AddTo(&order);
  order.Add("w.weight_g_idx", "I32", "[64]", std::string(256, '\0'));
  EXPECT_THAT(ErrorOf(order, kQuantisedTensors), HasSubstr("groups are out of order"));
  Folder groups;
  groups.Add("w.weight_packed", "I32", "[1, 12]", std::string(48, '\0'));
  groups.F32("w.weight_scale", "[1, 5]", {1, 1, 1, 1, 1});
  EXPECT_THAT(ErrorOf(groups, kQuantisedTensors), HasSubstr("96 values of a row have 5 groups"));
  Folder rows;
  rows.Add("w.weight_packed", "I32", "[1, 8]", std::string(32, '\0'));
  rows.F32("w.weight_scale", "[2, 2]", {1, 1, 1, 1});
  EXPECT_THAT(ErrorOf(rows, kTensorShape), HasSubstr("w.weight_scale is F32"));
  Folder not_finite;
  not_finite.Add("w.weight_packed", "I32", "[1, 8]", std::string(32, '\0'));
  not_finite.F32("w.weight_scale", "[1, 2]", {1, INFINITY});
  const auto source = WeightSource::Open(not_finite.Write());
  ASSERT_TRUE(source.ok()) << source.status().ToString();
  StoredRowMemory row;
  const base::Status status = source->ReadStored("w.weight", 0, 1, &row);
  EXPECT_EQ(status.code(), kTensorNotFinite);
  EXPECT_THAT(status.message(), HasSubstr("row 0, group 1"));
}

// AWQ's and GPTQ's scales and zero points [groups, rows].
std::string ColumnScales() {
  return Floats(kGroups * kRows, [](int i) { return ScaleOf(i % kRows, i / kRows); });
}

TEST(Awq, EightColumnsLieInTheirOrder) {
  constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};  // the column of each place
  Folder folder;
  folder.Add("w.qweight", "I32", "[64, 2]", Words(kColumns * 2, [&](int word, int place) {
               return static_cast<uint32_t>(CodeOf(word % 2 * 8 + kOrder[place], word / 2));
             }));
  folder.Add("w.scales", "F32", "[2, 16]", ColumnScales());
  folder.Add("w.qzeros", "I32", "[2, 2]", Words(4, [&](int word, int place) {
               return static_cast<uint32_t>(ZeroOf(word % 2 * 8 + kOrder[place], word / 2));
             }));
  ExpectValues(folder, TileForm::kW4Group32, [](int row, int k) {
    return static_cast<float>(CodeOf(row, k) - ZeroOf(row, k / 32)) * ScaleOf(row, k / 32);
  });
}

struct Gptq {
  void AddTo(Folder* folder) const {
    folder->Add("w.qweight", "I32", "[8, 16]", Words(8 * kRows, [](int word, int place) {
                  return static_cast<uint32_t>(CodeOf(word % kRows, word / kRows * 8 + place));
                }));
    if (has_scales) folder->Add("w.scales", "F32", "[2, 16]", ColumnScales());
    folder->Add("w.qzeros", "I32", "[2, 2]", Words(4, [this](int word, int place) {
                  return static_cast<uint32_t>(ZeroOf(word % 2 * 8 + place, word / 2) - 1 + beyond);
                }));
    std::string order;
    for (int k = 0; k < kColumns; ++k) Append<int32_t>(&order, k == moved ? 1 : k / 32);
    folder->Add("w.g_idx", "I32", "[64]", order);
  }
  bool has_scales = true;
  int moved = -1, beyond = 0;
};

TEST(GptqTensors, EightValuesOfARowLieInAWord) {
  Folder folder;
  Gptq().AddTo(&folder);
  ExpectValues(folder, TileForm::kW4Group32, [](int row, int k) {
    return static_cast<float>(CodeOf(row, k) - ZeroOf(row, k / 32)) * ScaleOf(row, k / 32);
  });
}

TEST(GptqTensors, BadOnesAreNamed) {
  Folder no_scales, moved, beyond, other_bits;
  Gptq{.has_scales = false}.AddTo(&no_scales);
  EXPECT_THAT(ErrorOf(no_scales, kQuantisedTensors), HasSubstr("w.qweight: its scales"));
  Gptq{.moved = 3}.AddTo(&moved);
  EXPECT_THAT(ErrorOf(moved, kQuantisedTensors), HasSubstr("value 3 is in group 1"));
  Gptq{.beyond = 4}.AddTo(&beyond);
  EXPECT_THAT(ErrorOf(beyond, kQuantisedTensors), HasSubstr("zero point of 16"));
  other_bits.Add("w.qweight", "I32", "[16, 5]", std::string(320, '\0'));
  other_bits.Add("w.scales", "F32", "[2, 16]", ColumnScales());
  other_bits.Add("w.qzeros", "I32", "[2, 2]", std::string(16, '\0'));
  EXPECT_THAT(ErrorOf(other_bits, kQuantisedTensors), HasSubstr("5 columns beside scales of 16"));
}

TEST(Nvfp4, TimesOrDividedByTheTensorsScale) {
  const std::string codes("\x21\x43\x65\x87\x98\xA9\xCB\xED",
                          8);  // 1 2 3 4 5 6 7 8 8 9 9 A B C D E
  constexpr float kValues[16] = {0.5f,  1,     1.5f,  2,  3,     4,     6,     -0.0f,
                                 -0.0f, -0.5f, -0.5f, -1, -1.5f, -2.0f, -3.0f, -4.0f};
  Folder modelopt, compressed;
  modelopt.Add("w.weight", "U8", "[1, 8]", codes)
      .Add("w.weight_scale", "F8_E4M3", "[1, 1]", "\x3C");
  modelopt.F32("w.weight_scale_2", "[]", {0.1f}).F32("w.input_scale", "[]", {3});
  ExpectValues(modelopt, TileForm::kNVFP4, [&](int, int k) { return kValues[k] * (1.5f * 0.1f); });
  compressed.Add("w.weight_packed", "U8", "[1, 8]", codes);
  compressed.Add("w.weight_scale", "F8_E4M3", "[1, 1]", "\x3C");
  compressed.F32("w.weight_global_scale", "[1]", {8});
  ExpectValues(compressed, TileForm::kNVFP4,
               [&](int, int k) { return kValues[k] * (1.5f * 0.125f); });
  Folder no_global;
  no_global.Add("w.weight_packed", "U8", "[1, 8]", codes);
  no_global.Add("w.weight_scale", "F8_E4M3", "[1, 1]", "\x3C");
  EXPECT_THAT(ErrorOf(no_global, kQuantisedTensors), HasSubstr("weight_global_scale is missing"));
}

TEST(BytesWithScales, OfARowOrTheTensor) {
  Folder rows, tensor, integers;
  rows.Add("w.weight", "F8_E4M3", "[2, 2]", "\x38\x40\x38\xC0");  // 1 2 1 -2
  rows.F32("w.weight_scale", "[2, 1]", {3, 0.1f});
  ExpectValues(rows, TileForm::kF8Row, [](int row, int k) {
    return (k == 0 ? 1.0f : row == 0 ? 2.0f : -2.0f) * (row == 0 ? 3.0f : 0.1f);
  });
  tensor.Add("w.weight", "F8_E4M3", "[2, 2]", "\x38\x40\x38\xC0");
  tensor.F32("w.weight_scale", "[]", {0.5f}).F32("w.input_scale", "[]", {3});
  ExpectValues(tensor, TileForm::kF8Row, [](int row, int k) {
    return (k == 0 ? 1.0f : row == 0 ? 2.0f : -2.0f) * 0.5f;
  });
  integers.Add("w.weight", "I8", "[2, 2]", "\x7F\x80\x01\xFF");
  integers.F32("w.weight_scale", "[2, 1]", {2, 0.1f});
  constexpr float kIntegers[] = {127, -128, 1, -1};
  ExpectValues(integers, TileForm::kInt8Row,
               [&](int row, int k) { return kIntegers[2 * row + k] * (row == 0 ? 2.0f : 0.1f); });
}

// Rows of gate and up alternate; the even value of a pair lies in the lower half of a byte.
TEST(Mxfp4Stacks, AreCutIntoExperts) {
  std::string blocks, scales;
  for (int row = 0; row < 8; ++row) {  // 2 experts of 4 rows of 32
    for (int i = 0; i < 16; ++i) blocks += static_cast<char>(row % 8 | (i % 8) << 4);
    scales += static_cast<char>(127 + row);
  }
  constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int expert = 0; expert < 2; ++expert) {
    for (const bool up : {false, true}) {
      Folder folder;
      folder.Add("x.experts.gate_up_proj_blocks", "U8", "[2, 4, 1, 16]", blocks);
      folder.Add("x.experts.gate_up_proj_scales", "U8", "[2, 4, 1]", scales);
      ExpectValues(
          folder, TileForm::kMXFP4,
          [&](int row, int k) {
            const int stored = 4 * expert + 2 * row + (up ? 1 : 0);
            return kValues[k % 2 == 0 ? stored % 8 : k / 2 % 8] * static_cast<float>(1 << stored);
          },
          fmt::format("x.experts.{}.{}_proj.weight", expert, up ? "up" : "gate"));
    }
  }
}

}  // namespace
}  // namespace forebay::weights

#include "weights/formats/weight_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "testing/test_data.h"
#include "weights/formats/safetensors.h"
#include "weights/formats/testing/weight_files.h"

namespace forebay::weights {
namespace {

using testing::HasSubstr;

const std::string kGolden = TestData() + "/golden/";

WeightSource OpenOrDie(const std::string& path) {
  auto source = WeightSource::Open(path);
  EXPECT_TRUE(source.ok()) << source.status().ToString();
  return std::move(source).value();
}

std::vector<float> ReadAll(const WeightSource& source, const TensorInfo& tensor) {
  std::vector<float> values(tensor.shape.elements());
  const base::Status status = source.ExpandRows(tensor, 0, tensor.rows(), values.data());
  EXPECT_TRUE(status.ok()) << status.ToString();
  return values;
}

// The largest |a - b| over a tensor of both sources, relative to the largest |a|.
double Distance(const WeightSource& a, const WeightSource& b, std::string_view name) {
  const std::vector<float> x = ReadAll(a, *a.Find(name)), y = ReadAll(b, *b.Find(name));
  EXPECT_EQ(x.size(), y.size());
  double most = 0, largest = 1e-30;
  for (size_t i = 0; i < x.size(); ++i) {
    most = std::max<double>(most, std::abs(x[i] - y[i]));
    largest = std::max<double>(largest, std::abs(x[i]));
  }
  return most / largest;
}

struct GgufCase {
  const char* model;
  const char* type;
  double tolerance;  // F16 loses low bits of tiny bf16 weights; Q8_0 and Q4_1 half a step
};

class GoldenGguf : public testing::TestWithParam<GgufCase> {};

TEST_P(GoldenGguf, HoldsTheFoldersTensorsInTheFoldersOrder) {
  const GgufCase& c = GetParam();
  const WeightSource hf = OpenOrDie(std::string(kGolden) + "models/" + c.model);
  const WeightSource gguf =
      OpenOrDie(std::string(kGolden) + "gguf/" + c.model + "-" + c.type + ".gguf");
  ASSERT_NE(gguf.gguf(), nullptr);
  for (const TensorInfo& tensor : hf.tensors()) {
    auto shape = gguf.ShapeOf(tensor.name);
    ASSERT_TRUE(shape.ok()) << shape.status().ToString();
    ASSERT_EQ(*shape, tensor.shape) << tensor.name;
    EXPECT_LE(Distance(hf, gguf, tensor.name), c.tolerance) << tensor.name;
  }
  const size_t own = gguf.Find("rope_freqs.weight") != nullptr ? 1 : 0;
  EXPECT_EQ(gguf.tensors().size(), hf.tensors().size() + own);
}

INSTANTIATE_TEST_SUITE_P(
    Files, GoldenGguf,
    testing::Values(GgufCase{"llama3-gqa", "F32", 0}, GgufCase{"llama3-gqa", "BF16", 0},
                    GgufCase{"llama3-gqa", "F16", 1e-7}, GgufCase{"llama3-gqa", "Q8_0", .005},
                    GgufCase{"llama3-gqa", "Q4_1", .07}, GgufCase{"qwen3", "F32", 0},
                    GgufCase{"qwen3", "BF16", 0}, GgufCase{"qwen3", "F16", 1e-7},
                    GgufCase{"qwen3", "Q8_0", .005}, GgufCase{"qwen3", "Q4_1", .07}),
    [](const auto& info) {
      return std::string(info.param.type) + (info.param.model[0] == 'l' ? "llama" : "qwen");
    });

TEST(WeightSource, RowsReadAloneEqualRowsReadTogether) {
  const WeightSource source = OpenOrDie(std::string(kGolden) + "gguf/llama3-gqa-Q4_1.gguf");
  for (const char* name : {"model.layers.0.self_attn.q_proj.weight", "model.embed_tokens.weight"}) {
    const TensorInfo& tensor = *source.Find(name);
    const std::vector<float> whole = ReadAll(source, tensor);
    std::vector<float> row(tensor.columns());
    for (int64_t r = 0; r < tensor.rows(); ++r) {
      ASSERT_TRUE(source.ExpandRows(tensor, r, r + 1, row.data()).ok());
      ASSERT_EQ(std::memcmp(row.data(), &whole[r * tensor.columns()], row.size() * 4), 0)
          << name << " row " << r;
    }
  }
}

TEST(WeightSource, ShardsAreOneSource) {
  const WeightSource source = OpenOrDie(std::string(kGolden) + "models/qwen2");
  EXPECT_EQ(source.files().size(), 2u);
  EXPECT_EQ(source.names().size(), source.tensors().size());
  ASSERT_NE(source.Find("lm_head.weight"), nullptr);
  ASSERT_NE(source.Find("model.layers.1.self_attn.v_proj.bias"), nullptr);
  EXPECT_NE(source.Find("lm_head.weight")->file,
            source.Find("model.layers.1.self_attn.v_proj.bias")->file);
  EXPECT_EQ(source.Find("model.layers.1.self_attn.w_proj.bias"), nullptr);
}

TEST(WeightSource, BiasesOfInterleavedHeadsAreReorderedToo) {
  GgufBytes b(1, 2);
  b.String("general.architecture", "llama").Value<uint32_t>("llama.attention.head_count", 4, 2);
  b.Tensor("blk.0.attn_q.bias", {8}, 0, 0);
  std::string data;
  for (float value : {0, 2, 1, 3, 4, 6, 5, 7}) Append(&data, value);
  base::TemporaryFolder folder;
  const WeightSource source = OpenOrDie(folder.Write("m.gguf", b.Data(data).bytes()));
  const std::vector<float> values =
      ReadAll(source, *source.Find("model.layers.0.self_attn.q_proj.bias"));
  EXPECT_THAT(values, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
}

constexpr char kOneTensor[] = R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}})";

std::string Floats(std::initializer_list<float> values) {
  std::string data;
  for (const float value : values) Append(&data, value);
  return data;
}

TEST(WeightSource, ReadsByName) {
  base::TemporaryFolder folder;
  folder.Write("model.safetensors", SafetensorsBytes(kOneTensor, Floats({1, 2, 3, 4})));
  const WeightSource source = OpenOrDie(folder.path());
  EXPECT_TRUE(source.Has("w"));
  EXPECT_EQ(*source.ShapeOf("w"), (tensor::Shape{2, 2}));
  float row[2] = {};
  ASSERT_TRUE(source.ReadRows("w", 1, 2, row).ok());
  EXPECT_THAT(row, testing::ElementsAre(3, 4));
  EXPECT_EQ(source.FileOf("w"), folder.path() + "/model.safetensors");
  EXPECT_FALSE(source.Has("v"));
  EXPECT_EQ(source.ReadRows("v", 0, 1, row).code(), kTensorMissing);
  EXPECT_EQ(source.ShapeOf("v").status().code(), kTensorMissing);
  EXPECT_EQ(source.ShapeOf("v").status().message(), folder.path() + ": tensor v is missing");
}

TEST(WeightSource, TypesThatCannotBeReadAreErrorsOnlyWhenUsed) {
  GgufBytes b(1, 0);
  b.Tensor("output.weight", {256, 2}, 21, 0);
  base::TemporaryFolder folder;
  const WeightSource source =
      OpenOrDie(folder.Write("m.gguf", b.Data(std::string(420, '\0')).bytes()));
  const auto used = source.ShapeOf("lm_head.weight");
  EXPECT_EQ(used.status().code(), kTensorTypeUnsupported);
  EXPECT_THAT(used.status().message(),
              testing::AllOf(HasSubstr("output.weight: type IQ3_S is not read; expected F32"),
                             HasSubstr("take this model's Q4_K_M file")));
  std::vector<float> values(512);
  EXPECT_EQ(source.ExpandRows(*source.Find("lm_head.weight"), 0, 2, values.data()).code(),
            kTensorTypeUnsupported);
}

// Of a type or rank that is not known; an index that has a tensor where it is not.
TEST(WeightSource, WhatNothingNeedsStopsNothing) {
  base::TemporaryFolder folder;
  folder.Write(
      "a.safetensors",
      SafetensorsBytes(R"({"f4":{"dtype":"F4","shape":[3],"data_offsets":[0,2]},)"
                       R"("w":{"dtype":"F32","shape":[1],"data_offsets":[2,6]},)"
                       R"("five":{"dtype":"U8","shape":[1,1,1,1,2],"data_offsets":[6,8]}})",
                       "12345678"));
  folder.Write("b.safetensors", SafetensorsBytes("{}", ""));
  folder.Write("model.safetensors.index.json",
               R"({"weight_map":{"w":"b.safetensors","v":"a.safetensors"}})");
  const WeightSource source = OpenOrDie(folder.path());
  EXPECT_EQ(*source.ShapeOf("w"), tensor::Shape{1});
  EXPECT_EQ(source.ShapeOf("v").status().code(), kTensorMissing);
  for (const auto& [name, words] :
       {std::pair("f4", "has dtype F4, which is not known here"), {"five", "has 5 extents"}}) {
    const base::Status status = source.ShapeOf(name).status();
    EXPECT_EQ(status.code(), kTensorTypeUnsupported);
    EXPECT_THAT(status.message(), HasSubstr(words));
  }
  GgufBytes b(3, 0);
  b.Tensor("odd", {32}, 77, 0).Tensor("five", {1, 1, 1, 1, 1}, 0, 32).Tensor("w", {8}, 0, 64);
  const WeightSource gguf = OpenOrDie(folder.Write("m.gguf", b.Data(std::string(96, 0)).bytes()));
  EXPECT_EQ(*gguf.ShapeOf("w"), tensor::Shape{8});
  EXPECT_THAT(gguf.ShapeOf("odd").status().message(), HasSubstr("has ggml type 77"));
}

TEST(WeightSource, WrongKindsOfFilesAreNamed) {
  base::TemporaryFolder folder;
  const auto refusal = [](const std::string& path) {
    return WeightSource::Open(path).status().ToString();
  };
  folder.Write("model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:4d\n");
  EXPECT_THAT(refusal(folder.path()), HasSubstr("model.safetensors: is a Git LFS pointer"));
  EXPECT_THAT(refusal(folder.path()), HasSubstr("[file_kind_wrong]"));
  EXPECT_THAT(refusal(folder.Write("page.gguf", "<!DOCTYPE html>\n<html>")),
              HasSubstr("HTML page"));
  folder.Write("model.safetensors", SafetensorsBytes(kOneTensor, Floats({1, 2, 3, 4})));
  EXPECT_THAT(refusal(folder / "model.safetensors"), HasSubstr("give the folder that holds it"));
  base::TemporaryFolder other;
  const std::string gguf = other.Write("m.gguf", "GGUF");
  EXPECT_THAT(refusal(other.path()), HasSubstr("holds a GGUF file; give its path: -m " + gguf));
  other.Write("n.gguf", "GGUF");
  EXPECT_THAT(refusal(other.path()), HasSubstr("holds 2 GGUF files"));
  other.Write("adapter_config.json", "{}");
  EXPECT_THAT(refusal(other.path()), HasSubstr("is a LoRA adapter"));
}

TEST(WeightSource, NanWeightsAreNamed) {
  base::TemporaryFolder folder;
  folder.Write("model.safetensors", SafetensorsBytes(kOneTensor, Floats({1, 2, std::nanf(""), 4})));
  const WeightSource source = OpenOrDie(folder.path());
  float values[4];
  EXPECT_TRUE(source.ExpandRows(*source.Find("w"), 0, 1, values).ok());
  const base::Status status = source.ExpandRows(*source.Find("w"), 1, 2, values);
  EXPECT_EQ(status.code(), kTensorNotFinite);
  EXPECT_THAT(status.message(), HasSubstr("tensor w: row 1, column 0 is nan"));
}

TEST(WeightSource, RowsAsBF16AreTheRoundedOnes) {
  // Every bf16 but NaN and infinity, and the upper halves of some fp32.
  std::string stored, single;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    if ((upper & 0x7F80) == 0x7F80) continue;
    Append(&stored, static_cast<uint16_t>(upper));
    Append(&single, std::bit_cast<float>(upper << 16 | (upper * 40503 & 0xFFFF)));
  }
  const size_t count = single.size() / 4;
  const std::string header = fmt::format(
      R"({{"b":{{"dtype":"BF16","shape":[128,{0}],"data_offsets":[0,{1}]}},"f":{{"dtype":"F32","shape":[128,{0}],"data_offsets":[{1},{2}]}}}})",
      count / 128, stored.size(), stored.size() + single.size());
  base::TemporaryFolder folder;
  folder.Write("model.safetensors", SafetensorsBytes(header, stored + single));
  const WeightSource source = OpenOrDie(folder.path());
  for (const char* name : {"b", "f"}) {
    for (const auto& [begin, end] : {std::pair{0, 128}, {37, 111}}) {
      std::vector<float> exact(count / 128 * (end - begin));
      std::vector<tensor::BF16> rounded(exact.size());
      ASSERT_TRUE(source.ReadRows(name, begin, end, exact.data()).ok());
      ASSERT_TRUE(source.ReadRows(name, begin, end, rounded.data()).ok());
      for (size_t i = 0; i < exact.size(); ++i)
        ASSERT_EQ(rounded[i], tensor::ToBF16(exact[i])) << name << " " << exact[i];
    }
  }
}

TEST(WeightSource, NanWeightsStoredAsBF16AreNamed) {
  base::TemporaryFolder folder;
  std::string data;
  for (const uint16_t bits : {0x3F80, 0x4000, 0x4040, 0xFF80}) Append(&data, bits);
  folder.Write(
      "model.safetensors",
      SafetensorsBytes(R"({"w":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}})", data));
  const WeightSource source = OpenOrDie(folder.path());
  tensor::BF16 values[4];
  EXPECT_TRUE(source.ReadRows("w", 0, 1, values).ok());
  const base::Status status = source.ReadRows("w", 0, 2, values);
  EXPECT_EQ(status.code(), kTensorNotFinite);
  EXPECT_THAT(status.message(), HasSubstr("tensor w: row 1, column 1 is -inf"));
}

TEST(WeightSource, AFileThatChangesUnderTheReaderIsAnError) {
  for (const bool shrink : {true, false}) {
    base::TemporaryFolder folder;
    const std::string bytes = SafetensorsBytes(kOneTensor, Floats({1, 2, 3, 4}));
    const std::string path = folder.Write("model.safetensors", bytes);
    std::filesystem::last_write_time(
        path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
    const WeightSource source = OpenOrDie(folder.path());
    folder.Write("model.safetensors", shrink ? bytes.substr(0, 20) : bytes);
    float values[4];
    EXPECT_EQ(source.ExpandRows(*source.Find("w"), 0, 2, values).code(), kFileChanged);
  }
}

TEST(WeightSource, RefusesFoldersWithoutReadableWeights) {
  base::TemporaryFolder folder;
  EXPECT_EQ(WeightSource::Open(folder.path()).status().code(), kWeightsNotFound);
  EXPECT_EQ(WeightSource::Open(folder.path() + "/absent").status().code(), base::kIoError);
  folder.Write("pytorch_model.bin", "PK");
  const auto pickle = WeightSource::Open(folder.path());
  EXPECT_EQ(pickle.status().code(), kWeightsFormatUnsupported);
  EXPECT_THAT(pickle.status().message(), HasSubstr("run code"));
  folder.Write("empty.gguf", "");
  EXPECT_EQ(WeightSource::Open(folder.path() + "/empty.gguf").status().code(), kGgufTruncated);
}

TEST(WeightSource, RefusesDuplicates) {
  base::TemporaryFolder folder;
  folder.Write("model.safetensors",
               SafetensorsBytes(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                R"("w":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                "ab"));
  EXPECT_EQ(WeightSource::Open(folder.path()).status().code(), kTensorDuplicate);
}

// A GGUF file in parts, each with one tensor of as many ones as its number.
class GgufParts : public testing::Test {
 protected:
  static std::string Name(int part) { return fmt::format("m-{:05}-of-00003.gguf", part + 1); }
  static std::string Part(int number, int count, int tensors, const std::string& tensor) {
    GgufBytes b(1, 3);
    b.Value<uint16_t>("split.no", 2, static_cast<uint16_t>(number));
    b.Value<uint16_t>("split.count", 2, static_cast<uint16_t>(count));
    b.Value<int32_t>("split.tensors.count", 5, tensors);
    b.Tensor(tensor, {2}, 0, 0);
    const float values[2] = {static_cast<float>(number), 1};
    return b.Data({reinterpret_cast<const char*>(values), sizeof(values)}).bytes();
  }
  GgufParts() {
    for (int part = 0; part < 3; ++part)
      folder_.Write(Name(part), Part(part, 3, 3, fmt::format("t{}", part)));
  }
  base::Status Open() { return WeightSource::Open(folder_.path() + "/" + Name(0)).status(); }
  base::TemporaryFolder folder_;
};

TEST_F(GgufParts, AreOneModel) {
  const WeightSource source = OpenOrDie(folder_.path() + "/" + Name(0));
  EXPECT_EQ(source.files().size(), 3u);
  float values[2];
  for (int part = 0; part < 3; ++part) {
    ASSERT_TRUE(source.ReadRows(fmt::format("t{}", part), 0, 1, values).ok());
    EXPECT_EQ(values[0], static_cast<float>(part));
    EXPECT_TRUE(source.FileOf(fmt::format("t{}", part)).ends_with(Name(part)));
  }
}

TEST_F(GgufParts, ThatDoNotBelongTogetherAreRefused) {
  const auto second = WeightSource::Open(folder_.path() + "/" + Name(1)).status();
  EXPECT_EQ(second.code(), kGgufSplit);
  EXPECT_THAT(second.message(), HasSubstr("-00001-of-00003.gguf"));
  folder_.Write(Name(1), Part(2, 3, 3, "t1"));  // twice
  EXPECT_EQ(Open().code(), kGgufSplit);
  folder_.Write(Name(1), Part(1, 2, 3, "t1"));
  EXPECT_EQ(Open().code(), kGgufSplit);
  folder_.Write(Name(1), Part(1, 3, 4, "t1"));  // of a model with other tensors
  EXPECT_EQ(Open().code(), kGgufSplit);
  folder_.Write(Name(1), Part(1, 3, 3, "t2"));
  EXPECT_EQ(Open().code(), kTensorDuplicate);
  std::filesystem::remove(folder_.path() + "/" + Name(1));
  const base::Status missing = Open();
  EXPECT_EQ(missing.code(), kWeightsNotFound);
  EXPECT_THAT(missing.message(), HasSubstr(Name(1)));
  for (int part = 0; part < 3; ++part)
    folder_.Write(Name(part), Part(part, 3, 4, fmt::format("t{}", part)));
  EXPECT_EQ(Open().code(), kGgufSplit);
}

TEST(WeightSource, RefusesHeadsThatDoNotDivideTheRows) {
  base::TemporaryFolder folder;
  for (const uint32_t heads : {0u, 3u, 8u}) {
    GgufBytes b(1, 2);
    b.String("general.architecture", "llama")
        .Value<uint32_t>("llama.attention.head_count", 4, heads);
    b.Tensor("blk.0.attn_q.bias", {8}, 0, 0).Data(std::string(32, '\0'));
    EXPECT_EQ(WeightSource::Open(folder.Write("m.gguf", b.bytes())).status().code(), kTensorShape);
  }
}

// What a GGUF file of Qwen3.5 says of its heads: two groups of two value heads, of two elements.
GgufBytes StateHeads(uint64_t tensors, uint32_t value_heads) {
  GgufBytes b(tensors, 5);
  b.String("general.architecture", "qwen35");
  b.Value<uint32_t>("qwen35.ssm.group_count", 4, 2).Value<uint32_t>("qwen35.ssm.state_size", 4, 2);
  return b.Value("qwen35.ssm.time_step_rank", 4, value_heads)
      .Value<uint32_t>("qwen35.ssm.inner_size", 4, 8);
}

TEST(WeightSource, PutsValueHeadsBack) {
  base::TemporaryFolder folder;
  GgufBytes b = StateHeads(3, 4);
  b.Tensor("blk.0.ssm_alpha.weight", {1, 4}, 0, 0).Tensor("blk.0.ssm_out.weight", {8, 1}, 0, 32);
  b.Tensor("blk.0.ssm_a", {4}, 0, 64);
  std::string data;
  for (const float row : {0, 2, 1, 3, 0, 0, 0, 0}) Append(&data, row);
  for (const float column : {0, 1, 4, 5, 2, 3, 6, 7}) Append(&data, column);
  for (const float value : {-1, -1, -1, -1}) Append(&data, value);
  const WeightSource source = OpenOrDie(folder.Write("m.gguf", b.Data(data).bytes()));
  const std::string state = "model.layers.0.linear_attn.";
  std::vector<float> rows(4), columns(8), powers(4);
  ASSERT_TRUE(source.ReadRows(state + "in_proj_a.weight", 0, 4, rows.data()).ok());
  ASSERT_TRUE(source.ReadRows(state + "out_proj.weight", 0, 1, columns.data()).ok());
  ASSERT_TRUE(source.ReadRows(state + "A_log", 0, 1, powers.data()).ok());
  EXPECT_THAT(rows, testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(columns, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(powers, testing::Each(0));
}

TEST(WeightSource, RefusesValueHeadsThatDoNotFit) {
  base::TemporaryFolder folder;
  const auto code = [&](GgufBytes b, const char* tensor) {
    b.Tensor(tensor, {1, 6}, 0, 0).Data(std::string(32, '\0'));
    return WeightSource::Open(folder.Write("m.gguf", b.bytes())).status().code();
  };
  EXPECT_EQ(code(StateHeads(1, 4), "blk.0.ssm_alpha.weight"), kTensorShape);  // 6 rows, not 4
  EXPECT_EQ(code(StateHeads(1, 3), "blk.0.ssm_alpha.weight"), kTensorShape);  // 8 elements, 3 heads
  EXPECT_EQ(code(StateHeads(1, 0), "blk.0.ssm_alpha.weight"), kTensorShape);
  GgufBytes bare(1, 1);
  bare.String("general.architecture", "qwen35");
  EXPECT_EQ(code(bare, "blk.0.ssm_alpha.weight"), kGgufKeyMissing);
}

TEST(WeightSource, JoinsLatentKeysAndValues) {
  base::TemporaryFolder folder;
  constexpr int kHeads = 2, kRank = 3, kKey = 32;
  const auto write = [&](uint64_t rank_of_values) {
    GgufBytes b(2, 1);
    b.String("general.architecture", "deepseek2");
    b.Tensor("blk.0.attn_k_b.weight", {kKey, kRank, kHeads}, 8, 0);  // Q8_0
    b.Tensor("blk.0.attn_v_b.weight", {rank_of_values, 1, kHeads}, 0, 224);
    std::string data;
    for (int row = 0; row < kHeads * kRank; ++row) {
      Append<uint16_t>(&data, 0x3c00);  // 1
      for (int key = 0; key < kKey; ++key) Append(&data, static_cast<int8_t>(key - 16 * row));
    }
    data.resize(224);
    for (int i = 0; i < kHeads * kRank; ++i) Append(&data, static_cast<float>(i));
    data.resize(288);
    return folder.Write("m.gguf", b.Data(data).bytes());
  };
  const std::string name = "model.layers.0.self_attn.kv_b_proj.weight";
  const std::string path = folder.path() + "/m.gguf";
  write(kRank);
  const WeightSource source = OpenOrDie(path);
  EXPECT_EQ(*source.ShapeOf(name), (tensor::Shape{kHeads * (kKey + 1), kRank}));
  EXPECT_EQ(source.FormOf(name), kernels::TileForm::kExpanded);
  std::vector<float> all(kHeads * (kKey + 1) * kRank);
  // In any pieces.
  for (int64_t begin = 0; begin < kHeads * (kKey + 1); begin += 5) {
    const int64_t end = std::min<int64_t>(begin + 5, kHeads * (kKey + 1));
    ASSERT_TRUE(source.ReadRows(name, begin, end, all.data() + begin * kRank).ok());
  }
  for (int head = 0; head < kHeads; ++head) {
    for (int i = 0; i < kRank; ++i) {
      const float* const rows = all.data() + head * (kKey + 1) * kRank + i;
      for (int key = 0; key < kKey; ++key)
        EXPECT_EQ(rows[key * kRank], key - 16 * (head * kRank + i)) << head << " " << key;
      EXPECT_EQ(rows[kKey * kRank], head * kRank + i);
    }
  }
  write(kRank - 1);
  EXPECT_EQ(WeightSource::Open(path).status().code(), kTensorShape);
}

struct BadIndex {
  const char* name;
  const char* json;
  base::ErrorCode code;
};

class MalformedIndex : public testing::TestWithParam<BadIndex> {};

TEST_P(MalformedIndex, IsRefused) {
  base::TemporaryFolder folder;
  folder.Write("a.safetensors", SafetensorsBytes(kOneTensor, Floats({1, 2, 3, 4})));
  folder.Write("b.safetensors", SafetensorsBytes("{}", ""));
  folder.Write("model.safetensors.index.json", GetParam().json);
  const auto source = WeightSource::Open(folder.path());
  ASSERT_FALSE(source.ok());
  EXPECT_EQ(source.status().code(), GetParam().code) << source.status().ToString();
}

INSTANTIATE_TEST_SUITE_P(
    Table, MalformedIndex,
    testing::Values(
        BadIndex{"NoJson", "x", kWeightsIndexInvalid},
        BadIndex{"NoMap", R"({"a":1})", kWeightsIndexInvalid},
        BadIndex{"MapIsNoObject", R"({"weight_map":[]})", kWeightsIndexInvalid},
        BadIndex{"FileIsNoString", R"({"weight_map":{"w":1}})", kWeightsIndexInvalid},
        BadIndex{"OutsideTheFolder", R"({"weight_map":{"w":"../a.safetensors"}})",
                 kWeightsIndexInvalid},
        BadIndex{"MissingShard", R"({"weight_map":{"w":"c.safetensors"}})", kWeightsNotFound},
        BadIndex{"Truncated", R"({"weight_map":{"w":"a.safetensors")", kWeightsIndexInvalid}),
    [](const auto& info) { return info.param.name; });

TEST(Fingerprint, DependsOnContentAndNotOnPathOrTime) {
  base::TemporaryFolder one, two;
  const std::string bytes = SafetensorsBytes(kOneTensor, Floats({1, 2, 3, 4}));
  one.Write("model.safetensors", bytes);
  const std::string path = two.Write("model.safetensors", bytes);
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(1));
  const uint64_t first = OpenOrDie(one.path()).Fingerprint("{}");
  EXPECT_EQ(OpenOrDie(two.path()).Fingerprint("{}"), first);
  EXPECT_NE(OpenOrDie(two.path()).Fingerprint("{ }"), first);
  two.Write("model.safetensors", SafetensorsBytes(kOneTensor, Floats({1, 2, 3, 5})));
  EXPECT_NE(OpenOrDie(two.path()).Fingerprint("{}"), first);
  std::string renamed = kOneTensor;
  renamed[2] = 'v';
  two.Write("model.safetensors", SafetensorsBytes(renamed, Floats({1, 2, 3, 4})));
  EXPECT_NE(OpenOrDie(two.path()).Fingerprint("{}"), first);
}

}  // namespace
}  // namespace forebay::weights

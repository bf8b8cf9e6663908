#include "weights/formats/gguf.h"

#include <gtest/gtest.h>

#include <functional>

#include "weights/formats/gguf_names.h"
#include "weights/formats/testing/weight_files.h"

namespace forebay::weights {
namespace {

constexpr uint32_t kU8 = 0, kI8 = 1, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7,
                   kString = 8, kArray = 9, kU64 = 10, kI64 = 11, kF64 = 12;

// All value types, two tensors of which the second's data come first.
std::string Sample(uint32_t version = 3) {
  GgufBytes b(2, 14, version);
  b.Value<uint8_t>("u8", kU8, 200).Value<int8_t>("i8", kI8, -1).Value<uint16_t>("u16", kU16, 60000);
  b.Value<int16_t>("i16", kI16, -300)
      .Value<uint32_t>("u32", kU32, 4000000000u)
      .Value<int32_t>("i32", kI32, 7);
  b.Value<float>("f32", kF32, 0.5f).Value<uint8_t>("bool", kBool, 1).String("string", "text");
  b.Value<uint64_t>("u64", kU64, ~0ull)
      .Value<int64_t>("i64", kI64, 5)
      .Value<double>("f64", kF64, 0.1);
  b.Text("strings").Raw(kArray).Raw(kString).Raw<uint64_t>(3).Text("a").Text("").Text("ccc");
  b.Text("ints").Raw(kArray).Raw(kI16).Raw<uint64_t>(2).Raw<int16_t>(-2).Raw<int16_t>(3);
  b.Tensor("f32", {4, 2}, 0, 64).Tensor("q8", {32}, 8, 0);
  return b.Data(std::string(64, 'q') + std::string(32, 'f')).bytes();
}

TEST(Gguf, ReadsEveryValueType) {
  for (uint32_t version : {2u, 3u}) {
    const std::string bytes = Sample(version);
    auto file = GgufFile::Parse(AsBytes(bytes));
    ASSERT_TRUE(file.ok()) << file.status().ToString();
    EXPECT_EQ(*file->GetUint("u8"), 200u);
    EXPECT_EQ(file->GetUint("i8").status().code(), kGgufKeyType);  // negative
    EXPECT_EQ(*file->GetUint("u16"), 60000u);
    EXPECT_EQ(file->GetUint("i16").status().code(), kGgufKeyType);
    EXPECT_EQ(*file->GetUint("u32"), 4000000000u);
    EXPECT_EQ(*file->GetUint("i32"), 7u);
    EXPECT_EQ(*file->GetFloat("f32"), 0.5);
    EXPECT_EQ(*file->GetBool("bool"), true);
    EXPECT_EQ(*file->GetString("string"), "text");
    EXPECT_EQ(file->GetUint("u64").status().code(), kGgufKeyType);  // beyond int64
    EXPECT_EQ(*file->GetUint("i64"), 5u);
    EXPECT_EQ(*file->GetFloat("f64"), 0.1);
    EXPECT_EQ(*file->GetStrings("strings"), (std::vector<std::string_view>{"a", "", "ccc"}));
    EXPECT_EQ(*file->GetInts("ints"), (std::vector<int64_t>{-2, 3}));
  }
}

TEST(Gguf, GettersNameWhatIsWrong) {
  const std::string bytes = Sample();
  auto file = GgufFile::Parse(AsBytes(bytes));
  ASSERT_TRUE(file.ok());
  EXPECT_FALSE(file->Has("absent"));
  EXPECT_EQ(file->GetUint("absent").status().code(), kGgufKeyMissing);
  EXPECT_EQ(file->GetString("u8").status().message(), "key u8 has type u8; expected a string");
  EXPECT_EQ(file->GetUint("ints").status().message(),
            "key ints has type array of i16; expected an integer");
  EXPECT_EQ(file->GetStrings("string").status().code(), kGgufKeyType);
  EXPECT_EQ(file->GetFloats("ints").status().code(), kGgufKeyType);
}

TEST(Gguf, TensorsHaveReversedExtentsAndTheirOwnData) {
  const std::string bytes = Sample();
  auto file = GgufFile::Parse(AsBytes(bytes));
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(file->tensors().size(), 2u);
  const TensorInfo& f32 = file->tensors()[0];
  EXPECT_EQ(f32.shape, (tensor::Shape{2, 4}));
  EXPECT_EQ(f32.data.size(), 32u);
  EXPECT_EQ(static_cast<char>(f32.data[0]), 'f');
  EXPECT_EQ(file->tensors()[1].data.size(), 34u);
  EXPECT_EQ(static_cast<char>(file->tensors()[1].data[33]), 'q');
}

TEST(Gguf, EveryTruncationIsAnError) {
  const std::string bytes = Sample();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    auto file = GgufFile::Parse(AsBytes(cut));
    ASSERT_FALSE(file.ok()) << size;
    EXPECT_EQ(file.status().code(), kGgufTruncated) << size << ": " << file.status().ToString();
  }
}

struct MalformedFile {
  const char* name;
  base::ErrorCode code;
  std::function<std::string()> make;
};

GgufBytes OneTensor(std::initializer_list<uint64_t> extents, uint32_t type, uint64_t offset) {
  GgufBytes b(1, 0);
  b.Tensor("t", extents, type, offset);
  return b;
}

GgufBytes TwoTensors(uint64_t first, uint64_t second) {
  GgufBytes b(2, 0);
  b.Tensor("a", {16}, 0, first).Tensor("b", {16}, 0, second);
  return b;
}

const MalformedFile kMalformedFiles[] = {
    {"WrongMagic", kGgufInvalid, [] { return "GGML" + Sample().substr(4); }},
    {"VersionOne", kGgufVersionUnsupported, [] { return Sample(1); }},
    {"VersionFour", kGgufVersionUnsupported, [] { return Sample(4); }},
    {"BigEndian", kGgufVersionUnsupported, [] { return Sample(0x03000000); }},
    {"HugeNumberOfTensors", kGgufTruncated, [] { return GgufBytes(~0ull, 0).bytes(); }},
    {"HugeNumberOfKeys", kGgufTruncated, [] { return GgufBytes(0, ~0ull).bytes(); }},
    {"HugeKey", kGgufTruncated,
     [] { return GgufBytes(0, 1).Raw<uint64_t>(~0ull).Raw<uint64_t>(0).bytes(); }},
    {"UnknownValueType", kGgufInvalid,
     [] { return GgufBytes(0, 1).Value<uint32_t>("k", 13, 0).bytes(); }},
    {"UnknownElementType", kGgufInvalid,
     [] {
       return GgufBytes(0, 1)
           .Text("k")
           .Raw(kArray)
           .Raw(99u)
           .Raw<uint64_t>(1)
           .Raw<uint64_t>(0)
           .bytes();
     }},
    {"ArrayOfArrays", kGgufInvalid,
     [] {
       return GgufBytes(0, 1)
           .Text("k")
           .Raw(kArray)
           .Raw(kArray)
           .Raw<uint64_t>(1)
           .Raw<uint64_t>(0)
           .bytes();
     }},
    {"HugeArray", kGgufTruncated,
     [] {
       return GgufBytes(0, 1).Text("k").Raw(kArray).Raw(kF64).Raw<uint64_t>(1ull << 61).bytes();
     }},
    {"HugeArrayOfStrings", kGgufTruncated,
     [] {
       return GgufBytes(0, 1).Text("k").Raw(kArray).Raw(kString).Raw<uint64_t>(1ull << 61).bytes();
     }},
    {"BoolOfTwo", kGgufInvalid,
     [] { return GgufBytes(0, 1).Value<uint8_t>("k", kBool, 2).bytes(); }},
    {"KeyTwice", kGgufInvalid,
     [] {
       return GgufBytes(0, 2).Value<uint8_t>("k", kU8, 2).Value<uint8_t>("k", kU8, 2).bytes();
     }},
    {"AlignmentIsNoPower", kGgufInvalid,
     [] { return GgufBytes(0, 1).Value<uint32_t>("general.alignment", kU32, 24).bytes(); }},
    {"AlignmentZero", kGgufInvalid,
     [] { return GgufBytes(0, 1).Value<uint32_t>("general.alignment", kU32, 0).bytes(); }},
    {"AlignmentIsAString", kGgufKeyType,
     [] { return GgufBytes(0, 1).String("general.alignment", "32").bytes(); }},
    {"NoExtents", kGgufInvalid,
     [] { return OneTensor({}, 0, 0).Data(std::string(64, '\0')).bytes(); }},
    {"ZeroExtent", kGgufInvalid,
     [] { return OneTensor({0}, 0, 0).Data(std::string(64, '\0')).bytes(); }},
    {"ShapeOverflow", kGgufInvalid,
     [] {
       return OneTensor({1ull << 32, 1ull << 32}, 0, 0).Data("x").bytes();
     }},
    {"BytesOverflow", kGgufInvalid, [] { return OneTensor({1ull << 61}, 0, 0).Data("x").bytes(); }},
    {"PartOfABlock", kGgufInvalid,
     [] { return OneTensor({33}, 8, 0).Data(std::string(64, '\0')).bytes(); }},
    {"UnknownGgmlTypeBeyondTheFile", kGgufTruncated,
     [] { return OneTensor({32}, 77, 96).Data(std::string(64, '\0')).bytes(); }},
    {"BeyondTheFile", kGgufTruncated,
     [] { return OneTensor({17}, 0, 0).Data(std::string(64, '\0')).bytes(); }},
    {"OffsetBeyondTheFile", kGgufTruncated,
     [] { return OneTensor({1}, 0, 96).Data(std::string(64, '\0')).bytes(); }},
    {"HugeOffset", kGgufTruncated,
     [] { return OneTensor({1}, 0, ~31ull).Data(std::string(64, '\0')).bytes(); }},
    {"MisalignedOffset", kGgufInvalid,
     [] { return OneTensor({1}, 0, 4).Data(std::string(64, '\0')).bytes(); }},
    {"Overlap", kGgufInvalid,
     [] { return TwoTensors(0, 32).Data(std::string(128, '\0')).bytes(); }},
    {"SameData", kGgufInvalid,
     [] { return TwoTensors(0, 0).Data(std::string(128, '\0')).bytes(); }},
};

class MalformedGguf : public testing::TestWithParam<MalformedFile> {};

TEST_P(MalformedGguf, IsRefused) {
  const std::string bytes = GetParam().make();
  auto file = GgufFile::Parse(AsBytes(bytes));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), GetParam().code) << file.status().ToString();
}

INSTANTIATE_TEST_SUITE_P(Table, MalformedGguf, testing::ValuesIn(kMalformedFiles),
                         [](const auto& info) { return info.param.name; });

TEST(Gguf, HonoursAlignment) {
  GgufBytes b(2, 1);
  b.Value<uint32_t>("general.alignment", kU32, 64).Tensor("a", {1}, 0, 0).Tensor("b", {1}, 0, 64);
  const std::string bytes = b.Data(std::string(64, 'a') + "bbbb", 64).bytes();
  auto file = GgufFile::Parse(AsBytes(bytes));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_EQ(static_cast<char>(file->tensors()[0].data[0]), 'a');
  EXPECT_EQ(static_cast<char>(file->tensors()[1].data[3]), 'b');
}

TEST(Gguf, AVocabularyAloneIsAFile) {
  auto file = GgufFile::Parse(AsBytes(GgufBytes(0, 1).String("k", "v").bytes()));
  EXPECT_TRUE(file.ok()) << file.status().ToString();
}

TEST(HfTensorName, MapsWhatBothKnow) {
  EXPECT_EQ(HfTensorName("llama", "token_embd.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(HfTensorName("llama", "output_norm.weight"), "model.norm.weight");
  EXPECT_EQ(HfTensorName("llama", "output.weight"), "lm_head.weight");
  EXPECT_EQ(HfTensorName("llama", "blk.12.attn_q.bias"), "model.layers.12.self_attn.q_proj.bias");
  EXPECT_EQ(HfTensorName("llama", "blk.0.attn_k_norm.weight"),
            "model.layers.0.self_attn.k_norm.weight");
  EXPECT_EQ(HfTensorName("llama", "blk.0.ffn_norm.weight"),
            "model.layers.0.post_attention_layernorm.weight");
  for (const char* name : {"rope_freqs.weight", "blk.x.attn_q.weight", "blk.1", "blk.1.weight",
                           "blk..attn_q.weight", "", ".", "blk.1.ssm_a.weight", "attn_q.weight"}) {
    EXPECT_EQ(HfTensorName("llama", name), name);
  }
}

TEST(HfTensorName, ArchitecturesHaveNamesOfTheirOwn) {
  const std::string layer = "model.layers.7.";
  EXPECT_EQ(HfTensorName("gemma3", "blk.7.ffn_norm.weight"),
            layer + "pre_feedforward_layernorm.weight");
  EXPECT_EQ(HfTensorName("olmo2", "blk.7.post_attention_norm.weight"),
            layer + "post_attention_layernorm.weight");
  EXPECT_EQ(HfTensorName("glm4", "blk.7.ffn_up.weight"), layer + "mlp.gate_up_proj.weight");
  EXPECT_EQ(HfTensorName("glm4", "blk.7.attn_q.bias"), layer + "self_attn.q_proj.bias");
  EXPECT_EQ(HfTensorName("gpt-oss", "blk.7.attn_sinks.weight"), layer + "self_attn.sinks");
  EXPECT_EQ(HfTensorName("lfm2", "blk.7.shortconv.conv.weight"), layer + "conv.conv.weight");
  EXPECT_EQ(HfTensorName("lfm2", "token_embd_norm.weight"), "model.embedding_norm.weight");
  EXPECT_EQ(HfTensorName("nemotron_h", "blk.7.ssm_dt.bias"), layer + "mixer.dt_bias");
  EXPECT_EQ(HfTensorName("nemotron_h_moe", "blk.7.exp_probs_b.bias"),
            layer + "mixer.gate.e_score_correction_bias");
  EXPECT_EQ(HfTensorName("granitehybrid", "blk.7.ssm_a"), layer + "mamba.A_log");
  EXPECT_EQ(HfTensorName("qwen2", "blk.7.post_attention_norm.weight"),
            "blk.7.post_attention_norm.weight");
}

}  // namespace
}  // namespace forebay::weights

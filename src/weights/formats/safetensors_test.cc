#include "weights/formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>

#include "weights/formats/mapped_file.h"
#include "weights/formats/testing/weight_files.h"

namespace forebay::weights {
namespace {

constexpr char kHeader[] =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2,2],"data_offsets":[8,24]},)"
    R"("a":{"shape":[4],"dtype":"BF16","data_offsets":[0,8]},)"
    R"("none":{"dtype":"U8","shape":[0,3],"data_offsets":[24,24]}})";

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirData) {
  const std::string bytes = SafetensorsBytes(kHeader, std::string(24, 'x'));
  auto file = ParseSafetensors(AsBytes(bytes));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  ASSERT_EQ(file->tensors.size(), 3u);
  EXPECT_EQ(file->tensors[0].name, "a");
  EXPECT_EQ(file->tensors[1].name, "b");
  EXPECT_EQ(file->tensors[1].type->name, "F32");
  EXPECT_EQ(file->tensors[1].shape, (tensor::Shape{2, 2}));
  EXPECT_EQ(file->tensors[1].data.data(), AsBytes(bytes).data() + bytes.size() - 16);
  EXPECT_EQ(file->tensors[2].data.size(), 0u);
  EXPECT_EQ(file->tensors[2].rows(), 0);
}

TEST(Safetensors, AnEmptyHeaderIsAFileWithoutTensors) {
  auto file = ParseSafetensors(AsBytes(SafetensorsBytes("{}", "")));
  ASSERT_TRUE(file.ok()) << file.status().ToString();
  EXPECT_TRUE(file->tensors.empty());
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string bytes = SafetensorsBytes(kHeader, std::string(24, 'x'));
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    auto file = ParseSafetensors(AsBytes(cut));
    ASSERT_FALSE(file.ok()) << size;
    EXPECT_EQ(file.status().code(), kSafetensorsTruncated)
        << size << ": " << file.status().ToString();
  }
}

struct MalformedHeader {
  const char* name;
  const char* header;
  size_t data_bytes;
  base::ErrorCode code;
};

class MalformedSafetensors : public testing::TestWithParam<MalformedHeader> {};

TEST_P(MalformedSafetensors, IsRefused) {
  const std::string bytes =
      SafetensorsBytes(GetParam().header, std::string(GetParam().data_bytes, '\0'));
  auto file = ParseSafetensors(AsBytes(bytes));
  ASSERT_FALSE(file.ok());
  EXPECT_EQ(file.status().code(), GetParam().code) << file.status().ToString();
}

const MalformedHeader kMalformedHeaders[] = {
    {"NoJson", "hello", 0, kSafetensorsInvalid},
    {"EmptyHeader", "", 0, kSafetensorsInvalid},
    {"NoObject", "[1]", 0, kSafetensorsInvalid},
    {"SecondDocument", "{} {}", 0, kSafetensorsInvalid},
    {"UnclosedObject", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})", 1,
     kSafetensorsInvalid},
    {"BadUtf8", "{\"\xff\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     kSafetensorsInvalid},
    {"EntryIsNoObject", R"({"a":1})", 0, kSafetensorsInvalid},
    {"MetadataIsNoObject", R"({"__metadata__":1})", 0, kSafetensorsInvalid},
    {"MetadataValueIsNoString", R"({"__metadata__":{"a":1}})", 0, kSafetensorsInvalid},
    {"UnknownDtypeBeyondTheFile", R"({"a":{"dtype":"F12","shape":[1],"data_offsets":[0,2]}})", 1,
     kSafetensorsTruncated},
    {"DtypeIsNoString", R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1,
     kSafetensorsInvalid},
    {"NoDtype", R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1, kSafetensorsInvalid},
    {"NoShape", R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, kSafetensorsInvalid},
    {"NoOffsets", R"({"a":{"dtype":"U8","shape":[1]}})", 1, kSafetensorsInvalid},
    {"UnknownKey", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1,
     kSafetensorsInvalid},
    {"KeyTwice", R"({"a":{"dtype":"U8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", 1,
     kSafetensorsInvalid},
    {"NegativeExtent", R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1,
     kSafetensorsInvalid},
    {"FractionalExtent", R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1,
     kSafetensorsInvalid},
    {"ThreeOffsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,1]}})", 1,
     kSafetensorsInvalid},
    {"OneOffset", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, kSafetensorsInvalid},
    {"BackwardOffsets", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1,
     kSafetensorsInvalid},
    {"BeyondTheFile", R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1,
     kSafetensorsTruncated},
    {"HugeOffset", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551615]}})", 1,
     kSafetensorsTruncated},
    {"OffsetBeyond64Bits",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,18446744073709551616]}})", 1,
     kSafetensorsInvalid},
    {"ShapeOverflow",
     R"({"a":{"dtype":"U8","shape":[4294967296,4294967297],"data_offsets":[0,1]}})", 1,
     kSafetensorsInvalid},
    {"ShapeOverflowBesideZero",
     R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]}})", 0,
     kSafetensorsInvalid},
    {"BytesOverflow", R"({"a":{"dtype":"F64","shape":[4611686018427387904],"data_offsets":[0,0]}})",
     0, kSafetensorsInvalid},
    {"DtypeMismatch", R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
     kSafetensorsInvalid},
    {"Overlap",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
     3, kSafetensorsInvalid},
    {"SameData",
     R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
     2, kSafetensorsInvalid},
    {"Gap",
     R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
     3, kSafetensorsInvalid},
    {"DataAfterTheLast", R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2,
     kSafetensorsInvalid},
};

INSTANTIATE_TEST_SUITE_P(Table, MalformedSafetensors, testing::ValuesIn(kMalformedHeaders),
                         [](const auto& info) { return info.param.name; });

TEST(Safetensors, AHeaderLongerThanTheFileIsAnError) {
  std::string bytes = SafetensorsBytes("{}", "");
  const uint64_t huge = ~0ull;
  std::memcpy(bytes.data(), &huge, sizeof(huge));
  EXPECT_EQ(ParseSafetensors(AsBytes(bytes)).status().code(), kSafetensorsTruncated);
  // Garbage that a large file has room for.
  const uint64_t large = 100'000'001;
  bytes.resize(sizeof(large) + large);
  std::memcpy(bytes.data(), &large, sizeof(large));
  const base::Status status = ParseSafetensors(AsBytes(bytes)).status();
  EXPECT_EQ(status.code(), kSafetensorsInvalid);
  EXPECT_NE(status.message().find("at most 100000000"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace forebay::weights

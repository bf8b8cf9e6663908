#include "model/pooling/pooling.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/golden_files.h"

namespace forebay::model {
namespace {

using testing::HasSubstr;

std::string Modules(std::string_view more) {
  return R"([{"path":"","type":"sentence_transformers.models.Transformer"})" + std::string(more) +
         "]";
}
constexpr std::string_view kPooling =
    R"(,{"path":"1_Pooling","type":"sentence_transformers.models.Pooling"})";
constexpr std::string_view kNormalize =
    R"(,{"path":"2_Normalize","type":"sentence_transformers.models.Normalize"})";
constexpr std::string_view kMean = R"({"pooling_mode_mean_tokens":true,"include_prompt":true})";

constexpr std::string_view kDense =
    R"(,{"path":"2_Dense","type":"sentence_transformers.models.Dense"})";

// Every module has the same config.json.
base::Result<Pooling> ParseAlike(const std::string& modules, std::string_view config) {
  return ParsePooling(
      modules, [&](const std::string&) { return base::Result(std::string(config)); }, "m");
}

TEST(PoolingTest, WhatPublishedModelsSay) {
  const auto read = ReadPooling(golden::Path("models/qwen3-embed"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(**read, (Pooling{.rows = Pooling::Rows::kLast, .normalize = true}));
  EXPECT_FALSE(ReadPooling(golden::Path("models/qwen3"))->has_value());
  EXPECT_EQ(*ParseAlike(Modules(kPooling), kMean),
            (Pooling{.rows = Pooling::Rows::kMean, .normalize = false}));
  const std::string both = std::string(kPooling) + std::string(kNormalize);
  EXPECT_EQ(*ParseAlike(Modules(both), R"({"pooling_mode_cls_token":true})"),
            (Pooling{.rows = Pooling::Rows::kFirst, .normalize = true}));
  const auto gemma = ReadPooling(golden::Path("models/embedding-gemma"));
  ASSERT_TRUE(gemma.ok()) << gemma.status().message();
  const auto dense = [](const char* folder, int64_t in, int64_t out) {
    return DenseLayer{.folder = folder, .name = "linear", .in = in, .out = out, .bias = false};
  };
  EXPECT_EQ(**gemma, (Pooling{.rows = Pooling::Rows::kMean,
                              .dense = {dense("2_Dense", 64, 96), dense("3_Dense", 96, 64)},
                              .normalize = true}));
}

std::string Features(int in, int out, std::string_view bias = "true",
                     std::string_view activation = "\"torch.nn.modules.linear.Identity\"") {
  return fmt::format(R"({{"pooling_mode_mean_tokens":true,"in_features":{},"out_features":{},)"
                     R"("bias":{},"activation_function":{}}})",
                     in, out, bias, activation);
}

TEST(PoolingTest, BadOnes) {
  const std::string good = Modules(kPooling),
                    dense = Modules(std::string(kPooling) + std::string(kDense));
  struct Case {
    std::string modules;
    std::string pooling;
    base::ErrorCode code;
    std::string_view message;
  };
  for (const auto& [modules, pooling, code, message] :
       {Case{good.substr(0, 40), std::string(kMean), kPoolingInvalid, "m/modules.json"},
        Case{"{}", std::string(kMean), kPoolingInvalid, "no list"},
        Case{"[]", std::string(kMean), kPoolingInvalid, "no Transformer"},
        Case{R"([{"type":4,"path":""}])", std::string(kMean), kPoolingInvalid,
             "\"type\" and \"path\""},
        Case{Modules(R"(,{"path":"../x","type":"a.Pooling"})"), std::string(kMean), kPoolingInvalid,
             "path"},
        Case{Modules(""), std::string(kMean), kPoolingInvalid, "no Pooling"},
        Case{Modules(R"(,{"path":"x","type":"a.Dense"})"), std::string(kMean), kPoolingUnsupported,
             "module 1 is Dense"},
        Case{Modules(R"(,{"path":")" + std::string(300, 'x') + R"(","type":"a.Dense"})"),
             std::string(kMean), kPoolingInvalid, "path"},
        Case{dense, std::string(kMean), kPoolingInvalid, "m/2_Dense/config.json: in_features"},
        Case{dense, Features(4, 0), kPoolingInvalid, "out_features"},
        Case{dense, Features(4, 2, "1"), kPoolingInvalid, "bias is neither"},
        Case{dense, Features(4, 2, "true", "4"), kPoolingInvalid, "activation_function"},
        Case{dense, Features(4, 2, "true", "\"torch.nn.modules.activation.SiLU\""),
             kPoolingUnsupported, "SiLU"},
        Case{Modules(std::string(kPooling) + std::string(kDense) + std::string(kDense)),
             Features(4, 2), kPoolingInvalid, "4 inputs behind one of 2 outputs"},
        Case{Modules(kNormalize), std::string(kMean), kPoolingUnsupported, "Normalize"},
        Case{good, R"({"pooling_mode_mean)", kPoolingInvalid, "m/1_Pooling/config.json"},
        Case{good, "[]", kPoolingInvalid, "no object"},
        Case{good, "{}", kPoolingInvalid, "no pooling_mode_"},
        Case{good, R"({"pooling_mode_mean_tokens":1})", kPoolingInvalid, "neither true nor false"},
        Case{good, R"({"pooling_mode_max_tokens":true})", kPoolingUnsupported,
             "pooling_mode_max_tokens"},
        Case{good, R"({"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":true})",
             kPoolingUnsupported, "beside another"}}) {
    const auto parsed = ParseAlike(modules, pooling);
    ASSERT_FALSE(parsed.ok()) << modules << pooling;
    EXPECT_EQ(parsed.status().code(), code) << parsed.status().message();
    EXPECT_THAT(parsed.status().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace forebay::model

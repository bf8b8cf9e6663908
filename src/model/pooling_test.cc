#include "model/pooling.h"

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

TEST(PoolingTest, WhatPublishedModelsSay) {
  const auto read = ReadPooling(golden::Path("models/qwen3-embed"));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(**read, (Pooling{.rows = Pooling::Rows::kLast, .normalize = true}));
  EXPECT_FALSE(ReadPooling(golden::Path("models/qwen3"))->has_value());
  EXPECT_EQ(*ParsePooling(Modules(kPooling), kMean, "m"),
            (Pooling{.rows = Pooling::Rows::kMean, .normalize = false}));
  const std::string both = std::string(kPooling) + std::string(kNormalize);
  EXPECT_EQ(*ParsePooling(Modules(both), R"({"pooling_mode_cls_token":true})", "m"),
            (Pooling{.rows = Pooling::Rows::kFirst, .normalize = true}));
}

TEST(PoolingTest, BadOnes) {
  const std::string good = Modules(kPooling);
  struct Case {
    std::string modules;
    std::string_view pooling;
    base::ErrorCode code;
    std::string_view message;
  };
  for (const auto& [modules, pooling, code, message] :
       {Case{good.substr(0, 40), kMean, kPoolingInvalid, "m/modules.json"},
        Case{"{}", kMean, kPoolingInvalid, "no list"},
        Case{"[]", kMean, kPoolingInvalid, "no Transformer"},
        Case{R"([{"type":4,"path":""}])", kMean, kPoolingInvalid, "\"type\" and \"path\""},
        Case{Modules(R"(,{"path":"../x","type":"a.Pooling"})"), kMean, kPoolingInvalid, "path"},
        Case{Modules(""), kMean, kPoolingInvalid, "no Pooling"},
        Case{Modules(R"(,{"path":"x","type":"a.Dense"})"), kMean, kPoolingUnsupported,
             "module 1 is Dense"},
        Case{Modules(kNormalize), kMean, kPoolingUnsupported, "Normalize"},
        Case{good, R"({"pooling_mode_mean)", kPoolingInvalid, "m/1_Pooling/config.json"},
        Case{good, "[]", kPoolingInvalid, "no object"},
        Case{good, "{}", kPoolingInvalid, "no pooling_mode_"},
        Case{good, R"({"pooling_mode_mean_tokens":1})", kPoolingInvalid, "neither true nor false"},
        Case{good, R"({"pooling_mode_max_tokens":true})", kPoolingUnsupported,
             "pooling_mode_max_tokens"},
        Case{good, R"({"pooling_mode_mean_tokens":true,"pooling_mode_cls_token":true})",
             kPoolingUnsupported, "beside another"}}) {
    const auto parsed = ParsePooling(modules, pooling, "m");
    ASSERT_FALSE(parsed.ok()) << modules << pooling;
    EXPECT_EQ(parsed.status().code(), code) << parsed.status().message();
    EXPECT_THAT(parsed.status().message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace forebay::model

#include "model/unused.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/files/config_reader.h"
#include "testing/test_data.h"
#include "weights/formats/testing/weight_files.h"
#include "weights/formats/weight_source.h"

namespace forebay::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// The golden configuration with one more key.
base::Result<ModelConfig> Parse(std::string_view key, std::string_view value) {
  const std::string json = *base::ReadFile(TestData() + "/golden/models/llama3-gqa/config.json");
  return ParseHfConfig(fmt::format("{{\"{}\": {}, {}", key, value, json.substr(json.find('{') + 1)),
                       "c.json");
}

TEST(UnusedKeys, OnesThatNobodyKnowsAreKept) {
  EXPECT_THAT(Parse("use_cache", "true")->unused_keys, IsEmpty());
  EXPECT_THAT(Parse("mystery", "3")->unused_keys, ElementsAre("mystery"));
  EXPECT_THAT(Parse("mystery", "null")->unused_keys, IsEmpty());
}

TEST(UnusedKeys, OnesThatChangeLogitsAreRefusedUnlessTheyDoNothing) {
  for (const auto& [key, value] :
       {std::pair{"final_logit_softcapping", "30.0"}, std::pair{"logits_scaling", "8"},
        std::pair{"use_parallel_residual", "true"}, std::pair{"query_pre_attn_scalar", "256"}}) {
    const base::Status status = Parse(key, value).status();
    EXPECT_EQ(status.code(), kConfigUnsupported) << key;
    EXPECT_THAT(status.message(), HasSubstr(key));
    EXPECT_TRUE(Parse(key, "null").ok()) << key;
  }
  EXPECT_TRUE(Parse("logits_scaling", "1.0").ok());
  EXPECT_TRUE(Parse("use_parallel_residual", "false").ok());
}

class UnusedTensorsTest : public testing::Test {
 protected:
  base::Result<std::vector<std::string>> Find() {
    const auto source = weights::WeightSource::Open(folder_.Write());
    const std::string_view used[] = {"model.norm.weight"};
    return UnusedTensors(config_, source->names(), used, *source);
  }

  weights::SafetensorsFolder folder_;
  ModelConfig config_ = *Parse("use_cache", "true");
};

TEST_F(UnusedTensorsTest, WhatIsKnownToBeNeededByNobodyIsNotNamed) {
  config_.tie_word_embeddings = true;
  folder_.F32("model.norm.weight", "[1]", {1})
      .F32("lm_head.weight", "[1]", {1})
      .F32("model.layers.0.self_attn.rotary_emb.inv_freq", "[1]", {1})
      .F32("model.layers.0.self_attn.q_proj.bias", "[2]", {0, 0})
      .F32("model.layers.99.input_layernorm.weight", "[1]", {1})
      .F32("model.layers.0.gates", "[1]", {1});
  EXPECT_THAT(*Find(), ElementsAre("model.layers.0.gates"));
}

TEST_F(UnusedTensorsTest, BiasesThatAreNotZeroAreRefused) {
  folder_.F32("model.layers.0.self_attn.q_proj.bias", "[2]", {0, .5f});
  EXPECT_EQ(Find().status().code(), kTensorUnexpected);
  EXPECT_THAT(Find().status().message(), HasSubstr("q_proj.bias"));
}

TEST_F(UnusedTensorsTest, NormsAreRefused) {
  folder_.F32("model.layers.0.self_attn.q_norm.weight", "[1]", {1});
  EXPECT_EQ(Find().status().code(), kTensorUnexpected);
}

// One tensor an expert, or a stack; of the family's own names.
TEST_F(UnusedTensorsTest, ExpertsBeyondTheConfigurationsAreRefused) {
  const auto config_of = [](const std::string& model) {
    const std::string path = TestData() + "/golden/models/" + model + "/config.json";
    return *ParseHfConfig(*base::ReadFile(path), path);
  };
  config_ = config_of("qwen3-moe");
  folder_.F32("model.layers.1.mlp.experts.up_proj.weight", "[8, 1, 1]", std::vector<float>(8));
  EXPECT_TRUE(Find().ok()) << Find().status().ToString();
  folder_.F32("model.layers.0.mlp.experts.down_proj.weight", "[10, 1, 1]", std::vector<float>(10));
  EXPECT_EQ(Find().status().code(), kTensorUnexpected);
  EXPECT_THAT(Find().status().message(), HasSubstr("model.safetensors: layer 0 has 10 experts"));
  EXPECT_THAT(Find().status().message(), HasSubstr("expected 8"));
  config_ = config_of("mixtral");
  folder_.F32("model.layers.1.block_sparse_moe.experts.4.w3.weight", "[1]", {1});
  EXPECT_THAT(Find().status().message(),
              HasSubstr("layer 1 has 5 experts (model.layers.1.block_sparse_moe.experts.4.w3"));
}

TEST_F(UnusedTensorsTest, PartsThatAreNotTextAreNamedAlone) {
  folder_.F32("vision_model.layers.0.norm.weight", "[1]", {1})
      .F32("vision_model.layers.0.fc.bias", "[1]", {1});
  EXPECT_EQ(Find()->size(), 2u);
}

}  // namespace
}  // namespace forebay::model

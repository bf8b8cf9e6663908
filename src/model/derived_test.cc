#include "model/derived.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/builtin_configs.h"
#include "model/family.h"
#include "model/files/config_reader.h"
#include "model/testing/golden_config.h"
#include "testing/test_data.h"
#include "weights/formats/safetensors.h"
#include "weights/formats/weight_source.h"

namespace forebay::model {
namespace {

using testing::HasSubstr;

const std::string kModels = TestData() + "/golden/models/";

// Elements of all tensors that belong to the model's own layers.
int64_t StoredElements(const std::string& model, int64_t num_layers) {
  auto file = weights::MappedFile::Open(kModels + model + "/model.safetensors");
  auto parsed = weights::ParseSafetensors(file->bytes());
  const std::string next_token_layer = "model.layers." + std::to_string(num_layers) + ".";
  int64_t sum = 0;
  for (const weights::TensorInfo& tensor : parsed->tensors) {
    // old files store that table
    const bool is_weight = !tensor.name.ends_with("rotary_emb.inv_freq");
    if (is_weight && !tensor.name.starts_with(next_token_layer)) sum += tensor.shape.elements();
  }
  return sum;
}

class DerivedFromGolden : public testing::TestWithParam<const char*> {};

TEST_P(DerivedFromGolden, ParametersAreTheStoredElements) {
  const ModelConfig config = GoldenConfig(GetParam());
  EXPECT_EQ(Derive(config).params, StoredElements(GetParam(), config.num_layers));
}

INSTANTIATE_TEST_SUITE_P(Models, DerivedFromGolden,
                         testing::Values("llama2-mha", "llama3-gqa", "mistral", "qwen2-tied",
                                         "qwen3", "smollm2-like", "yarn-qwen2.5", "deepseek-v3",
                                         "llama4-text", "qwen3-moe", "gemma3", "gemma4-e",
                                         "gemma4-moe"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(c); });
                           return name;
                         });

TEST(Derived, ATokenMeetsItsExpertsAndTheHead) {
  // 2 layers, 2 of 8 experts of 32, hidden 64
  const ModelConfig config = GoldenConfig("qwen3-moe");
  const DerivedFigures figures = Derive(config);
  const int64_t expert = 3 * 64 * 32;
  EXPECT_EQ(ExpertParams(config), expert);
  EXPECT_EQ(figures.ffn_params, 2 * (8 * expert + 8 * 64));
  EXPECT_EQ(figures.params - figures.active_params, 2 * 6 * expert);
  const int64_t attention = 2 * 64 * 64 + 2 * 64 * 32, head = 256 * 64;
  EXPECT_EQ(figures.token_weights, 2 * (attention + 2 * expert + 8 * 64) + head);
  EXPECT_EQ(figures.flops_per_token(), 2.0 * static_cast<double>(figures.token_weights));
  EXPECT_EQ(figures.kv_values, 2 * 2 * 2 * 16);
}

TEST(ExpertConfig, ReadsTheGoldenFields) {
  const ModelConfig deepseek = GoldenConfig("deepseek-v3");
  ASSERT_TRUE(deepseek.moe && deepseek.mla);
  EXPECT_EQ(deepseek.moe->num_experts, 8);
  EXPECT_EQ(deepseek.moe->experts_per_token, 3);
  EXPECT_EQ(deepseek.moe->num_shared_experts, 1);
  EXPECT_EQ(deepseek.moe->intermediate_size, 16);
  EXPECT_EQ(deepseek.moe->has_experts, (std::vector<uint8_t>{0, 1, 1}));
  EXPECT_EQ(deepseek.mla->q_lora_rank, 40);
  EXPECT_EQ(deepseek.mla->kv_lora_rank, 24);
  EXPECT_EQ(deepseek.mla->qk_nope_head_dim, 16);
  EXPECT_EQ(deepseek.mla->v_head_dim, 12);
  EXPECT_EQ(deepseek.head_dim, 8);  // the turned part
  EXPECT_EQ(deepseek.rope.inv_freq.size(), 4u);
  EXPECT_EQ(Derive(deepseek).kv_values, 3 * (24 + 8));

  const ModelConfig llama = GoldenConfig("llama4-text");
  ASSERT_TRUE(llama.moe && !llama.mla);
  EXPECT_EQ(llama.moe->intermediate_size, 40);
  EXPECT_EQ(llama.intermediate_size, 96);
  EXPECT_EQ(llama.moe->has_experts, (std::vector<uint8_t>{0, 1, 0, 1}));

  EXPECT_EQ(GoldenConfig("qwen3-moe").moe->has_experts, (std::vector<uint8_t>{1, 1}));
  EXPECT_FALSE(GoldenConfig("qwen3").moe || GoldenConfig("qwen3").mla);
}

TEST(ExpertConfig, ReadsLlama4sAttention) {
  const ModelConfig llama = GoldenConfig("llama4-text");
  EXPECT_EQ(llama.without_rope, (std::vector<uint8_t>{0, 0, 0, 1}));
  EXPECT_EQ(llama.ReachOf(0), base::Reach(0, 32));
  EXPECT_EQ(llama.ReachOf(3), base::Reach());
  EXPECT_TRUE(llama.norm_after_rope && llama.rope_interleaved);
  EXPECT_EQ(llama.temperature_floor, 48);
  EXPECT_EQ(llama.temperature_scale, 0.5);
}

// What published folders look like: the text's keys in an object of their own, layers without rope
// as a list, a number where the reference has a flag.
TEST(ExpertConfig, ReadsPublishedLlama4) {
  std::string text = GoldenText("llama4-text");
  text.replace(text.find("\"attn_temperature_tuning\": true"), 31,
               "\"attn_temperature_tuning\": 4, \"no_rope_layers\": [1, 0, 1, 1]");
  const std::string json =
      "{\"architectures\": [\"Llama4ForConditionalGeneration\"], \"vision_config\": {}, "
      "\"text_config\": " +
      text + "}";
  const auto config = ParseHfConfig(json, "c");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->without_rope, (std::vector<uint8_t>{0, 1, 0, 0}));
  EXPECT_EQ(config->temperature_floor, 48);
}

// A config.json with one key changed.
base::Status Changed(const char* model, const std::string& key, const std::string& from,
                     const std::string& to) {
  std::string json = GoldenText(model);
  const std::string old_text = "\"" + key + "\": " + from;
  EXPECT_NE(json.find(old_text), std::string::npos) << old_text;
  json.replace(json.find(old_text), old_text.size(), "\"" + key + "\": " + to);
  return ParseHfConfig(json, "c").status();
}

TEST(ExpertConfig, RefusesValuesOutOfRange) {
  EXPECT_THAT(Changed("qwen3-moe", "num_experts_per_tok", "2", "9").message(),
              HasSubstr("to 9 of 8 experts"));
  EXPECT_EQ(Changed("qwen3-moe", "moe_intermediate_size", "32", "null").code(), kConfigInvalid);
  EXPECT_EQ(Changed("qwen3-moe", "mlp_only_layers", "[]", "[-1]").code(), kConfigInvalid);
  EXPECT_TRUE(Changed("qwen3-moe", "mlp_only_layers", "[]", "[0, 99]").ok());
  EXPECT_TRUE(Changed("qwen3-next", "intermediate_size", "112", "null").ok());
  EXPECT_THAT(Changed("qwen3-moe", "moe_intermediate_size", "32", "9999999").message(),
              HasSubstr("8 experts of width 9999999"));
  EXPECT_EQ(Changed("deepseek-v3", "kv_lora_rank", "24", "0").code(), kConfigInvalid);
  EXPECT_EQ(Changed("deepseek-v3", "qk_rope_head_dim", "8", "7").code(), kConfigInvalid);
  EXPECT_EQ(Changed("llama4-text", "num_local_experts", "4", "-4").code(), kConfigInvalid);
  EXPECT_EQ(Changed("llama4-text", "attention_chunk_size", "32", "0").code(), kConfigInvalid);
  EXPECT_THAT(Changed("deepseek-v3", "kv_lora_rank", "24", "514").message(),
              HasSubstr("kv_lora_rank is 514; expected an even number up to 512"));
  EXPECT_THAT(Changed("deepseek-v3", "v_head_dim", "12", "13").message(),
              HasSubstr("v_head_dim is 13"));
}

TEST(BuiltinConfig, AllParseAndUnknownNamesListThem) {
  EXPECT_EQ(BuiltinConfigTexts().size(), 15u);
  for (const BuiltinConfigText& text : BuiltinConfigTexts()) {
    const auto config = LoadBuiltinConfig(text.name);
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_GT(Derive(*config).params, int64_t{700'000'000}) << text.name;
  }
  const auto unknown = LoadBuiltinConfig("builtin:Qwen3-33B");
  EXPECT_EQ(unknown.status().code(), kBuiltinUnknown);
  EXPECT_EQ(unknown.status().message(),
            "model builtin:Qwen3-33B is not built in; expected one of DeepSeek-R1-FP8, "
            "DeepSeek-R1-NVFP4, DeepSeek-R1, Llama-3-8B, Llama-3.1-70B, Llama-4-Scout, "
            "Qwen2.5-72B, Qwen3-30B-A3B, Qwen3-32B, Qwen3.5-0.8B, Qwen3.6-35B-A3B, "
            "gemma-3-4B, gemma-4-26B-A4B, gpt-oss-120b, gpt-oss-20b");
}

// Published: 3.9 billion; 25.2 and 3.8 of a token; 116.8 and 5.1; 20.9 and 3.6, of which the head
// alone.
TEST(BuiltinConfig, ParametersOfThePublishedModels) {
  const std::tuple<const char*, double, double> expected[] = {{"gemma-3-4B", 3.9, 3.9},
                                                              {"gemma-4-26B-A4B", 25.2, 3.8},
                                                              {"gpt-oss-120b", 116.8, 5.7},
                                                              {"gpt-oss-20b", 20.9, 4.2}};
  for (const auto& [name, params, active] : expected) {
    const DerivedFigures figures = Derive(*LoadBuiltinConfig(name));
    EXPECT_NEAR(static_cast<double>(figures.params) / 1e9, params, 0.06) << name;
    EXPECT_NEAR(static_cast<double>(figures.active_params) / 1e9, active, 0.06) << name;
  }
}

}  // namespace
}  // namespace forebay::model

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/json.h"
#include "model/builtin_configs.h"
#include "model/derived.h"
#include "model/family.h"
#include "model/files/config_reader.h"
#include "model/rope.h"
#include "model/testing/golden_config.h"
#include "testing/test_data.h"
#include "weights/formats/safetensors.h"
#include "weights/formats/weight_source.h"

namespace forebay::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kGolden = TestData() + "/golden/";

// An object's text without a line of that key.
std::string WithoutKey(std::string json, std::string_view key) {
  const size_t at = json.find(fmt::format("\"{}\":", key));
  EXPECT_NE(at, std::string::npos) << key;
  return json.erase(at, json.find(',', at) + 1 - at);
}

// An object's text with one more key, the first: of two alike it is the one that counts.
std::string WithKey(const std::string& json, std::string_view key, std::string_view value) {
  return fmt::format("{{\"{}\": {}, {}", key, value, json.substr(json.find('{') + 1));
}

std::vector<float> GoldenTensor(const std::string& model, std::string_view name) {
  auto file = weights::MappedFile::Open(kGolden + "models/" + model + "/golden.safetensors");
  auto parsed = weights::ParseSafetensors(file->bytes());
  for (const weights::TensorInfo& tensor : parsed->tensors) {
    if (tensor.name != name) continue;
    std::vector<float> values(tensor.shape.elements());
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    return values;
  }
  ADD_FAILURE() << name << " is missing";
  return {};
}

class GoldenModel : public testing::TestWithParam<const char*> {};

// torch computes in fp32: a few units in the last place, and pow's error where theta is large.
TEST_P(GoldenModel, RopeIsTheReferences) {
  const ModelConfig config = GoldenConfig(GetParam());
  const std::vector<float> expected = GoldenTensor(GetParam(), "rope_inv_freq");
  ASSERT_EQ(static_cast<size_t>(config.RotaryDim() / 2), expected.size());
  for (size_t i = 0; i < config.rope.inv_freq.size(); ++i) {
    const float frequency = config.rope.inv_freq[i];
    if (i < expected.size()) {
      EXPECT_NEAR(frequency / expected[i], 1, 2e-6) << i;
    } else {
      EXPECT_EQ(frequency, 0) << i;  // it is not turned
    }
  }
  EXPECT_NEAR(config.rope.cos_sin_scale, GoldenTensor(GetParam(), "rope_cos_sin_scale")[0], 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenModel,
                         testing::Values("llama2-mha", "llama3-gqa", "mistral", "qwen2",
                                         "qwen2-tied", "qwen3", "smollm2-like", "yarn-qwen2.5",
                                         "phi3", "phi4-mini", "glm4", "glm4-moe", "gpt-oss",
                                         "granite", "exaone4", "hunyuan", "ministral3",
                                         "minimax-m2", "qwen3.5", "qwen3-next", "lfm2"),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(c); });
                           return name;
                         });

// Layers with a window turn by themselves.
TEST(HfConfig, RopeByKindOfLayer) {
  for (const char* model : {"gemma3", "olmo3", "gemma4-e"}) {
    const ModelConfig config = GoldenConfig(model);
    ASSERT_TRUE(config.windowed_rope) << model;
    for (const auto& [kind, rope] :
         {std::pair{"full", &config.rope}, {"sliding", &*config.windowed_rope}}) {
      const std::vector<float> expected =
          GoldenTensor(model, fmt::format("rope_{}_attention_inv_freq", kind));
      ASSERT_EQ(rope->inv_freq.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(rope->inv_freq[i], expected[i], 2e-6 * expected[i]) << model << kind << i;
    }
  }
  const std::string yarn =
      R"({"rope_type":"yarn","factor":4,"original_max_position_embeddings":64})";
  const auto scaled =
      ParseHfConfig(WithKey(GoldenText("olmo3"), "rope_scaling", yarn), "config.json");
  ASSERT_TRUE(scaled.ok()) << scaled.status().ToString();
  EXPECT_NE(scaled->rope.inv_freq, scaled->windowed_rope->inv_freq);
  EXPECT_EQ(scaled->windowed_rope->inv_freq, GoldenConfig("olmo3").rope.inv_freq);
}

// Short runs have frequencies of their own.
TEST(HfConfig, LongropeByTheRunsLength) {
  const RopeSpec rope = GoldenConfig("phi4-mini").rope;
  EXPECT_EQ(rope.short_positions, 6);
  EXPECT_EQ(&rope.FrequenciesOf(6), &rope.short_inv_freq);
  EXPECT_EQ(&rope.FrequenciesOf(7), &rope.inv_freq);
  EXPECT_NE(rope.short_inv_freq, rope.inv_freq);
}

// As published LFM2 folders say it: the width before two thirds of it are taken, layers by number.
TEST(HfConfig, Lfm2AsPublished) {
  std::string text = GoldenText("lfm2");
  for (const char* key :
       {"layer_types", "intermediate_size", "rms_norm_eps", "tie_word_embeddings"})
    text.replace(text.find(key), 1, "_");
  text = WithKey(WithKey(WithKey(text, "block_auto_adjust_ff_dim", "true"), "block_ff_dim", "200"),
                 "full_attn_idxs", "[1, 3]");
  const auto config = ParseHfConfig(text, "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->intermediate_size, 144);  // 133, in multiples of 16
  EXPECT_THAT(config->states->has_state, ElementsAre(1, 0, 1, 0));
  EXPECT_EQ(config->rms_norm_eps, 1e-5f);
  EXPECT_TRUE(config->tie_word_embeddings);
  const auto wide = ParseHfConfig(
      WithKey(WithKey(text, "block_ffn_dim_multiplier", "1e3"), "block_ff_dim", "16777216"),
      "config.json");
  EXPECT_EQ(wide.status().code(), kConfigInvalid);
  EXPECT_THAT(wide.status().message(), HasSubstr("blocks of width 11184810000; expected at most"));
}

TEST(HfConfig, AnEmptyKeyIsNoWidth) {
  const auto config = ParseHfConfig(WithKey(GoldenText("llama3-gqa"), "", "7"), "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->intermediate_size, 112);
}

// Granite 4's small models have no experts, and some no states.
TEST(HfConfig, GraniteHybridWithoutExpertsOrStates) {
  const std::string dense = WithKey(GoldenText("granite4-hybrid"), "num_local_experts", "0");
  const auto config = ParseHfConfig(dense, "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_FALSE(config->moe);
  EXPECT_EQ(config->intermediate_size, 64);
  const auto plain = ParseHfConfig(
      WithKey(WithKey(dense, "layer_types", R"(["attention","attention","attention","attention"])"),
              "position_embedding_type", R"("rope")"),
      "config.json");
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  EXPECT_FALSE(plain->states);
  EXPECT_TRUE(plain->HasRope(0));
}

// Nemotron 3 Nano: experts without a gate, beside a shared one of another width.
TEST(HfConfig, NemotronWithExperts) {
  std::string text = WithKey(GoldenText("nemotron-h"), "hybrid_override_pattern", R"("ME*-")");
  for (const auto& [key, value] : {std::pair{"n_routed_experts", "8"},
                                   {"num_experts_per_tok", "2"},
                                   {"n_shared_experts", "1"},
                                   {"moe_intermediate_size", "24"},
                                   {"moe_shared_expert_intermediate_size", "40"},
                                   {"routed_scaling_factor", "2.5"}})
    text = WithKey(text, key, value);
  const auto config = ParseHfConfig(text, "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_THAT(config->moe->has_experts, ElementsAre(0, 1, 0, 0));
  EXPECT_EQ(config->moe->SharedWidth(), 40);
  EXPECT_EQ(config->DenseLayers(), 1);
  EXPECT_THAT(config->without_attention, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(config->without_ffn, ElementsAre(1, 0, 1, 0));
  EXPECT_EQ(ExpertParams(*config), 2 * 64 * 24);
}

// As published Nemotron-H folders say it, and as newer programs do.
TEST(HfConfig, NemotronAsPublished) {
  std::string text = GoldenText("nemotron-h");
  for (const char* key : {"head_dim", "hybrid_override_pattern"})
    text.replace(text.find(key), 1, "_");
  text = WithKey(
      WithKey(WithKey(text, "attention_head_dim", "32"), "name_\\\"Infinity", "\"Infinity\""),
      "layers_block_type", R"(["linear_attention","mlp","full_attention","mamba"])");
  for (const char* limit : {"[0.0, Infinity]", R"([0.0, {"__float__": "Infinity"}])"}) {
    const auto config = ParseHfConfig(WithKey(text, "time_step_limit", limit), "config.json");
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(config->head_dim, 32);
    EXPECT_EQ(config->states->least_step, 0.001f);
    EXPECT_THAT(config->states->has_state, ElementsAre(1, 0, 0, 1));
    EXPECT_THAT(config->unused_keys,
                ElementsAre("name_\"Infinity", "_ybrid_override_pattern", "_ead_dim"));
  }
  const auto granite = ParseHfConfig(
      WithKey(WithKey(GoldenText("granite4-hybrid"), "time_step_limit", "[0.5, Infinity]"),
              "layer_types",
              R"(["linear_attention","linear_attention","full_attention","linear_attention"])"),
      "config.json");
  ASSERT_TRUE(granite.ok()) << granite.status().ToString();
  EXPECT_EQ(granite->states->least_step, 0.5f);
  EXPECT_THAT(granite->states->has_state, ElementsAre(1, 1, 0, 1));
}

TEST(HfConfig, RefusesWhatFurtherFamiliesCannotHave) {
  const auto refused = [](const std::string& model, std::string_view key, std::string_view value,
                          const base::ErrorCode& code, const char* what) {
    const auto config = ParseHfConfig(WithKey(GoldenText(model), key, value), "config.json");
    EXPECT_EQ(config.status().code(), code) << model << " " << key;
    EXPECT_THAT(config.status().message(), HasSubstr(what));
  };
  refused("qwen3.5", "layer_types", R"(["linear_attention"])", kConfigInvalid,
          "layer_types has 1 entries; expected num_hidden_layers = 4");
  refused("qwen3.5", "layer_types", R"(["linear_attention","mamba","mamba","full_attention"])",
          kConfigUnsupported, "mamba");
  refused("qwen3.5", "linear_num_value_heads", "3", kConfigInvalid, "no multiple of");
  refused("qwen3.5", "linear_conv_kernel_dim", "3", kConfigUnsupported, "linear_conv_kernel_dim");
  refused("lfm2", "layer_types", R"(["conv","conv","full_attention"])", kConfigInvalid,
          "layer_types has 3 entries; expected num_hidden_layers = 4");
  refused("lfm2", "layer_types", R"(["conv","mamba","full_attention","conv"])", kConfigUnsupported,
          "mamba");
  refused("lfm2", "conv_L_cache", "5", kConfigInvalid, "conv_L_cache");
  refused("lfm2", "conv_bias", "true", kConfigUnsupported, "conv_bias");
  refused("nemotron-h", "hybrid_override_pattern", R"("M-*")", kConfigInvalid,
          "hybrid_override_pattern has 3 entries; expected num_hidden_layers = 4");
  refused("nemotron-h", "hybrid_override_pattern", R"("M-*X")", kConfigUnsupported, "X");
  refused("nemotron-h", "hybrid_override_pattern", R"("M--M")", kConfigInvalid, "no attention");
  refused("nemotron-h", "mamba_num_heads", "3", kConfigInvalid,
          "mamba_num_heads 3 is no multiple of n_groups 2");
  refused("nemotron-h", "ssm_state_size", "512", kConfigInvalid, "ssm_state_size");
  refused("nemotron-h", "mlp_hidden_act", R"("silu")", kConfigUnsupported, "mlp_hidden_act");
  refused("nemotron-h", "moe_latent_size", "64", kConfigUnsupported, "moe_latent_size");
  refused("nemotron-h", "time_step_limit", "[0.0, 0.1]", kConfigUnsupported, "time_step_limit");
  refused("nemotron-h", "time_step_limit", "[-Infinity, 0.1]", base::kJsonInvalid, "config.json");
  refused("granite4-hybrid", "layer_types", R"(["mamba"])", kConfigInvalid,
          "layer_types has 1 entries; expected num_hidden_layers = 4");
  refused("granite4-hybrid", "layer_types", R"(["mamba","conv","attention","mamba"])",
          kConfigUnsupported, "conv");
  refused("granite4-hybrid", "mamba_proj_bias", "true", kConfigUnsupported, "mamba_proj_bias");
  refused("granite4-hybrid", "position_embedding_type", R"("alibi")", kConfigUnsupported, "alibi");
  refused("qwen3-next", "shared_expert_intermediate_size", "33", kConfigUnsupported,
          "a multiple of moe_intermediate_size 32");
  refused("gemma3", "layer_types", R"(["full_attention"])", kConfigInvalid,
          "layer_types has 1 entries; expected num_hidden_layers = 6");
  refused("olmo3", "layer_types", R"(["a","b","c","d"])", kConfigUnsupported, "layer_types is a");
  refused("glm4-moe", "mlp_layer_types", R"(["dense"])", kConfigInvalid,
          "mlp_layer_types has 1 entries");
  refused("gpt-oss", "sliding_window", "0", kConfigInvalid, "sliding_window is 0");
  refused("gpt-oss", "swiglu_limit", "5", kConfigUnsupported, "swiglu_limit is 5");
  refused("glm4", "partial_rotary_factor", "0.45", kConfigInvalid, "turns 7 elements");
  refused("minimax-m2", "rotary_dim", "7", kConfigInvalid, "rope turns 7 of a head's 16");
  refused("phi4-mini", "rope_scaling",
          R"({"type":"longrope","short_factor":[1],"long_factor":[1]})", kConfigInvalid,
          "short_factor has 1 entries and long_factor 1; expected 6");
  refused("gemma4-e", "num_kv_shared_layers", "6", kConfigInvalid, "num_kv_shared_layers is 6");
  refused("gemma4-e", "num_kv_shared_layers", "4", kConfigInvalid,
          "layer 2 reads the keys and values of a layer before layer 2, and none there has its "
          "window of 0");
  refused("gemma4-e", "vocab_size_per_layer_input", "300", kConfigUnsupported,
          "vocab_size_per_layer_input is 300");
  refused("gemma4-e", "use_bidirectional_attention", "\"all\"", kConfigUnsupported,
          "use_bidirectional_attention");
  refused("gemma4-moe", "num_global_key_value_heads", "3", kConfigInvalid,
          "layers without a window have 3 key-value heads");
  refused("gemma4-moe", "global_head_dim", "33", kConfigInvalid, "of 33 dimensions");
  refused("gemma2", "hidden_activation", R"("gelu")", kConfigUnsupported, "hidden_activation");
}

// Heads by kind of layer, the layers whose keys and values others read, published folders' form.
TEST(HfConfig, ReadsGemma4) {
  const ModelConfig e = GoldenConfig("gemma4-e");
  EXPECT_EQ(e.HeadsOf(0), (HeadSizes{2, 16}));
  EXPECT_EQ(e.HeadsOf(2), (HeadSizes{2, 32}));
  EXPECT_THAT((std::vector{e.KvLayerOf(2), e.KvLayerOf(3), e.KvLayerOf(4), e.KvLayerOf(5)}),
              ElementsAre(2, 1, 1, 2));
  EXPECT_EQ(e.FfnWidth(2), 112);
  EXPECT_EQ(e.FfnWidth(3), 224);
  EXPECT_EQ(e.layer_input_size, 16);
  EXPECT_FALSE(e.moe || e.full_values_are_keys);
  const ModelConfig moe = GoldenConfig("gemma4-moe");
  EXPECT_EQ(moe.HeadsOf(5), (HeadSizes{1, 32}));
  EXPECT_TRUE(moe.full_values_are_keys && moe.moe->beside_dense && moe.moe->renormalize);
  const std::string published =
      R"({"architectures": ["Gemma4ForConditionalGeneration"], "vision_config": {}, "text_config": )" +
      GoldenText("gemma4-moe") + "}";
  const auto config = ParseHfConfig(published, "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->moe->num_experts, 8);
}

TEST(HfConfig, ReadsTheGoldenFields) {
  const ModelConfig llama = GoldenConfig("llama3-gqa");
  EXPECT_EQ(llama.family, "llama");
  EXPECT_EQ(llama.architecture, "LlamaForCausalLM");
  EXPECT_EQ(llama.vocab_size, 320);
  EXPECT_EQ(llama.hidden_size, 64);
  EXPECT_EQ(llama.intermediate_size, 112);
  EXPECT_EQ(llama.num_layers, 3);
  EXPECT_EQ(llama.num_heads, 4);
  EXPECT_EQ(llama.num_kv_heads, 2);
  EXPECT_EQ(llama.head_dim, 16);
  EXPECT_EQ(llama.max_position_embeddings, 512);
  EXPECT_EQ(static_cast<float>(llama.rms_norm_eps), 1e-5f);
  EXPECT_TRUE(llama.tie_word_embeddings);
  EXPECT_FALSE(llama.attention_bias || llama.attention_out_bias || llama.mlp_bias || llama.qk_norm);
  EXPECT_EQ(llama.bos_token_id, 316);
  EXPECT_THAT(llama.eos_token_ids, ElementsAre(317, 318));
  EXPECT_THAT(llama.sliding_window, ElementsAre(0, 0, 0));
  EXPECT_EQ(llama.stored_dtype, tensor::DType::kBF16);

  EXPECT_EQ(GoldenConfig("llama2-mha").head_dim, 16);  // 64 / 4
  EXPECT_FALSE(GoldenConfig("llama2-mha").tie_word_embeddings);
  EXPECT_EQ(static_cast<float>(GoldenConfig("llama2-mha").rms_norm_eps), 0.02f);
  EXPECT_THAT(GoldenConfig("mistral").sliding_window, ElementsAre(32, 32));
  EXPECT_THAT(GoldenConfig("qwen2").sliding_window, ElementsAre(0, 0));
  EXPECT_TRUE(GoldenConfig("qwen2").attention_bias);
  EXPECT_FALSE(GoldenConfig("qwen2").attention_out_bias);
  EXPECT_EQ(GoldenConfig("qwen2-tied").stored_dtype, tensor::DType::kF16);
  EXPECT_TRUE(GoldenConfig("qwen3").qk_norm);
  EXPECT_FALSE(GoldenConfig("qwen3").attention_bias);
  EXPECT_EQ(GoldenConfig("qwen3").head_dim, 32);
  EXPECT_EQ(GoldenConfig("smollm2-like").stored_dtype, tensor::DType::kF32);
  EXPECT_EQ(GoldenConfig("smollm2-like").num_kv_heads, 1);
}

TEST(HfConfig, OtherFamiliesAreNamedAsUnknown) {
  const auto config = ParseHfConfig(R"({"architectures":["GPT2LMForCausalLM"]})", "config.json");
  EXPECT_EQ(config.status().code(), kArchitectureUnknown);
  EXPECT_THAT(config.status().message(),
              HasSubstr("ForCausalLM\" is not known; supported: LlamaForCausalLM"));
}

class GoldenGgufConfig : public testing::TestWithParam<const char*> {};

TEST_P(GoldenGgufConfig, EqualsTheFoldersConfig) {
  const ModelConfig hf = GoldenConfig(GetParam());
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_1"}) {
    const std::string path = kGolden + "gguf/" + GetParam() + "-" + type + ".gguf";
    auto source = weights::WeightSource::Open(path);
    ASSERT_TRUE(source.ok()) << source.status().ToString();
    auto gguf = ReadGgufConfig(*source->gguf(), path);
    ASSERT_TRUE(gguf.ok()) << gguf.status().ToString();
    EXPECT_EQ(gguf->family, hf.family);
    EXPECT_EQ(gguf->vocab_size, hf.vocab_size);
    EXPECT_EQ(gguf->hidden_size, hf.hidden_size);
    EXPECT_EQ(gguf->intermediate_size, hf.intermediate_size);
    EXPECT_EQ(gguf->num_layers, hf.num_layers);
    EXPECT_EQ(gguf->num_heads, hf.num_heads);
    EXPECT_EQ(gguf->num_kv_heads, hf.num_kv_heads);
    EXPECT_EQ(gguf->head_dim, hf.head_dim);
    EXPECT_EQ(gguf->rms_norm_eps, hf.rms_norm_eps);
    EXPECT_EQ(gguf->tie_word_embeddings, hf.tie_word_embeddings);
    EXPECT_EQ(gguf->attention_bias, hf.attention_bias);
    EXPECT_EQ(gguf->attention_out_bias, hf.attention_out_bias);
    EXPECT_EQ(gguf->mlp_bias, hf.mlp_bias);
    EXPECT_EQ(gguf->qk_norm, hf.qk_norm);
    EXPECT_EQ(gguf->sliding_window, hf.sliding_window);
    EXPECT_EQ(gguf->max_position_embeddings, hf.max_position_embeddings);
    EXPECT_EQ(gguf->bos_token_id, hf.bos_token_id);
    EXPECT_EQ(gguf->eos_token_ids[0], hf.eos_token_ids[0]);  // the files name one of Llama's two
    ASSERT_EQ(gguf->rope.inv_freq.size(), hf.rope.inv_freq.size());
    for (size_t i = 0; i < hf.rope.inv_freq.size(); ++i) {
      EXPECT_NEAR(gguf->rope.inv_freq[i] / hf.rope.inv_freq[i], 1, 3e-7) << i;  // divisors are fp32
    }
    EXPECT_EQ(gguf->rope.cos_sin_scale, hf.rope.cos_sin_scale);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenGgufConfig, testing::Values("llama3-gqa", "qwen3"),
                         [](const auto& info) { return info.param[0] == 'l' ? "Llama" : "Qwen3"; });

// A small Llama whose keys a test may change: {key, JSON value}, "" removes the key.
std::string Json(std::initializer_list<std::pair<const char*, std::string>> changes) {
  std::map<std::string, std::string> keys = {{"architectures", R"(["LlamaForCausalLM"])"},
                                             {"vocab_size", "256"},
                                             {"hidden_size", "64"},
                                             {"intermediate_size", "112"},
                                             {"num_hidden_layers", "4"},
                                             {"num_attention_heads", "4"},
                                             {"num_key_value_heads", "2"},
                                             {"hidden_act", R"("silu")"},
                                             {"max_position_embeddings", "512"},
                                             {"rms_norm_eps", "1e-5"}};
  for (const auto& [key, value] : changes) keys[key] = value;
  std::string json = "{";
  for (const auto& [key, value] : keys) {
    if (!value.empty()) json += (json.size() > 1 ? ",\"" : "\"") + key + "\":" + value;
  }
  return json + "}";
}

ModelConfig Parse(std::initializer_list<std::pair<const char*, std::string>> changes) {
  auto config = ParseHfConfig(Json(changes), "config.json");
  EXPECT_TRUE(config.ok()) << config.status().ToString();
  return config.ok() ? *config : ModelConfig();
}

TEST(HfConfig, BothSpellingsMeanTheSame) {
  const ModelConfig old_spelling = Parse({{"torch_dtype", R"("float16")"},
                                          {"rope_theta", "5e5"},
                                          {"rope_scaling", R"({"type":"linear","factor":2})"}});
  const ModelConfig new_spelling =
      Parse({{"dtype", R"("float16")"},
             {"rope_parameters", R"({"rope_theta":5e5,"rope_type":"linear","factor":2})"}});
  EXPECT_EQ(old_spelling.stored_dtype, tensor::DType::kF16);
  EXPECT_EQ(new_spelling.stored_dtype, tensor::DType::kF16);
  EXPECT_EQ(old_spelling.rope.inv_freq, new_spelling.rope.inv_freq);
  EXPECT_EQ(old_spelling.rope.inv_freq[0], 0.5f);
}

TEST(HfConfig, DefaultsAreTransformers) {
  const ModelConfig config = Parse({{"num_key_value_heads", ""},
                                    {"rms_norm_eps", "null"},
                                    {"hidden_act", ""},
                                    {"architectures", ""},
                                    {"model_type", R"("llama")"}});
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(static_cast<float>(config.rms_norm_eps), 1e-6f);
  EXPECT_EQ(config.family, "llama");
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.bos_token_id.has_value());
  EXPECT_TRUE(config.eos_token_ids.empty());
  EXPECT_EQ(config.rope.inv_freq[1], static_cast<float>(std::pow(10000.0, -0.125)));
  EXPECT_EQ(Parse({{"architectures", R"(["Qwen3ForCausalLM"])"}}).head_dim, 128);
}

TEST(HfConfig, BiasesFollowFamilyAndKeys) {
  const ModelConfig llama = Parse({{"attention_bias", "true"}, {"mlp_bias", "true"}});
  EXPECT_TRUE(llama.attention_bias && llama.attention_out_bias && llama.mlp_bias);
  const ModelConfig qwen =
      Parse({{"architectures", R"(["Qwen2ForCausalLM"])"}, {"attention_bias", "false"}});
  EXPECT_TRUE(qwen.attention_bias);
  EXPECT_FALSE(qwen.attention_out_bias);
}

TEST(HfConfig, SlidingWindowsFollowTheFamily) {
  constexpr const char* kMistral = R"(["MistralForCausalLM"])";
  constexpr const char* kQwen = R"(["Qwen3ForCausalLM"])";
  EXPECT_THAT(Parse({{"sliding_window", "8"}}).sliding_window, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Parse({{"architectures", kMistral}, {"sliding_window", "8"}}).sliding_window,
              ElementsAre(8, 8, 8, 8));
  EXPECT_THAT(Parse({{"architectures", kMistral}, {"sliding_window", "null"}}).sliding_window,
              ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Parse({{"architectures", kMistral}}).sliding_window,
              ElementsAre(4096, 4096, 4096, 4096));
  EXPECT_THAT(Parse({{"architectures", kQwen}, {"sliding_window", "8"}}).sliding_window,
              ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(Parse({{"architectures", kQwen},
                     {"use_sliding_window", "true"},
                     {"sliding_window", "8"},
                     {"max_window_layers", "3"}})
                  .sliding_window,
              ElementsAre(0, 0, 0, 8));
  EXPECT_THAT(
      Parse({{"architectures", kQwen},
             {"use_sliding_window", "true"},
             {"sliding_window", "8"},
             {"layer_types",
              R"(["sliding_attention","full_attention","full_attention","sliding_attention"])"}})
          .sliding_window,
      ElementsAre(8, 0, 0, 8));
}

TEST(Rope, YarnScalesCosAndSin) {
  RopeParameters yarn{
      .scaling = RopeScaling::kYarn, .factor = 4, .original_max_position_embeddings = 64};
  EXPECT_FLOAT_EQ(MakeRope(yarn, 16, 16).cos_sin_scale, 0.1 * std::log(4.0) + 1);
  yarn.mscale = 0.707;
  EXPECT_FLOAT_EQ(MakeRope(yarn, 16, 16).cos_sin_scale, 0.1 * std::log(4.0) + 1);  // needs both
  yarn.mscale_all_dim = 1.0;
  EXPECT_FLOAT_EQ(MakeRope(yarn, 16, 16).cos_sin_scale,
                  (0.0707 * std::log(4.0) + 1) / (0.1 * std::log(4.0) + 1));
  yarn.attention_factor = 1.5;
  EXPECT_FLOAT_EQ(MakeRope(yarn, 16, 16).cos_sin_scale, 1.5);
}

TEST(Rope, YarnAndLinearScalingLengthenTheContext) {
  const auto length = [](const char* type, int64_t max_positions, const char* original) {
    return Parse({{"max_position_embeddings", std::to_string(max_positions)},
                  {"rope_scaling", fmt::format(R"({{"rope_type":"{}","factor":4.0{},)"
                                               R"("low_freq_factor":1,"high_freq_factor":4}})",
                                               type, original)}})
        .max_position_embeddings;
  };
  constexpr const char* kOriginal = R"(,"original_max_position_embeddings":32768)";
  EXPECT_EQ(length("yarn", 32768, kOriginal), 131072);
  EXPECT_EQ(length("yarn", 40960, kOriginal), 131072);
  EXPECT_EQ(length("yarn", 131072, kOriginal), 131072);
  EXPECT_EQ(length("yarn", 262144, kOriginal), 262144);
  EXPECT_EQ(length("yarn", 32768, ""), 131072);
  EXPECT_EQ(length("linear", 4096, ""), 16384);
  EXPECT_EQ(length("llama3", 131072, kOriginal), 131072);
  EXPECT_EQ(length("default", 4096, ""), 4096);
}

struct BadConfig {
  const char* name;
  const char* key;
  const char* value;  // "" removes the key
  base::ErrorCode code;
  const char* message;  // a part of it
};

class MalformedConfig : public testing::TestWithParam<BadConfig> {};

TEST_P(MalformedConfig, IsRefused) {
  const BadConfig& bad = GetParam();
  const auto config = ParseHfConfig(Json({{bad.key, bad.value}}), "config.json");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), bad.code);
  EXPECT_THAT(config.status().message(), HasSubstr(bad.message));
}

const BadConfig kBad[] = {
    {"Missing", "hidden_size", "", kConfigInvalid,
     "config.json: hidden_size is missing; expected an integer from 1"},
    {"Null", "vocab_size", "null", kConfigInvalid, "vocab_size is missing"},
    {"String", "hidden_size", R"("64")", kConfigInvalid,
     R"(hidden_size is "64"; expected an integer)"},
    {"Fraction", "hidden_size", "64.5", kConfigInvalid, "hidden_size is 64.5"},
    {"Zero", "num_hidden_layers", "0", kConfigInvalid, "num_hidden_layers is 0"},
    {"Negative", "num_attention_heads", "-4", kConfigInvalid, "num_attention_heads is -4"},
    {"Absurd", "intermediate_size", "99999999999", kConfigInvalid,
     "intermediate_size is 99999999999"},
    {"HeadsDoNotDivide", "num_attention_heads", "3", kConfigInvalid,
     "hidden_size 64 is no multiple"},
    {"KvHeadsDoNotDivide", "num_key_value_heads", "3", kConfigInvalid,
     "4 attention heads and 3 key-value heads"},
    {"OddHead", "head_dim", "15", kConfigInvalid,
     "a head has 15 dimensions; expected an even number"},
    {"HugeHead", "hidden_size", "8388608", kConfigInvalid, "a head has 2097152 dimensions"},
    {"BadBool", "tie_word_embeddings", "1", kConfigInvalid,
     "tie_word_embeddings is 1; expected true or false"},
    {"BadEps", "rms_norm_eps", "[]", kConfigInvalid, "rms_norm_eps is []; expected a number"},
    {"BadEos", "eos_token_id", R"([1,"2"])", kConfigInvalid,
     "expected a token id or a list of them"},
    {"NegativeBos", "bos_token_id", "-1", kConfigInvalid, "bos_token_id is -1"},
    {"Activation", "hidden_act", R"("gelu")", kConfigUnsupported, "hidden_act is gelu"},
    {"Quantised", "quantization_config", R"({"bits":4})", kConfigUnsupported,
     "quantization_config"},
    {"Architecture", "architectures", R"(["GPT2LMHeadModel"])", kArchitectureUnknown,
     "\"GPT2LMHeadModel\""},
    {"ArchitectureType", "architectures", "[3]", kConfigInvalid, "architectures is [3]"},
    {"NoArchitecture", "architectures", "", kArchitectureUnknown, "architecture \"\""},
    {"ThetaZero", "rope_theta", "0", kConfigInvalid, "rope_theta is 0"},
    {"ScalingIsNoObject", "rope_scaling", "4", kConfigInvalid,
     "rope_scaling is 4; expected an object"},
    {"ScalingType", "rope_scaling", R"({"rope_type":"dynamic","factor":2})", kConfigUnsupported,
     "config.json: rope_scaling: rope_type is dynamic"},
    {"ScalingWithoutFactor", "rope_scaling", R"({"rope_type":"linear"})", kConfigInvalid,
     "factor is missing"},
    {"Llama3WithoutLow", "rope_scaling",
     R"({"rope_type":"llama3","factor":8,"high_freq_factor":4})", kConfigInvalid,
     "low_freq_factor is missing"},
    {"Llama3Crossed", "rope_scaling",
     R"({"rope_type":"llama3","factor":8,"low_freq_factor":5,"high_freq_factor":4})",
     kConfigInvalid, "low_freq_factor 5 is above"},
    {"RopePerLayerType", "rope_parameters", R"({"full_attention":{"rope_theta":1e4}})",
     kConfigUnsupported, "full_attention"},
    {"PartialRotary", "partial_rotary_factor", "0.5", kConfigUnsupported,
     "partial_rotary_factor is 0.5"},
};

INSTANTIATE_TEST_SUITE_P(Table, MalformedConfig, testing::ValuesIn(kBad),
                         [](const auto& info) { return info.param.name; });

const BadConfig kBadExperts[] = {
    {"MoreThanAll", "num_experts_per_tok", "9", kConfigInvalid, "a token goes to 9 of 8 experts"},
    {"MoreThanTheGroupsHold", "num_experts_per_tok", "5", kConfigInvalid,
     "a token goes to 5 experts; expected at most the 4 of 2 groups of 2"},
    {"GroupsDoNotDivide", "n_group", "3", kConfigInvalid, "8 experts in 3 groups"},
    {"MoreGroupsThanThereAre", "topk_group", "5", kConfigInvalid, "of which 5 are chosen"},
    {"GroupsOfOne", "n_group", "8", kConfigInvalid, "groups of 1 experts"},
    {"Scores", "scoring_func", R"("tanh")", kConfigUnsupported,
     "scoring_func is tanh, which is not supported; supported: sigmoid, softmax"},
    {"Method", "topk_method", R"("random")", kConfigUnsupported, "topk_method is random"},
    {"Activation", "hidden_act", R"("gelu")", kConfigUnsupported, "hidden_act is gelu"},
    {"Quantised", "quantization_config", R"({"quant_method":"bitsandbytes"})", kConfigUnsupported,
     "quantization_config is bitsandbytes"},
    {"AlgorithmOfModelopt", "quantization_config",
     R"({"quant_method":"modelopt","quant_algo":"W4A8_AWQ"})", kConfigUnsupported,
     "quant_algo is W4A8_AWQ"},
    {"ActivationOrder", "quantization_config",
     R"({"quant_method":"gptq","bits":4,"desc_act":true})", kConfigUnsupported, "desc_act is true"},
    {"EightBitsOfGptq", "quantization_config", R"({"quant_method":"gptq","bits":8})",
     kConfigUnsupported, "bits is 8"},
    {"Sparsity", "quantization_config",
     R"({"quant_method":"compressed-tensors","format":"pack-quantized",
         "sparsity_config":{"format":"sparse-24-bitmask"}})",
     kConfigUnsupported, "format is sparse-24-bitmask"},
    {"StaticScalesOfActivations", "quantization_config",
     R"({"quant_method":"compressed-tensors","format":"int-quantized","config_groups":
         {"group_0":{"weights":{"num_bits":8},"input_activations":{"dynamic":false}}}})",
     kConfigUnsupported, "dynamic is false"},
    {"BlocksOfAnotherSize", "quantization_config",
     R"({"quant_method":"fp8","weight_block_size":[64,128]})", kConfigUnsupported,
     "weight_block_size"},
};

class MalformedExperts : public testing::TestWithParam<BadConfig> {};

TEST_P(MalformedExperts, IsRefused) {
  const BadConfig& bad = GetParam();
  const auto config =
      ParseHfConfig(WithKey(GoldenText("deepseek-v3"), bad.key, bad.value), "config.json");
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.status().code(), bad.code) << config.status().ToString();
  EXPECT_THAT(config.status().message(), HasSubstr(bad.message));
}

INSTANTIATE_TEST_SUITE_P(Table, MalformedExperts, testing::ValuesIn(kBadExperts),
                         [](const auto& info) { return info.param.name; });

TEST(HfConfig, RoutersOfTheFamilies) {
  const MoeConfig qwen = *GoldenConfig("qwen3-moe").moe;
  EXPECT_EQ(qwen.scores, kernels::RouterScores::kSoftmax);
  EXPECT_TRUE(qwen.renormalize);
  EXPECT_EQ(qwen.epsilon, 0);
  EXPECT_EQ(qwen.num_groups, 1);
  // Each second layer has experts, but for those that are named.
  std::string sparse = GoldenText("qwen3-moe");
  for (const auto& [key, value] : {std::pair("num_hidden_layers", "6"),
                                   {"decoder_sparse_step", "2"},
                                   {"mlp_only_layers", "[3, 4]"},
                                   {"norm_topk_prob", "false"}})
    sparse = WithKey(sparse, key, value);
  const auto every_second = ParseHfConfig(sparse, "config.json");
  ASSERT_TRUE(every_second.ok()) << every_second.status().ToString();
  EXPECT_THAT(every_second->moe->has_experts, ElementsAre(0, 1, 0, 0, 0, 1));
  EXPECT_FALSE(every_second->moe->renormalize);
  const ModelConfig mixtral = GoldenConfig("mixtral");
  EXPECT_EQ(mixtral.family, "mixtral");
  EXPECT_EQ(mixtral.moe->num_experts, 4);
  EXPECT_EQ(mixtral.moe->experts_per_token, 2);
  EXPECT_EQ(mixtral.moe->intermediate_size, 56);
  EXPECT_TRUE(mixtral.moe->renormalize);
  EXPECT_THAT(mixtral.moe->has_experts, ElementsAre(1, 1));
  EXPECT_THAT(mixtral.sliding_window, ElementsAre(0, 0));
  // A key that is not there says of Mixtral what null says, and of Mistral a window.
  for (const auto& [model, window] : {std::pair("mixtral", 0), {"mistral", 4096}}) {
    const auto bare = ParseHfConfig(WithoutKey(GoldenText(model), "sliding_window"), "config.json");
    ASSERT_TRUE(bare.ok()) << bare.status().ToString();
    EXPECT_THAT(bare->sliding_window, ElementsAre(window, window)) << model;
  }
  const MoeConfig deepseek = *GoldenConfig("deepseek-v3").moe;
  EXPECT_EQ(deepseek.scores, kernels::RouterScores::kSigmoid);
  EXPECT_EQ(deepseek.group_score, kernels::GroupScore::kTwoGreatest);
  EXPECT_EQ(deepseek.num_groups, 4);
  EXPECT_EQ(deepseek.chosen_groups, 2);
  EXPECT_TRUE(deepseek.selection_bias && deepseek.renormalize);
  EXPECT_EQ(deepseek.epsilon, 1e-20f);
  EXPECT_EQ(deepseek.scale, 2.5f);
  const MoeConfig llama = *GoldenConfig("llama4-text").moe;
  EXPECT_EQ(llama.scores, kernels::RouterScores::kSigmoidOfChosen);
  EXPECT_TRUE(llama.weighs_input);
  EXPECT_THAT(llama.has_experts, ElementsAre(0, 1, 0, 1));
}

// V2: softmax and the groups' greatest; V2-Lite: no groups, whatever n_group says.
TEST(HfConfig, DeepseekV2IsAFormOfV3) {
  std::string v2 =
      WithKey(GoldenText("deepseek-v3"), "architectures", R"(["DeepseekV2ForCausalLM"])");
  for (const auto& [key, value] :
       {std::pair("scoring_func", R"("softmax")"),
        std::pair("topk_method", R"("group_limited_greedy")"), std::pair("norm_topk_prob", "false"),
        std::pair("routed_scaling_factor", "16.0")})
    v2 = WithKey(v2, key, value);
  auto config = ParseHfConfig(v2, "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->family, "deepseek_v3");
  EXPECT_EQ(config->moe->scores, kernels::RouterScores::kSoftmax);
  EXPECT_EQ(config->moe->group_score, kernels::GroupScore::kGreatest);
  EXPECT_EQ(config->moe->num_groups, 4);
  EXPECT_FALSE(config->moe->selection_bias);
  EXPECT_EQ(config->moe->scale, 16);
  config = ParseHfConfig(WithKey(v2, "topk_method", R"("greedy")"), "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->moe->num_groups, 1);
  EXPECT_THAT(ParseHfConfig(WithKey(v2, "norm_topk_prob", "true"), "c").status().message(),
              HasSubstr("norm_topk_prob"));
}

TEST(HfConfig, TheTextPartOfLlama4) {
  const std::string text = GoldenText("llama4-text");
  const auto config = ParseHfConfig(
      R"({"architectures": ["Llama4ForConditionalGeneration"], "vision_config": {}, "text_config": )" +
          text + "}",
      "config.json");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->family, "llama4");
  EXPECT_EQ(config->hidden_size, 64);
  EXPECT_EQ(config->moe->num_experts, 4);
}

TEST(HfConfig, TheTextPartSaysWhetherItsHeadIsTied) {
  const std::string text = GoldenText("llama4-text"), untied = R"("tie_word_embeddings": false)",
                    tied = R"("tie_word_embeddings": true)";
  const size_t at = text.find(untied);
  ASSERT_NE(at, std::string::npos);
  const std::string head =
      R"({"architectures": ["Llama4ForConditionalGeneration"], "vision_config": {}, )";
  for (const bool is_tied : {true, false}) {
    std::string part = text;
    if (is_tied) part.replace(at, untied.size(), tied);
    testing::internal::CaptureStderr();
    const auto config = ParseHfConfig(
        head + (is_tied ? untied : tied) + R"(, "text_config": )" + part + "}", "config.json");
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("is another in text_config"));
    ASSERT_TRUE(config.ok()) << config.status().ToString();
    EXPECT_EQ(config->tie_word_embeddings, is_tied);
  }
}

TEST(HfConfig, WeightsInScaledFp8AreRead) {
  EXPECT_TRUE(ParseHfConfig(WithKey(GoldenText("qwen3"), "quantization_config",
                                    R"({"quant_method":"fp8","weight_block_size":[128,128]})"),
                            "config.json")
                  .ok());
}

TEST(HfConfig, RefusesWhatIsNoObject) {
  EXPECT_EQ(ParseHfConfig("[]", "c").status().code(), kConfigInvalid);
  EXPECT_EQ(ParseHfConfig("{", "c").status().code(), base::kJsonInvalid);
}

TEST(HfConfig, RefusesLayerTypesThatDoNotFit) {
  for (const char* types :
       {R"(["full_attention"])", R"(["full_attention","x","full_attention","full_attention"])",
        R"(["sliding_attention","full_attention","full_attention","full_attention"])"}) {
    const std::string json =
        Json({{"architectures", R"(["Qwen2ForCausalLM"])"}, {"layer_types", types}});
    EXPECT_FALSE(ParseHfConfig(json, "c").ok()) << types;
  }
}

TEST(HfConfig, LabelsOfAHead) {
  const auto parse = [](std::string_view key, std::string_view value) {
    const std::string json = GoldenText("bert-classify");
    return ParseHfConfig(key.empty() ? json : WithKey(json, key, value), "c");
  };
  const auto plain = parse("", "");
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->classifier->labels,
            (Labels{.names = {"L0", "L1", "L2"}, .rule = Labels::Rule::kSoftmax}));
  EXPECT_EQ(plain->classifier->layers.back().out, 3);
  const auto rule = [&](std::string_view key, std::string_view value) {
    return parse(key, value)->classifier->labels.rule;
  };
  EXPECT_EQ(rule("problem_type", R"("regression")"), Labels::Rule::kIdentity);
  EXPECT_EQ(rule("problem_type", R"("multi_label_classification")"), Labels::Rule::kSigmoid);
  EXPECT_EQ(rule("sbert_ce_default_activation_function", R"("torch.nn.modules.linear.Identity")"),
            Labels::Rule::kIdentity);
  EXPECT_EQ(rule("sentence_transformers",
                 R"({"activation_fn":"torch.nn.modules.activation.Sigmoid","version":"5"})"),
            Labels::Rule::kSigmoid);
  EXPECT_EQ(rule("id2label", R"({"0":"relevant"})"), Labels::Rule::kSigmoid);
  EXPECT_THAT(parse("id2label", "null")->classifier->labels.names,
              ElementsAre("LABEL_0", "LABEL_1"));
  for (const char* names : {R"({"0":"a","2":"b"})", R"({"x":"a"})", R"({"0":"a","0":"b"})",
                            R"({"0":1})", R"({"0":""})", "{}", "[]"})
    EXPECT_EQ(parse("id2label", names).status().code(), kConfigInvalid) << names;
  EXPECT_EQ(parse("problem_type", R"("other")").status().code(), kConfigUnsupported);
  EXPECT_EQ(parse("sbert_ce_default_activation_function", R"("torch.nn.Softplus")").status().code(),
            kConfigUnsupported);
  EXPECT_FALSE(ParseHfConfig(GoldenText("bert-embed"), "c")->classifier.has_value());
}

// Of any family, without a line for it.
TEST(HfConfig, ADecodersHeadOfLabels) {
  for (const auto& [golden, architecture, family] :
       {std::tuple("qwen3", "Qwen3ForSequenceClassification", "qwen3"),
        {"llama3-gqa", "LlamaForSequenceClassification", "llama"},
        {"gemma2", "Gemma2ForSequenceClassification", "gemma2"},
        {"gemma3", "Gemma3TextForSequenceClassification", "gemma3"},
        {"mixtral", "MixtralForSequenceClassification", "mixtral"}}) {
    const auto config = ParseHfConfig(
        WithKey(WithKey(GoldenText(golden), "architectures", fmt::format("[\"{}\"]", architecture)),
                "id2label", R"({"0":"bad","1":"fair","2":"good"})"),
        "c");
    ASSERT_TRUE(config.ok()) << config.status().message();
    EXPECT_EQ(config->family, family);
    EXPECT_FALSE(Generates(*config));
    EXPECT_TRUE(config->tie_word_embeddings);
    EXPECT_EQ(config->classifier->rows, Pooling::Rows::kLast);
    EXPECT_THAT(config->classifier->layers,
                ElementsAre(DenseLayer{
                    .name = "score", .in = config->hidden_size, .out = 3, .bias = false}));
    EXPECT_THAT(config->classifier->labels.names, ElementsAre("bad", "fair", "good"));
  }
  EXPECT_TRUE(Generates(*ParseHfConfig(GoldenText("qwen3"), "c")));
  EXPECT_EQ(FamilyOfArchitecture("GPT2ForSequenceClassification"), nullptr);
  EXPECT_EQ(FamilyOfArchitecture("ForSequenceClassification"), nullptr);
}

TEST(GenerationConfig, ReadsDefaultsAndIgnoresTheRest) {
  auto config =
      ParseGenerationConfig(R"({"temperature":0.7,"top_p":0.8,"top_k":20,"repetition_penalty":1.05,
      "max_new_tokens":64,"eos_token_id":[1,2],"do_sample":true,"transformers_version":"4"})",
                            "g");
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->temperature, 0.7);
  EXPECT_EQ(config->top_p, 0.8);
  EXPECT_EQ(config->top_k, 20);
  EXPECT_EQ(config->min_p, std::nullopt);
  EXPECT_EQ(config->repetition_penalty, 1.05);
  EXPECT_EQ(config->max_new_tokens, 64);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(1, 2));
}

// A greedy model's makers may leave what a sampler would mind.
TEST(GenerationConfig, AnOddValueCostsAWarning) {
  for (const char* json : {R"({"temperature":-1})", R"({"top_p":1.5})", R"({"top_k":"many"})",
                           R"({"repetition_penalty":0})", R"({"max_new_tokens":0})"}) {
    const auto config = ParseGenerationConfig(json, "g");
    ASSERT_TRUE(config.ok()) << json;
    EXPECT_FALSE(config->temperature || config->top_p || config->top_k ||
                 config->repetition_penalty || config->max_new_tokens)
        << json;
  }
  const auto greedy = ParseGenerationConfig(
      R"({"temperature":0.0,"top_p":0.0,"top_k":50.0,"eos_token_id":[1,null,2.0]})", "g");
  ASSERT_TRUE(greedy.ok()) << greedy.status().ToString();
  EXPECT_EQ(greedy->temperature, 0);
  EXPECT_EQ(greedy->top_p, 0);
  EXPECT_EQ(greedy->top_k, 50);
  EXPECT_THAT(greedy->eos_token_ids, ElementsAre(1, 2));
  // What ends an answer is no matter of sampling.
  for (const char* json : {R"({"eos_token_id":"</s>"})", R"({"eos_token_id":1.5})", "[]"})
    EXPECT_EQ(ParseGenerationConfig(json, "g").status().code(), kConfigInvalid) << json;
}

// Pages list what the registry has, and nothing else.
TEST(Pages, ListTheFamiliesAndShapesThatAreHere) {
  const auto page = [](const char* name) { return *base::ReadFile(TestData() + "/../" + name); };
  std::string models, rows, shapes;
  for (const Family* family : Families()) {
    models += fmt::format("{}{}", models.empty() ? "" : "; ", family->models);
    const auto quoted = [](std::span<const std::string_view> names) {
      std::string list;
      for (const std::string_view name : names)
        list += fmt::format("{}`{}`", list.empty() ? "" : ", ", name);
      return list;
    };
    const std::span<const std::string_view> gguf = GgufArchitectures(*family),
                                            all = family->architectures;
    rows += fmt::format("| {} | {} | {} |\n", family->models,
                        quoted(all.first(all.size() - gguf.size())), quoted(gguf));
  }
  for (const BuiltinConfigText& shape : BuiltinConfigTexts())
    shapes += fmt::format("{}`{}{}`", shapes.empty() ? "" : ", ", kBuiltinPrefix, shape.name);
  for (const char* name : {"README.md", "docs/status.md"})
    EXPECT_THAT(page(name), HasSubstr("| models | " + models + " |")) << name;
  std::string text = page("docs/formats/models.md");
  EXPECT_THAT(text, HasSubstr("|---|---|---|\n" + rows + "\n"));
  std::ranges::replace(text, '\n', ' ');  // the page wraps its sentences
  EXPECT_THAT(text, HasSubstr(" " + shapes + ". "));
}

}  // namespace
}  // namespace forebay::model

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "model/files/config_reader.h"
#include "weights/formats/testing/weight_files.h"

namespace forebay::model {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A small GGUF model whose keys a test may change.
weights::GgufBytes TinyGguf(std::string_view architecture, uint32_t heads, int more_keys) {
  const std::string prefix = std::string(architecture) + ".";
  weights::GgufBytes b(2, 8 + more_keys);
  b.String("general.architecture", architecture).Value<uint32_t>(prefix + "context_length", 4, 64);
  b.Value<uint32_t>(prefix + "embedding_length", 4, 32)
      .Value<uint32_t>(prefix + "block_count", 4, 2);
  b.Value<uint32_t>(prefix + "feed_forward_length", 4, 32)
      .Value<uint32_t>(prefix + "attention.head_count", 4, heads);
  b.Value<uint32_t>(prefix + "attention.head_count_kv", 4, 1);
  b.Value<float>(prefix + "attention.layer_norm_rms_epsilon", 6, 1e-5f);
  return b;
}

// `b` with its tensors: an embedding and one more vector, of 8 floats.
base::Result<ModelConfig> ParseGguf(weights::GgufBytes b, const char* vector = "blk.0.attn_q.bias",
                                    float value = 2) {
  b.Tensor("token_embd.weight", {32, 5}, 0, 0).Tensor(vector, {8}, 0, 640);
  std::string data(640, '\0');
  for (int i = 0; i < 8; ++i) weights::Append(&data, value);
  const std::string bytes = b.Data(data).bytes();
  auto gguf = weights::GgufFile::Parse(weights::AsBytes(bytes));
  EXPECT_TRUE(gguf.ok()) << gguf.status().ToString();
  return ReadGgufConfig(*gguf, "m.gguf");
}

TEST(GgufConfig, TensorsTellWhatKeysDoNot) {
  const auto config = ParseGguf(TinyGguf("qwen2", 2, 0));
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->vocab_size, 5);
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_TRUE(config->attention_bias);
  EXPECT_FALSE(config->attention_out_bias || config->mlp_bias);
  EXPECT_EQ(config->rope.inv_freq[1], static_cast<float>(std::pow(10000.0, -0.125)));
}

TEST(GgufConfig, AFactorWithoutATypeScalesLinearly) {
  const auto inv_freq = [](weights::GgufBytes b) {
    const auto config = ParseGguf(std::move(b));
    EXPECT_TRUE(config.ok()) << config.status().ToString();
    return config.ok() ? config->rope.inv_freq[0] : 0;
  };
  const auto one = [](const char* key, float value) {
    return TinyGguf("llama", 2, 1).Value(key, 6, value);
  };
  EXPECT_EQ(inv_freq(one("llama.rope.scale_linear", 4)), 0.25f);  // the key of older files
  EXPECT_EQ(inv_freq(one("llama.rope.scaling.factor", 4)), 0.25f);
  EXPECT_EQ(inv_freq(one("llama.rope.scaling.factor", 0)), 1);
  EXPECT_EQ(inv_freq(TinyGguf("llama", 2, 2)
                         .Value("llama.rope.scale_linear", 6, 4.0f)
                         .Value("llama.rope.scaling.factor", 6, 2.0f)),
            0.5f);
  EXPECT_EQ(inv_freq(TinyGguf("llama", 2, 2)
                         .String("llama.rope.scaling.type", "none")
                         .Value("llama.rope.scaling.factor", 6, 2.0f)),
            1);
  EXPECT_EQ(ParseGguf(TinyGguf("llama", 2, 1).String("llama.rope.scaling.type", "linear"))
                .status()
                .code(),
            kConfigInvalid);
}

TEST(GgufConfig, KeysThatNobodyReadAreListedOrRefused) {
  const auto one = [](const char* key, float value) {
    return ParseGguf(TinyGguf("llama", 2, 1).Value(key, 6, value));
  };
  EXPECT_THAT(one("llama.mystery", 3)->unused_keys, ElementsAre("llama.mystery"));
  EXPECT_THAT(one("general.mystery", 3)->unused_keys, testing::IsEmpty());
  EXPECT_THAT(
      ParseGguf(TinyGguf("llama", 2, 1).Value<uint32_t>("llama.vocab_size", 4, 5))->unused_keys,
      testing::IsEmpty());
  for (const char* key :
       {"llama.logit_scale", "llama.attn_logit_softcapping", "llama.residual_scale",
        "llama.attention.scale", "llama.attention.clamp_kqv"}) {
    const auto refused = one(key, 0.5f);
    EXPECT_EQ(refused.status().code(), kConfigUnsupported) << key;
    EXPECT_THAT(refused.status().message(), HasSubstr(std::string("key ") + key + " is 0.5"));
    EXPECT_TRUE(one(key, 0).ok()) << key;
  }
  EXPECT_TRUE(one("llama.logit_scale", 1).ok());
  EXPECT_TRUE(one("llama.attention.scale", 0.25f).ok());  // that of heads of 16 dimensions
  EXPECT_FALSE(
      ParseGguf(TinyGguf("llama", 2, 1).Value<uint8_t>("llama.use_parallel_residual", 7, 1)).ok());
}

// A hybrid model's KV heads are an array, which says what each layer is.
TEST(GgufConfig, HybridModelsSayWhatEachLayerIs) {
  const auto with_heads = [](const std::vector<int32_t>& heads) {
    weights::GgufBytes b(2, 8);
    b.String("general.architecture", "lfm2").Value<uint32_t>("lfm2.context_length", 4, 64);
    b.Value<uint32_t>("lfm2.embedding_length", 4, 32).Value<uint32_t>("lfm2.block_count", 4, 3);
    b.Value<uint32_t>("lfm2.feed_forward_length", 4, 40)
        .Value<uint32_t>("lfm2.attention.head_count", 4, 4);
    b.Value<uint32_t>("lfm2.shortconv.l_cache", 4, 3);
    b.Text("lfm2.attention.head_count_kv").Raw<uint32_t>(9).Raw<uint32_t>(5);
    b.Raw<uint64_t>(heads.size());
    for (const int32_t each : heads) b.Raw(each);
    return ParseGguf(std::move(b), "token_embd_norm.weight");
  };
  const auto config = with_heads({0, 2, 0});
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->num_kv_heads, 2);
  EXPECT_EQ(config->intermediate_size, 40);
  EXPECT_THAT(config->states->has_state, ElementsAre(1, 0, 1));
  EXPECT_THAT(with_heads({0, 2}).status().message(),
              HasSubstr("key attention.head_count_kv has 2 entries; expected one a layer, 3"));
  EXPECT_THAT(
      with_heads({0, 2, 1}).status().message(),
      HasSubstr("head_count_kv is \"1 in layer 2\", which is not supported; supported: 0 or 2"));
  EXPECT_THAT(with_heads({0, 0, 0}).status().message(), HasSubstr("all layers are convolutions"));
  const base::Status unknown = ParseGguf(TinyGguf("nemotron_h_mole", 2, 0)).status();
  EXPECT_EQ(unknown.code(), kArchitectureUnknown);
  EXPECT_THAT(unknown.message(), HasSubstr("architecture \"nemotron_h_mole\" is not known"));
}

TEST(GgufConfig, AFileThatIsNoModelIsRefused) {
  const auto adapter = ParseGguf(TinyGguf("llama", 2, 1).String("general.type", "adapter"));
  EXPECT_EQ(adapter.status().code(), kConfigUnsupported);
  EXPECT_THAT(adapter.status().message(), HasSubstr("general.type \"adapter\""));
  EXPECT_TRUE(ParseGguf(TinyGguf("llama", 2, 1).String("general.type", "model")).ok());
}

TEST(GgufConfig, ReadsScalingsAndWindows) {
  const auto linear = ParseGguf(TinyGguf("llama", 2, 2)
                                    .String("llama.rope.scaling.type", "linear")
                                    .Value("llama.rope.scaling.factor", 6, 4.0f));
  ASSERT_TRUE(linear.ok()) << linear.status().ToString();
  EXPECT_EQ(linear->rope.inv_freq[0], 0.25f);
  const auto yarn = ParseGguf(TinyGguf("llama", 2, 2)
                                  .String("llama.rope.scaling.type", "yarn")
                                  .Value("llama.rope.scaling.factor", 6, 4.0f));
  ASSERT_TRUE(yarn.ok()) << yarn.status().ToString();
  EXPECT_FLOAT_EQ(yarn->rope.cos_sin_scale, 0.1 * std::log(4.0) + 1);
  EXPECT_EQ(yarn->max_position_embeddings,
            4 * ParseGguf(TinyGguf("llama", 2, 0))->max_position_embeddings);
  const auto divided = ParseGguf(TinyGguf("llama", 2, 0), "rope_freqs.weight", 2);
  ASSERT_TRUE(divided.ok()) << divided.status().ToString();
  EXPECT_EQ(divided->rope.inv_freq[0], 0.5f);
  const auto window =
      ParseGguf(TinyGguf("llama", 2, 1).Value<uint32_t>("llama.attention.sliding_window", 4, 8));
  EXPECT_THAT(window->sliding_window, ElementsAre(8, 8));
  const auto qwen =
      ParseGguf(TinyGguf("qwen2", 2, 1).Value<uint32_t>("qwen2.attention.sliding_window", 4, 8));
  EXPECT_THAT(qwen->sliding_window, ElementsAre(0, 0));
}

TEST(GgufConfig, ReadsExperts) {
  auto config = ParseGguf(TinyGguf("llama", 2, 2)
                              .Value<uint32_t>("llama.expert_count", 4, 8)
                              .Value<uint32_t>("llama.expert_used_count", 4, 2));
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->family, "mixtral");
  EXPECT_EQ(config->moe->intermediate_size, 32);
  EXPECT_TRUE(config->moe->renormalize);
  config = ParseGguf(TinyGguf("qwen3moe", 2, 3)
                         .Value<uint32_t>("qwen3moe.expert_count", 4, 8)
                         .Value<uint32_t>("qwen3moe.expert_used_count", 4, 2)
                         .Value<uint32_t>("qwen3moe.expert_feed_forward_length", 4, 24));
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->family, "qwen3_moe");
  EXPECT_EQ(config->moe->num_experts, 8);
  EXPECT_EQ(config->moe->intermediate_size, 24);
  EXPECT_THAT(config->moe->has_experts, ElementsAre(1, 1));
}

// The same of Gemma 4, with KV heads and widths by layer.
weights::GgufBytes TinyGemma4(const std::vector<int32_t>& kv_heads,
                              const std::vector<int32_t>& widths) {
  weights::GgufBytes b(2, 9);
  b.String("general.architecture", "gemma4").Value<uint32_t>("gemma4.context_length", 4, 64);
  b.Value<uint32_t>("gemma4.embedding_length", 4, 32).Value<uint32_t>("gemma4.block_count", 4, 2);
  b.Value<uint32_t>("gemma4.attention.head_count", 4, 2);
  b.Value("gemma4.attention.layer_norm_rms_epsilon", 6, 1e-5f);
  const auto ints = [&](std::string_view key, const std::vector<int32_t>& values) {
    b.Text(key).Raw<uint32_t>(9).Raw<uint32_t>(5).Raw<uint64_t>(values.size());
    for (const int32_t value : values) b.Raw(value);
  };
  ints("gemma4.attention.sliding_window_pattern", {1, 1});
  ints("gemma4.attention.head_count_kv", kv_heads);
  ints("gemma4.feed_forward_length", widths);
  return b;
}

TEST(GgufConfig, LayersThatPredictFurtherTokensAreNotCounted) {
  const auto with = [](uint32_t further) {
    return ParseGguf(TinyGguf("exaone4", 2, 1).Value("exaone4.nextn_predict_layers", 4, further),
                     "blk.0.attn_norm.weight");
  };
  const auto config = with(1);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->num_layers, 1);
  EXPECT_THAT(config->sliding_window, ElementsAre(0));  // a file without the key has no window
  EXPECT_EQ(with(2).status().code(), kConfigInvalid);
}

TEST(GgufConfig, RopeIsDividedInEveryFamily) {
  const auto config = ParseGguf(TinyGguf("exaone4", 2, 0), "rope_freqs.weight", 4);
  ASSERT_TRUE(config.ok()) << config.status().ToString();
  EXPECT_EQ(config->rope.inv_freq[0], 0.25f);
  EXPECT_EQ(ParseGguf(TinyGguf("exaone4", 2, 0), "rope_freqs.weight", 0).status().code(),
            kConfigInvalid);
  EXPECT_EQ(ParseGguf(TinyGguf("exaone4", 4, 0), "rope_freqs.weight", 4).status().code(),
            kConfigInvalid);  // heads of 8
  // Gemma 4: 1 for what is turned, 1e30 for the rest.
  const auto gemma = ParseGguf(TinyGguf("gemma4", 2, 0), "rope_freqs.weight", 1);
  ASSERT_TRUE(gemma.ok()) << gemma.status().ToString();
  EXPECT_EQ(gemma->rope.inv_freq[0], 1);
  EXPECT_EQ(ParseGguf(TinyGguf("gemma4", 2, 0), "rope_freqs.weight", 2).status().code(),
            kConfigInvalid);
}

TEST(GgufConfig, StateLayersAndHeadsByLayerMustFit) {
  const auto code = [](weights::GgufBytes b) { return ParseGguf(std::move(b)).status().code(); };
  const auto net = [](uint32_t value_heads, uint32_t inner) {
    return TinyGguf("qwen35", 2, 5)
        .Value<uint32_t>("qwen35.ssm.conv_kernel", 4, 4)
        .Value<uint32_t>("qwen35.ssm.state_size", 4, 8)
        .Value<uint32_t>("qwen35.ssm.group_count", 4, 2)
        .Value("qwen35.ssm.time_step_rank", 4, value_heads)
        .Value("qwen35.ssm.inner_size", 4, inner);
  };
  EXPECT_EQ(code(net(4, 33)), kConfigInvalid);  // no whole heads
  EXPECT_EQ(code(net(3, 24)), kConfigInvalid);  // no whole groups
  EXPECT_EQ(code(net(4, 32)), kConfigInvalid);  // no layer attends
  EXPECT_EQ(code(TinyGguf("qwen35", 2, 0)), weights::kGgufKeyMissing);
  EXPECT_TRUE(ParseGguf(TinyGemma4({1, 1}, {32, 32}), "blk.0.attn_norm.weight").ok());
  EXPECT_EQ(code(TinyGemma4({1, 2}, {32, 32})), kConfigUnsupported);
  EXPECT_EQ(code(TinyGemma4({1}, {32, 32})), kConfigInvalid);
  EXPECT_EQ(code(TinyGemma4({1, 1}, {32, 48})), kConfigUnsupported);
  EXPECT_EQ(code(TinyGguf("mistral3", 2, 1).Value("mistral3.attention.temperature_scale", 6, 0.1f)),
            kConfigUnsupported);  // of what length?
}

TEST(GgufConfig, RefusesWhatItCannotRun) {
  const auto code = [](weights::GgufBytes b) { return ParseGguf(b).status().code(); };
  EXPECT_EQ(code(TinyGguf("gpt2", 2, 0)), kArchitectureUnknown);
  EXPECT_EQ(code(TinyGguf("llama", 0, 0)), kConfigInvalid);
  EXPECT_EQ(code(TinyGguf("llama", 32, 0)), kConfigInvalid);  // heads of one dimension
  EXPECT_EQ(code(TinyGguf("qwen2", 2, 2)
                     .Value<uint32_t>("qwen2.expert_count", 4, 8)
                     .Value<uint32_t>("qwen2.expert_used_count", 4, 2)),
            kConfigUnsupported);
  EXPECT_EQ(code(TinyGguf("llama", 2, 1).Value<uint32_t>("llama.expert_count", 4, 8)),
            weights::kGgufKeyMissing);
  EXPECT_EQ(code(TinyGguf("llama", 2, 2)
                     .Value<uint32_t>("llama.expert_count", 4, 8)
                     .Value<uint32_t>("llama.expert_used_count", 4, 9)),
            kConfigInvalid);
  const auto unknown = ParseGguf(TinyGguf("Qwen3ForCausalLM", 2, 0)).status();
  EXPECT_EQ(unknown.code(), kArchitectureUnknown);
  EXPECT_THAT(unknown.message(), HasSubstr("qwen3moe"));
  EXPECT_EQ(code(TinyGguf("llama", 2, 1).Value<uint32_t>("llama.rope.dimension_count", 4, 8)),
            kConfigUnsupported);
  EXPECT_EQ(code(TinyGguf("llama", 2, 1).Value<uint32_t>("llama.attention.value_length", 4, 8)),
            kConfigUnsupported);
  EXPECT_EQ(code(TinyGguf("llama", 2, 1).String("llama.rope.scaling.type", "longrope")),
            kConfigUnsupported);
  EXPECT_EQ(code(TinyGguf("llama", 2, 1).String("llama.rope.freq_base", "1e4")),
            weights::kGgufKeyType);
  EXPECT_EQ(code(TinyGguf("llama", 2, 1).Value("llama.rope.freq_base", 6, std::nanf(""))),
            kConfigInvalid);
  EXPECT_EQ(code(TinyGguf("llama", 2, 1).Value<int32_t>("tokenizer.ggml.eos_token_id", 5, -1)),
            weights::kGgufKeyType);
  EXPECT_EQ(ParseGguf(TinyGguf("llama", 2, 0), "rope_freqs.weight", 0).status().code(),
            kConfigInvalid);

  weights::GgufBytes bare(0, 1);
  bare.String("general.architecture", "llama");
  const auto gguf = weights::GgufFile::Parse(weights::AsBytes(bare.bytes()));
  const auto missing = ReadGgufConfig(*gguf, "m.gguf");
  EXPECT_EQ(missing.status().code(), weights::kGgufKeyMissing);
  EXPECT_EQ(missing.status().message(),
            "m.gguf: key llama.embedding_length is missing; expected an integer");
}

}  // namespace
}  // namespace forebay::model

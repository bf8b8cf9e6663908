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
  for (const char* architecture : {"deepseek2", "llama4"}) {
    const auto refused = ParseGguf(TinyGguf(architecture, 2, 0));
    EXPECT_EQ(refused.status().code(), kArchitectureUnknown);
    EXPECT_THAT(refused.status().message(), HasSubstr("Hugging Face folders alone"));
  }
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

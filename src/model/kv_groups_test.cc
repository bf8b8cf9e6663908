#include "model/kv_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv/cache.h"

namespace forebay::model {
namespace {

using testing::ElementsAre;

ModelConfig Config(std::vector<int32_t> windows) {
  ModelConfig config;
  config.num_layers = static_cast<int64_t>(windows.size());
  config.num_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 16;
  config.sliding_window = std::move(windows);
  return config;
}

// What a rank has.
Shard Rank(const base::Part& layers, int64_t kv_heads) {
  Shard shard;
  shard.layers = layers;
  shard.own_kv_heads = {0, kv_heads};
  return shard;
}

constexpr int64_t kLayerBytes = 2 * 32 * 2 * 16 * 2;  // K and V, positions, heads, head_dim, bf16

TEST(KvGroups, LayersThatAreAlikeAreOneGroup) {
  for (const int32_t window : {0, 64}) {
    const auto groups =
        PlanKvGroups(Config({window, window, window}), tensor::DType::kBF16, Rank({0, 3}, 2));
    ASSERT_EQ(groups.size(), 1u);
    EXPECT_EQ(groups[0].spec, (kv::KvSpec{.token_bytes = kLayerBytes / 32, .reach = window}));
    EXPECT_EQ(groups[0].layout.block_stride, 3 * kLayerBytes);
    std::vector<std::byte> memory(10 * kv::KvBlockBytes(groups, true));
    const kv::CacheView cache = kv::CutCache(groups, 10, true, memory.data());
    for (int64_t layer = 0; layer < 3; ++layer) {
      EXPECT_EQ(cache.layers[layer].bases.resident, memory.data() + layer * kLayerBytes);
      EXPECT_EQ(cache.layers[layer].first, layer == 0);
    }
    EXPECT_EQ(reinterpret_cast<std::byte*>(cache.groups[0].digests),
              memory.data() + 10 * 3 * kLayerBytes);
    EXPECT_EQ(kv::KvBlockBytes(groups, true), 3 * kLayerBytes + 32 * 8u);
  }
}

TEST(KvGroups, WindowedAndFullLayersAreTwo) {
  const ModelConfig config = Config({64, 64, 0, 64, 64, 0});
  const auto groups = PlanKvGroups(config, tensor::DType::kBF16, Rank({0, 6}, 2));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(groups[0].layers, ElementsAre(0, 1, 3, 4));
  EXPECT_THAT(groups[1].layers, ElementsAre(2, 5));
  std::vector<std::byte> memory(10 * kv::KvBlockBytes(groups, true));
  const kv::CacheView cache = kv::CutCache(groups, 10, true, memory.data());
  EXPECT_EQ(cache.layers[4].bases.resident, memory.data() + 3 * kLayerBytes);
  EXPECT_EQ(cache.layers[5].bases.resident, memory.data() + (10 * 4 + 1) * kLayerBytes);
  EXPECT_EQ(cache.layers[5].group, 1);
  EXPECT_TRUE(cache.layers[2].first && !cache.layers[5].first);
  EXPECT_EQ(reinterpret_cast<std::byte*>(cache.groups[1].digests),
            memory.data() + 10 * (6 * kLayerBytes + 32 * 8));
  EXPECT_EQ(kv::KvBlockBytes(groups, false), 6u * kLayerBytes);

  const auto stage = PlanKvGroups(config, tensor::DType::kBF16, Rank({2, 4}, 1));
  ASSERT_EQ(stage.size(), 2u);
  EXPECT_EQ(stage[0].spec, groups[0].spec);
  EXPECT_THAT(stage[0].layers, ElementsAre(1));
  EXPECT_THAT(stage[1].layers, ElementsAre(0));
  EXPECT_EQ(stage[0].layout.block_stride, kLayerBytes / 2);
  const auto none = PlanKvGroups(config, tensor::DType::kBF16, Rank({3, 5}, 2));
  ASSERT_EQ(none.size(), 2u);
  EXPECT_EQ(kv::KvBlockBytes(none, true), 2 * kLayerBytes + 32 * 8u);
  EXPECT_EQ(kv::CutCache(none, 10, true, memory.data()).groups[1].digests, nullptr);
}

TEST(KvGroups, ChunkedLayersAreOne) {
  ModelConfig config = Config({0, 0, 0, 0});
  config.without_rope = {0, 0, 0, 1};
  config.attention_chunk = 32;
  const auto groups = PlanKvGroups(config, tensor::DType::kBF16, Rank({0, 4}, 2));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].spec.reach, base::Reach(0, 32));
  EXPECT_THAT(groups[0].layers, ElementsAre(0, 1, 2));
  EXPECT_EQ(groups[1].spec.reach, base::Reach());
}

// Full layers have one head of 32 where the others have two of 16; the last layer of each kind
// reads another's.
TEST(KvGroups, HeadsByLayerAndLayersThatReadOthers) {
  ModelConfig config = Config({64, 0, 64, 0});
  config.full_heads = {.kv_heads = 1, .head_dim = 32};
  config.kv_readers = 2;
  Shard shard = Rank({0, 4}, 2);
  shard.full_kv = KvCut{.own_kv_heads = {0, 1}};
  const auto groups = PlanKvGroups(config, tensor::DType::kBF16, shard);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_THAT(groups[0].layers, ElementsAre(0));
  EXPECT_THAT(groups[1].layers, ElementsAre(1));
  EXPECT_EQ(groups[0].layout.key_dim, 16);
  EXPECT_EQ(groups[1].layout.key_dim, 32);
  EXPECT_EQ(groups[1].layout.kv_heads, 1);
  EXPECT_EQ(groups[1].heads, (base::Part{0, 1}));
  EXPECT_EQ(kv::KvBlockBytes(groups, false), 2u * kLayerBytes);
}

// One head of latents, whatever the model says of KV heads; no V beside it.
TEST(KvGroups, LatentsAreStoredOnce) {
  ModelConfig config = Config({0, 0});
  config.mla = {.kv_lora_rank = 512, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64};
  const auto groups = PlanKvGroups(config, tensor::DType::kBF16, Rank({0, 2}, 2));
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].spec.token_bytes, 576 * 2);
  EXPECT_FALSE(groups[0].spec.by_heads);
  EXPECT_EQ(kv::KvBlockBytes(groups, false), 2 * 32 * 576 * 2u);
}

}  // namespace
}  // namespace forebay::model

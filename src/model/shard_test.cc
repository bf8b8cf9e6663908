#include "model/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace forebay::model {
namespace {

ModelConfig Config(int64_t heads, int64_t kv_heads, int64_t intermediate = 14336,
                   int64_t layers = 32) {
  ModelConfig config;
  config.vocab_size = 128256;
  config.num_layers = layers;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = 128;
  config.intermediate_size = intermediate;
  return config;
}

Shard TpShard(const ModelConfig& config, int tp, int rank) {
  return ShardOf(config, {.tp = tp, .tp_rank = rank});
}

TEST(Shard, TwoRanksHaveHalfOfEverything) {
  const Shard shard = TpShard(Config(32, 8), 2, 1);
  EXPECT_EQ(shard.layers, (Part{0, 32}));
  EXPECT_EQ(shard.heads, (Part{16, 32}));
  EXPECT_EQ(shard.kv_heads, (Part{4, 8}));
  EXPECT_EQ(shard.output_leaves, (Part{4, 8}));
  EXPECT_EQ(shard.down_leaves, (Part{4, 8}));
  EXPECT_EQ(shard.intermediate, (Part{7168, 14336}));
  EXPECT_EQ(shard.vocab, (Part{63 * 1024, 128256}));  // 126 chunks
}

TEST(Shard, ThreeRanksOwnWholeLeaves) {
  const ModelConfig config = Config(24, 8, 14336);
  ASSERT_TRUE(CheckCut(config, {.tp = 3}, 1).ok());
  EXPECT_EQ(TpShard(config, 3, 0).heads, (Part{0, 9}));
  EXPECT_EQ(TpShard(config, 3, 1).heads, (Part{9, 18}));
  EXPECT_EQ(TpShard(config, 3, 2).heads, (Part{18, 24}));
  EXPECT_EQ(TpShard(config, 3, 2).kv_heads, (Part{6, 8}));
  EXPECT_EQ(TpShard(config, 3, 1).intermediate, (Part{3 * 1792, 6 * 1792}));
  EXPECT_EQ(TpShard(config, 3, 2).down_leaves, (Part{6, 8}));
}

TEST(Shard, KvHeadsAreReplicatedWhereThereAreFewer) {
  const ModelConfig config = Config(16, 2);
  ASSERT_TRUE(CheckCut(config, {.tp = 8}, 1).ok());
  const HeadMap map = StageHeadMap(config, {.tp = 8});
  ASSERT_EQ(map.kv[0].size(), 4u);
  for (int32_t rank = 0; rank < 8; ++rank) {
    EXPECT_EQ(map.QueryHeadsOf(rank), (std::vector<int32_t>{2 * rank, 2 * rank + 1}));
    EXPECT_EQ(map.KvHeadsOf(rank), (std::vector<int32_t>{rank / 4}));
    EXPECT_EQ(TpShard(config, 8, rank).kv_copies, rank % 4 == 0 ? 0 : 1);
  }
}

// Over many shapes: every head, column, vocabulary entry and layer has a place, and attention's
// sharing rule holds.
TEST(Shard, EveryCutThatPassesCoversTheModel) {
  int passed = 0;
  for (const auto& [heads, kv_heads] : std::vector<std::pair<int, int>>{
           {1, 1}, {2, 1}, {9, 3}, {14, 2}, {24, 8}, {28, 4}, {32, 8}, {64, 8}}) {
    for (const int64_t intermediate : {32, 96, 256, 1536, 4864, 18944}) {
      const ModelConfig config = Config(heads, kv_heads, intermediate, 5);
      for (int tp = 1; tp <= 9; ++tp) {
        if (!CheckCut(config, {.tp = tp}, 5).ok()) continue;
        ++passed;
        const HeadMap map = StageHeadMap(config, {.tp = tp});
        Part heads_seen, columns_seen, vocab_seen;
        for (int rank = 0; rank < tp; ++rank) {
          const Shard shard = TpShard(config, tp, rank);
          EXPECT_EQ(shard.heads.begin, heads_seen.end);
          EXPECT_EQ(shard.intermediate.begin, columns_seen.end);
          EXPECT_EQ(shard.vocab.begin, vocab_seen.end);
          EXPECT_EQ(shard.intermediate.begin % 32, 0);
          EXPECT_EQ(shard.vocab.begin % 1024 == 0 || shard.vocab.size() == 0, true);
          EXPECT_GT(shard.heads.size() * shard.intermediate.size(), 0);
          heads_seen = shard.heads;
          columns_seen = shard.intermediate;
          vocab_seen = shard.vocab;
          const std::vector<int32_t> query = map.QueryHeadsOf(rank), kv = map.KvHeadsOf(rank);
          ASSERT_EQ(static_cast<int64_t>(query.size()), shard.heads.size());
          ASSERT_EQ(static_cast<int64_t>(kv.size()), shard.kv_heads.size());
          for (size_t i = 0; i < query.size(); ++i) {
            EXPECT_EQ(query[i], shard.heads.begin + static_cast<int64_t>(i));
            EXPECT_EQ(kv[i / (query.size() / kv.size())], query[i] / (heads / kv_heads));
          }
        }
        EXPECT_EQ(heads_seen.end, heads);
        EXPECT_EQ(columns_seen.end, intermediate);
        EXPECT_EQ(vocab_seen.end, config.vocab_size);
      }
    }
  }
  EXPECT_GT(passed, 100);
}

// Linear layers have the run's part, attention and the cache the block's, in every mode alike.
TEST(Shard, BlocksKeepTheirHeadsInEveryMode) {
  const ModelConfig config = Config(48, 8);
  const Degrees layout{.sp = 4, .tp = 2};
  ASSERT_TRUE(CheckCut(config, layout, 1).ok());
  const ReplicaCut cut{.tp = 2, .tp_rank = 1, .sp = 4, .sp_rank = 2};
  EXPECT_EQ(cut.block(), 6);
  const Shard own = ShardOf(config, cut);
  EXPECT_EQ(own.heads, (Part{24, 48}));
  EXPECT_EQ(own.kv_heads, (Part{4, 8}));
  EXPECT_EQ(own.down_leaves, (Part{4, 8}));
  for (const Degrees& mode : {layout, Degrees{2, 4}, Degrees{1, 8}}) {
    const Shard shard = ShardOf(config, cut, mode);
    EXPECT_EQ(shard.own_heads, (Part{36, 42}));
    EXPECT_EQ(shard.own_kv_heads, (Part{6, 7}));
    EXPECT_EQ(shard.vocab, own.vocab);
    EXPECT_EQ(shard.down_leaves.size(), 8 / mode.tp);
    EXPECT_EQ(shard.run_heads.size(), static_cast<size_t>(mode.sp));
    EXPECT_LE(shard.heads.begin, 36);
    EXPECT_GE(shard.heads.end, 42);
  }
  EXPECT_EQ(ShardOf(config, cut, {1, 8}).heads, (Part{36, 42}));
}

// Heads lie with their blocks, whichever rank that is.
TEST(Shard, HeadsFollowTheBlocks) {
  const Degrees layout{.sp = 3, .tp = 2};
  const HeadMap map = StageHeadMap(Config(6, 6), layout);
  std::vector<int32_t> ranks;
  for (const HeadPlace& place : map.query) ranks.push_back(place.rank);
  EXPECT_EQ(ranks, (std::vector<int32_t>{0, 2, 4, 1, 3, 5}));
  EXPECT_EQ(map.QueryHeadsOf(std::vector{1, 3, 5}), (std::vector<int32_t>{3, 4, 5}));
  // Two ranks have each KV head: packed once where both are of one run.
  const HeadMap shared = StageHeadMap(Config(8, 4), {.sp = 8});
  EXPECT_EQ(shared.KvHeadsOf(std::vector{0, 1, 2, 3}), (std::vector<int32_t>{0, 1}));
}

TEST(Shard, ARankMayOwnNoVocabulary) {
  ModelConfig config = Config(8, 8);
  config.vocab_size = 1500;
  EXPECT_EQ(TpShard(config, 3, 1).vocab, (Part{1024, 1500}));
  EXPECT_EQ(TpShard(config, 3, 2).vocab.size(), 0);
}

TEST(Shard, StagesShareTheLayers) {
  const ModelConfig config = Config(8, 8, 14336, 7);
  EXPECT_EQ(ShardOf(config, {.pp = 3, .stage = 0}).layers, (Part{0, 3}));
  EXPECT_EQ(ShardOf(config, {.pp = 3, .stage = 2}).layers, (Part{5, 7}));
}

TEST(Shard, RefusalsNameBothNumbers) {
  const auto refusal = [](const ModelConfig& config, int tp, int pp, base::ErrorCode code,
                          const char* a, const char* b) {
    const base::Status status = CheckCut(config, {.tp = tp}, pp);
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_THAT(status.message(), testing::AllOf(testing::HasSubstr(a), testing::HasSubstr(b)));
  };
  refusal(Config(4, 4), 8, 1, kShardLeaves, "tp=8", "4 leaves");
  refusal(Config(8, 8, 96), 4, 1, kShardLeaves, "tp=4", "96 inputs form 3 leaves");
  refusal(Config(32, 8), 16, 1, kShardLeaves, "tp=16", "8 leaves");
  refusal(Config(14, 2), 3, 1, kShardHeads, "tp=3",
          "rank 1 would have heads 5 to 9, which do not share KV heads 0 to 1");
  refusal(Config(8, 8), 1, 33, kShardLayers, "pp=33", "32 layers");
  ModelConfig latent = Config(8, 8);
  latent.mla = MlaConfig{.kv_lora_rank = 64};
  EXPECT_TRUE(CheckCut(latent, {.tp = 8}, 1).ok());
  EXPECT_EQ(CheckCut(latent, {.sp = 2}, 1).code(), kLayoutExperts);
}

}  // namespace
}  // namespace forebay::model

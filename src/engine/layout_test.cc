#include "engine/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "weights/book/placement.h"

namespace forebay::engine {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

model::ModelConfig Config() {
  model::ModelConfig config;
  config.vocab_size = 32000;
  config.num_layers = 30;
  config.num_heads = 32;
  config.num_kv_heads = 8;
  config.head_dim = 64;
  config.intermediate_size = 8192;
  return config;
}

TEST(Layout, TextAndBack) {
  const Layout layout = *ParseLayout("dp=4,tp=2,weights=by_layer,pool=12,pool-attention=on,groups=3,pp=2");
  EXPECT_EQ(layout, (Layout{3, 4, 2, 2, "by_layer", 12, true}));
  EXPECT_EQ(FormatLayout(layout), "groups=3,dp=4,tp=2,pp=2,weights=by_layer,pool=12,pool-attention=on");
  EXPECT_EQ(*ParseLayout(FormatLayout(layout)), layout);
  EXPECT_EQ(*ParseLayout(""), Layout{});
  EXPECT_EQ(FormatLayout(Layout{}), "groups=1,dp=1,tp=1,pp=1,weights=replicated,pool=auto,pool-attention=off");
  EXPECT_EQ(layout.num_devices(), 48);
}

TEST(Layout, WrongTextIsRefused) {
  const auto refused = [](std::string_view text, base::ErrorCode code, const char* part) {
    const base::Status status = ParseLayout(text).status();
    EXPECT_EQ(status.code(), code) << text;
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  refused("dp", kLayoutInvalid, "\"dp\" is no key=value");
  refused("dp=2,,tp=2", kLayoutInvalid, "\"\" is no key=value");
  refused("sp=2", kLayoutInvalid, "key \"sp\" is unknown; expected groups, dp, tp");
  refused("dp=2,dp=2", kLayoutInvalid, "dp is given twice");
  refused("dp=0", kLayoutInvalid, "dp=0 is no number from 1 to 1024");
  refused("dp=2x", kLayoutInvalid, "dp=2x");
  refused("tp=", kLayoutInvalid, "tp= is no number");
  refused("tp=-1", kLayoutInvalid, "tp=-1");
  refused("pool=all", kLayoutInvalid, "pool=all is no number from 0 to 100000, nor auto");
  refused("pool-attention=yes", kLayoutInvalid, "neither on nor off");
  refused("weights=tiled", weights::kUnknownPlacement, "\"tiled\"");
  refused("groups=1024,dp=1024,tp=1024,pp=1024", kLayoutInvalid, "more than 1024 ranks");
}

TEST(Layout, ValidLayouts) {
  for (const char* text : {"", "dp=8", "tp=8", "dp=2,tp=4", "pp=30", "dp=8,weights=by_layer", "dp=3,weights=by_layer,pool=0",
                           "dp=2,tp=4,weights=striped,pool=30", "dp=8,weights=striped", "dp=8,tp=8,weights=sharded",
                           "tp=3,weights=replicated,pool=auto", "groups=2,dp=2,pp=3,weights=by_layer,pool-attention=on"}) {
    const Layout layout = *ParseLayout(text);
    const base::Status status = ValidateLayout(layout, Config(), layout.num_devices());
    EXPECT_TRUE(status.ok()) << text << ": " << status.ToString();
  }
}

TEST(Layout, RefusalsNameTheNumbersThatDisagree) {
  const auto refused = [](std::string_view text, int devices, base::ErrorCode code, const char* a, const char* b) {
    const base::Status status = ValidateLayout(*ParseLayout(text), Config(), devices);
    EXPECT_EQ(status.code(), code) << text;
    EXPECT_THAT(status.message(), testing::AllOf(HasSubstr(a), HasSubstr(b)));
  };
  refused("dp=4,tp=2", 4, kLayoutDevices, "needs 8 devices", "there are 4");
  refused("tp=16", 16, model::kShardLeaves, "tp=16", "8 leaves");
  refused("pp=31", 31, model::kShardLayers, "pp=31", "30 layers");
  refused("dp=2,weights=by_layer,pool=31", 2, kLayoutPool, "pool=31", "30 layers");
  refused("dp=2,pool=3", 2, kLayoutPool, "pool=3", "weights=replicated");
  refused("dp=2,pool-attention=on", 2, kLayoutPool, "pool-attention=on", "weights=replicated");
  refused("dp=8,tp=2,weights=striped", 16, model::kShardLeaves, "dp=8", "4 leaves");
}

TEST(Layout, RanksAndTheirPeers) {
  const Layout layout = *ParseLayout("dp=2,pp=3,tp=4");
  for (int rank = 0; rank < 24; ++rank) EXPECT_EQ(RankOf(layout, PlaceOf(layout, rank)), rank);
  EXPECT_EQ(PlaceOf(layout, 18), (RankPlace{1, 1, 2}));
  EXPECT_THAT(TpRanks(layout, 18).ranks, ElementsAre(16, 17, 18, 19));
  EXPECT_EQ(TpRanks(layout, 18).my_index, 2);
  EXPECT_THAT(StageRanks(layout, 18).ranks, ElementsAre(14, 18, 22));
  EXPECT_EQ(StageRanks(layout, 18).my_index, 1);
  EXPECT_THAT(PoolRanks(layout, 18).ranks, ElementsAre(6, 18));
  EXPECT_EQ(PoolRanks(layout, 18).my_index, 1);
  const model::ReplicaCut cut = CutOf(layout, 18);
  EXPECT_TRUE(cut.tp == 4 && cut.pp == 3 && cut.tp_rank == 2 && cut.stage == 1);
}

}  // namespace
}  // namespace forebay::engine

#include "layout/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "layout/options.h"
#include "layout/platform.h"
#include "model/builtin_configs.h"
#include "weights/book/placement.h"

namespace forebay::layout {
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
  const Layout layout =
      *ParseLayout("dp=4,tp=2,weights=by_layer,pool=12,pool-attention=on,groups=3,pp=2");
  EXPECT_EQ(layout, (Layout{3, 4, 2, 2, {&weights::kByLayer}, {}, 12, true}));
  EXPECT_EQ(FormatLayout(layout),
            "groups=3,dp=4,tp=2,pp=2,weights=by_layer,pool=12,pool-attention=on");
  EXPECT_EQ(*ParseLayout(FormatLayout(layout)), layout);
  EXPECT_EQ(*ParseLayout(""), Layout{});
  EXPECT_EQ(FormatLayout(Layout{}),
            "groups=1,dp=1,tp=1,pp=1,weights=replicated,pool=auto,pool-attention=off");
  EXPECT_EQ(layout.num_devices(), 48);
  const Layout cut = *ParseLayout("sp=3,tp=2,dp=2");
  EXPECT_EQ(cut.num_devices(), 12);
  EXPECT_EQ(FormatLayout(cut),
            "groups=1,dp=2,sp=3,tp=2,pp=1,weights=replicated,pool=auto,pool-attention=off");
  EXPECT_EQ(*ParseLayout(FormatLayout(cut)), cut);
}

TEST(Layout, ExpertSizeAsText) {
  for (const char* size : {"auto", "94"}) {
    const std::string key = fmt::format(",expert-size={}", size);
    const Layout layout = *ParseLayout("dp=4,experts=by_expert" + key);
    EXPECT_THAT(FormatLayout(layout), testing::EndsWith(key));
    EXPECT_EQ(*ParseLayout(FormatLayout(layout)), layout);
  }
  EXPECT_EQ(*ParseLayout("dp=4,expert-size=least"), *ParseLayout("dp=4"));
  EXPECT_THAT(ParseLayout("expert-size=most").status().message(),
              HasSubstr("is no number from 1 to 100000, nor least, nor auto"));
}

TEST(Layout, WrongTextIsRefused) {
  const auto refused = [](std::string_view text, base::ErrorCode code, const char* part) {
    const base::Status status = ParseLayout(text).status();
    EXPECT_EQ(status.code(), code) << text;
    EXPECT_THAT(status.message(), HasSubstr(part));
  };
  refused("dp", kLayoutInvalid, "\"dp\" is no key=value");
  refused("dp=2,,tp=2", kLayoutInvalid, "\"\" is no key=value");
  refused("cp=2", kLayoutInvalid, "key \"cp\" is unknown; expected groups, dp, sp, tp");
  refused("sp=0", kLayoutInvalid, "sp=0 is no number from 1 to 1024");
  refused("sp=32,dp=64", kLayoutInvalid, "more than 1024 ranks");
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
  for (const char* text :
       {"", "dp=8", "tp=8", "dp=2,tp=4", "pp=30", "dp=8,weights=by_layer",
        "dp=3,weights=by_layer,pool=0", "dp=2,tp=4,weights=striped,pool=30", "dp=8,weights=striped",
        "dp=8,tp=8,weights=sharded", "tp=3,weights=replicated,pool=auto",
        "groups=2,dp=2,pp=3,weights=by_layer,pool-attention=on", "sp=8", "dp=2,pp=2,sp=2,tp=4"}) {
    const Layout layout = *ParseLayout(text);
    const base::Status status = ValidateLayout(layout, Config(), layout.num_devices());
    EXPECT_TRUE(status.ok()) << text << ": " << status.ToString();
  }
}

TEST(Layout, RefusalsNameTheNumbersThatDisagree) {
  const auto refused = [](std::string_view text, int devices, base::ErrorCode code, const char* a,
                          const char* b) {
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
  refused("sp=4,tp=2", 4, kLayoutDevices, "sp=4 x tp=2 needs 8 devices", "there are 4");
  refused("sp=4,tp=4", 16, model::kShardLeaves, "sp=4 x tp=4", "8 leaves");
  refused("dp=2,sp=2,weights=by_layer", 4, kLayoutPool, "weights=by_layer", "sp=2");
  refused("dp=8,tp=2,weights=striped", 16, model::kShardLeaves, "dp=8", "4 leaves");
}

// Eight leaves on six ranks are twos and ones; a head more or less of 1 % is no line's worth.
TEST(Layout, UnevenPartsAreNamed) {
  const auto uneven = [](const char* layout, const char* name) {
    return FormatUneven(*ParseLayout(layout), *model::LoadBuiltinConfig(name));
  };
  EXPECT_EQ(uneven("sp=3,tp=2", "Llama-3.1-70B"),
            "sp=3, tp=2: the busiest rank has 16 of 64 heads, 1.50 times the mean, and 7168 of "
            "28672 columns of the FFN, 1.50 times the mean; the others wait for it where these are "
            "cut");
  EXPECT_EQ(uneven("sp=4,tp=2", "Llama-3.1-70B"), "");
  EXPECT_EQ(uneven("tp=8", "Qwen2.5-72B"), "");
  EXPECT_EQ(uneven("dp=8", "DeepSeek-R1"), "");
}

TEST(Layout, RanksAndTheirPeers) {
  const Layout layout = *ParseLayout("dp=2,pp=3,tp=4");
  for (int rank = 0; rank < 24; ++rank) EXPECT_EQ(RankOf(layout, PlaceOf(layout, rank)), rank);
  EXPECT_EQ(PlaceOf(layout, 18), (RankPlace{1, 1, 2}));
  EXPECT_THAT(TpRanks(layout, 18, layout.degrees()).ranks, ElementsAre(16, 17, 18, 19));
  EXPECT_EQ(TpRanks(layout, 18, layout.degrees()).my_index, 2);
  EXPECT_THAT(StageRanks(layout, 18).ranks, ElementsAre(14, 18, 22));
  EXPECT_EQ(StageRanks(layout, 18).my_index, 1);
  EXPECT_THAT(PoolRanks(layout, 18).ranks, ElementsAre(6, 18));
  EXPECT_EQ(PoolRanks(layout, 18).my_index, 1);
  const model::ReplicaCut cut = CutOf(layout, 18);
  EXPECT_TRUE(cut.tp == 4 && cut.pp == 3 && cut.tp_rank == 2 && cut.stage == 1);
}

// Shift Parallelism's example: ranks of a stage in the order of their heads are 0 2 4 1 3 5.
TEST(Layout, RanksThatCutRowsAndTheirPeers) {
  const Layout layout = *ParseLayout("dp=2,pp=2,sp=3,tp=2");
  for (int rank = 0; rank < 24; ++rank) EXPECT_EQ(RankOf(layout, PlaceOf(layout, rank)), rank);
  EXPECT_EQ(PlaceOf(layout, 21), (RankPlace{1, 1, 1, 1}));
  EXPECT_THAT(TpRanks(layout, 21, layout.degrees()).ranks, ElementsAre(20, 21));
  EXPECT_THAT(SpRanks(layout, 21, layout.degrees()).ranks, ElementsAre(19, 21, 23));
  EXPECT_EQ(SpRanks(layout, 21, layout.degrees()).my_index, 1);
  EXPECT_THAT(RanksOfStage(layout, 21).ranks, ElementsAre(18, 20, 22, 19, 21, 23));
  EXPECT_EQ(RanksOfStage(layout, 21).my_index, 4);
  EXPECT_EQ(CutOf(layout, 21).block(), 4);
  EXPECT_THAT(StageRanks(layout, 21).ranks, ElementsAre(15, 21));
  // Those that cut its rows share weights; replicas are copies.
  EXPECT_THAT(PoolRanks(layout, 21).ranks, ElementsAre(19, 21, 23));
  EXPECT_EQ(PoolRanks(layout, 21).my_index, 1);
}

TEST(Options, DevicesAreParsed) {
  EXPECT_EQ(ParseDevices("sim:8xh20")->count, 8);
  EXPECT_EQ(ParseDevices("gpu").status().code(), kDevicesInvalid);
  EXPECT_EQ(ParseDevices("gpu").status().message().rfind("--devices", 0), 0u);
}

TEST(Options, GpusAreListed) {
  const auto ordinals = [](std::string_view text) { return ParseDevices(text)->ordinals; };
  EXPECT_THAT(ordinals("cuda"), ElementsAre(0));
  EXPECT_THAT(ordinals("4xcuda"), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ordinals("cuda:0,2"), ElementsAre(0, 2));
  EXPECT_THAT(ordinals("2xcuda:1"), ElementsAre(1, 1));
  EXPECT_THAT(ordinals("2xcuda:0,1"), ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(ParseDevices("2xcuda:0,1")->count, 4);
  for (const char* text : {"cuda:", "cuda:0,", "cuda:,1", "cuda:x", "cuda:-1", "cudas", "0xcuda"})
    EXPECT_EQ(ParseDevices(text).status().code(), kDevicesInvalid) << text;
}

TEST(Options, GpusHaveKernelsOfTheirOwn) {
  const Platform& cuda = CudaPlatform();
  EXPECT_STREQ((*cuda.Kernels("auto", "auto"))->name, "pair");
  EXPECT_EQ(*cuda.Kernels("pair", "pair"), *cuda.Kernels("auto", "auto"));
  const base::Status isa = cuda.Kernels("avx2", "auto").status();
  EXPECT_EQ(isa.code(), kernels::kIsaUnavailable);
  EXPECT_THAT(isa.message(), HasSubstr("'avx2'"));
  EXPECT_STREQ((*cuda.Kernels("auto", "mma_k16f25"))->name, "mma");
  EXPECT_EQ(*cuda.Kernels("mma", "auto"), *cuda.Kernels("auto", "mma_k16f25"));
  for (const auto& [name, numerics] : {std::pair("pair", "mma_k16f25"), std::pair("mma", "pair"),
                                       std::pair("auto", "mma_k8f24")}) {
    EXPECT_EQ(cuda.Kernels(name, numerics).status().code(), kernels::kNumericsUnavailable)
        << name << " " << numerics;
  }
}

// The tier is the ranks' together, beside their budget, and has a whole number of blocks.

}  // namespace
}  // namespace forebay::layout

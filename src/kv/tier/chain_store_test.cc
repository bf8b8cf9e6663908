// Blocks in memory and in a file behind it: they come back from wherever they are, and what goes
// from the one to the other does so before its place is written over.
#include "kv/tier/chain_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "base/testing/interleavings.h"
#include "base/units.h"
#include "device/hazard_checker.h"
#include "kv/book/tier_book.h"
#include "kv/testing/disk.h"
#include "kv/testing/groups.h"
#include "kv/testing/write_block.h"
#include "kv/tier/tier.h"
#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::kv {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int32_t kBlocks = 6;
constexpr TierBlocks kBelow{.in_memory = 3, .in_file = 4};

struct Rank {
  explicit Rank(runtime::Runtime& runtime, device::CpuDeviceOptions options = {},
                uint64_t staging = base::kMiB)
      : device(Make(runtime, std::move(options))),
        region(device->arena().Allocate("kv", kBlocks * KvBlockBytes(Groups(), true)).value()),
        cache(*device, *region, Groups(), kBlocks, true),
        tier(Tier::Create(
                 *device, cache, kBelow,
                 {.path = "fake", .staging_bytes = staging, .threads = 1, .open = OpenOn(disk)})
                 .value()) {}
  ~Rank() { device.reset(); }

  static std::unique_ptr<device::Device> Make(runtime::Runtime& runtime,
                                              device::CpuDeviceOptions options) {
    options.memory_bytes = 8 * base::kMiB;
    return device::CreateCpuDevice(runtime, options).value();
  }
  std::span<std::byte> Strip(int32_t group, BlockId block, size_t strip = 0) const {
    const Cache::Strip& at = cache.strips()[static_cast<size_t>(group)][strip];
    return {at.Of(block), at.bytes};
  }
  void Fill(BlockId block, int value) const {
    for (int32_t group = 0; group < 2; ++group) {
      for (size_t i = 0; i < cache.strips()[static_cast<size_t>(group)].size(); ++i)
        std::memset(Strip(group, block, i).data(), value + group, Strip(group, block, i).size());
    }
  }
  bool Has(BlockId block, int value) const {
    for (int32_t group = 0; group < 2; ++group) {
      for (size_t i = 0; i < cache.strips()[static_cast<size_t>(group)].size(); ++i) {
        const auto strip = Strip(group, block, i);
        if (std::ranges::count(strip, static_cast<std::byte>(value + group)) != std::ssize(strip))
          return false;
      }
    }
    return true;
  }
  LostBlocks Move(std::vector<TierMove> down, std::vector<TierMove> up = {}) {
    tier->BeginStep({.down = std::move(down), .up = std::move(up)});
    EXPECT_TRUE(tier->WaitUp(runtime::kForever));
    EXPECT_TRUE(device->Synchronize(device->compute()).ok());
    tier->Quiesce();
    return tier->store().TakeLost();
  }

  Disk disk;
  std::unique_ptr<device::Device> device;
  const device::Region* const region;
  Cache cache;
  std::unique_ptr<Tier> tier;
};

// A block of both groups.
std::vector<TierMove> Both(BlockId device, BlockId below, BlockId from = -1) {
  std::vector<TierMove> moves;
  for (int32_t group = 0; group < 2; ++group)
    moves.push_back({.group = group, .device = device, .below = below, .from = from});
  return moves;
}
std::vector<TierMove> operator+(std::vector<TierMove> a, const std::vector<TierMove>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(ChainStoreTest, BlocksComeBackFromEitherLevelThroughAnyStaging) {
  for (const uint64_t staging : {uint64_t{1}, base::kMiB}) {
    const auto runtime = runtime::CreateRealRuntime();
    Rank rank(*runtime, {}, staging);
    for (BlockId block = 0; block < kBlocks; ++block) rank.Fill(block, 10 * (1 + block));
    rank.Move(Both(0, 0) + Both(1, 1) + Both(2, 5));
    const uint64_t down = rank.tier->bytes_down();
    // 0 and 1 make room for 3 and 4 in the same step.
    rank.Move(Both(3, 0) + Both(0, 4, 0) + Both(4, 1) + Both(0, 3, 1));
    EXPECT_EQ(rank.tier->bytes_down(), down + down * 2 / 3) << "what stays below is not counted";
    std::memset(rank.region->data, 0, rank.region->bytes);
    EXPECT_THAT(
        rank.Move({}, Both(0, 4) + Both(1, 3) + Both(2, 5) + Both(3, 0) + Both(4, 1)).blocks,
        IsEmpty());
    for (BlockId block = 0; block < 5; ++block) EXPECT_TRUE(rank.Has(block, 10 * (1 + block)));
    EXPECT_EQ(rank.tier->store().bytes_written(), rank.tier->store().bytes_read());
  }
}

TEST(ChainStoreTest, TheFilesBlocksAreNumberedBehindThoseInMemory) {
  const auto runtime = runtime::CreateRealRuntime();
  Rank rank(*runtime);
  rank.Fill(0, 7);
  rank.Move(Both(0, 1) + Both(0, 3));
  rank.disk.writes_left = 0;
  const LostBlocks lost = rank.Move(Both(0, 2) + Both(0, 4));
  EXPECT_THAT(lost.blocks, ElementsAre(4));
  EXPECT_EQ(lost.closed.code(), kKvFileIo);
  // Memory goes on, and what was written is read.
  EXPECT_THAT(rank.Move({}, Both(1, 2) + Both(2, 3)).blocks, IsEmpty());
  EXPECT_TRUE(rank.Has(1, 7));
  EXPECT_TRUE(rank.Has(2, 7));
}

enum class Mistake { kNone, kWrittenOverBeforeItMoves, kStepBeforeItsMoves };

// Steps that park a block and bring one back, of a book whose levels are both too small, while
// copies take their time. Counts what went from level to level; returns what the checker found.
// `wrong`: a block came back as another one.
base::Status RunSteps(uint64_t seed, Mistake mistake, int64_t* demoted, bool* wrong) {
  runtime::VirtualRuntime runtime(seed);
  device::HazardChecker checker;
  const base::Status status = runtime.Run([&] {
    Rank rank(runtime, {.checker = &checker, .max_virtual_delay = 40'000, .seed = seed},
              seed % 2 == 0 ? 1 : base::kMiB);
    base::Rng rng(seed);
    TierBook book(kBelow.near(), kBelow.far());
    std::vector<TierStay> held;
    std::vector<int32_t> fresh;
    for (int round = 1; round <= 10; ++round) {
      for (const TierStay& stay : held) book.Release(stay);
      held.clear();
      TierMoves moves;
      EnqueueWrite(*rank.device, rank.cache, 0, round);
      FB_CHECK(rank.device->Synchronize(rank.device->compute()).ok(), "no faults here");
      fresh.clear();
      const PrefixKey key{static_cast<uint64_t>(round), 1};
      held.push_back(book.Hold(std::span(&key, 1), false, &fresh).value());
      for (const DemotedBlock& block : book.TakeDemoted()) {
        moves.down.push_back({.group = 0, .below = block.far, .from = block.near});
        held.push_back({.blocks = {block.far}});
        ++*demoted;
      }
      moves.down.push_back({.group = 0, .device = 0, .below = held[0].blocks[0]});
      // In either order: the store knows which must be first.
      if (rng.Below(2) == 0) std::ranges::reverse(moves.down);
      if (mistake == Mistake::kStepBeforeItsMoves) EnqueueWrite(*rank.device, rank.cache, 0, 200);
      if (mistake == Mistake::kWrittenOverBeforeItMoves) {
        rank.tier->BeginStep(
            {.down = {{.group = 0, .device = 0, .below = held[0].blocks[0]}}, .up = {}});
      }
      const PrefixKey back{1 + rng.Below(static_cast<uint64_t>(round)), 1};
      const bool comes_back = book.Find(std::span(&back, 1)) == 1;
      if (comes_back) {
        held.push_back(book.Hold(std::span(&back, 1), false, &fresh).value());
        moves.up.push_back({.group = 0, .device = 1, .below = held.back().blocks[0]});
      }
      rank.tier->BeginStep(moves);
      EnqueueWrite(*rank.device, rank.cache, 0, 200);
      FB_CHECK(rank.tier->WaitUp(runtime::kForever), "it has come");
      *wrong |= !rank.tier->store().TakeLost().blocks.empty();
      rank.tier->BeginStep({});
      FB_CHECK(rank.device->Synchronize(rank.device->compute()).ok(), "no faults here");
      *wrong |= comes_back && rank.Strip(0, 1)[0] != static_cast<std::byte>(back.low);
      book.CheckInvariants();
    }
    rank.tier->Quiesce();
  });
  FB_CHECK(status.ok(), "{}", status.ToString());
  return checker.status();
}

TEST(ChainStoreTest, NoInterleavingBringsBackAnotherBlock) {
  int64_t demoted = 0;
  for (uint64_t seed = 0; seed < base::Interleavings(300); ++seed) {
    bool wrong = false;
    const base::Status found = RunSteps(seed, Mistake::kNone, &demoted, &wrong);
    ASSERT_TRUE(found.ok()) << seed << ": " << found.ToString();
    ASSERT_FALSE(wrong) << seed;
  }
  EXPECT_GT(demoted, 1000);
}

TEST(ChainStoreTest, MistakesAreFound) {
  int hazards = 0, wrong_blocks = 0;
  int64_t demoted = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    bool wrong = false;
    hazards += !RunSteps(seed, Mistake::kStepBeforeItsMoves, &demoted, &wrong).ok();
    wrong = false;
    (void)RunSteps(seed, Mistake::kWrittenOverBeforeItMoves, &demoted, &wrong);
    wrong_blocks += wrong;
  }
  EXPECT_GT(hazards, 5);
  EXPECT_GT(wrong_blocks, 5);
}

}  // namespace
}  // namespace forebay::kv

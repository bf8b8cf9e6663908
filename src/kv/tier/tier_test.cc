// Blocks go below and come back with their digests, and no stream touches them on their way.
#include "kv/tier/tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/rng.h"
#include "base/testing/interleavings.h"
#include "base/units.h"
#include "device/hazard_checker.h"
#include "kv/testing/bytes_of.h"
#include "kv/testing/disk.h"
#include "kv/testing/groups.h"
#include "kv/testing/write_block.h"
#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::kv {
namespace {

constexpr int32_t kBlocks = 12;

struct Rank {
  explicit Rank(runtime::Runtime& runtime, device::CpuDeviceOptions options = {})
      : device(Make(runtime, std::move(options))),
        region(device->arena().Allocate("kv", kBlocks * KvBlockBytes(Groups(), true)).value()),
        cache(*device, *region, Groups(), kBlocks, true),
        tier(Tier::Create(*device, cache, {.in_memory = kBlocks}).value()) {}
  ~Rank() { device.reset(); }

  static std::unique_ptr<device::Device> Make(runtime::Runtime& runtime,
                                              device::CpuDeviceOptions options) {
    options.memory_bytes = 8 * base::kMiB;
    return device::CreateCpuDevice(runtime, options).value();
  }
  std::vector<std::byte> Bytes(int32_t group, BlockId block) const {
    return BytesOf(cache, group, block);
  }
  void Finish() {
    FB_CHECK(device->Synchronize(device->compute()).ok(), "no faults here");
    tier->Quiesce();
  }

  std::unique_ptr<device::Device> device;
  const device::Region* const region;
  Cache cache;
  std::unique_ptr<Tier> tier;
};

// A place's parts lie in blocks of their own below, in memory and in a file, beside blocks of KV.
TEST(TierTest, StatesComeBackFromTheirParts) {
  constexpr int32_t kPlaces = 4, kParts = 3;
  constexpr uint64_t kPlaceBytes = 10'048;
  for (const bool in_file : {false, true}) {
    const auto runtime = runtime::CreateRealRuntime();
    Disk disk;
    const auto device = Rank::Make(*runtime, {});
    const device::Region* const region =
        device->arena().Allocate("kv", kBlocks * KvBlockBytes(Groups(), false)).value();
    const device::Region* const states =
        device->arena().Allocate("layer states", kPlaces * kPlaceBytes).value();
    const Cache cache(*device, *region, Groups(), kBlocks, false,
                      {.region = states, .place_bytes = kPlaceBytes, .parts = kParts});
    const auto groups = static_cast<int32_t>(cache.num_kv_groups());
    ASSERT_EQ(std::ssize(cache.strips()), groups + kParts);
    FileOptions file{.path = "fake", .open = OpenOn(disk)};
    const auto tier =
        Tier::Create(*device, cache,
                     in_file ? TierBlocks{.in_file = kBlocks} : TierBlocks{.in_memory = kBlocks},
                     file)
            .value();
    EXPECT_GE(tier->store().block_bytes(), KvBlockBytes(Groups(), false));
    EXPECT_GE(tier->store().block_bytes(), kPlaceBytes / kParts);
    for (uint64_t i = 0; i < states->bytes; ++i)
      states->data[i] = static_cast<std::byte>((i * 31 + i / 253) % 256);
    const std::vector<std::byte> before(states->data, states->data + states->bytes);
    const auto place = [&](const std::byte* data, int64_t number) {
      const std::byte* const first = data + static_cast<uint64_t>(number) * kPlaceBytes;
      return std::vector<std::byte>(first, first + kPlaceBytes);
    };
    TierMoves moves;
    AddStateMoves(groups, 2, std::vector<BlockId>{9, 0, 5}, &moves.down);
    moves.down.push_back({.group = 0, .device = 3, .below = 7});
    tier->BeginStep(moves);
    EXPECT_GE(tier->bytes_down(), kPlaceBytes);
    moves.Clear();
    AddStateMoves(groups, 1, std::vector<BlockId>{9, 0, 5}, &moves.up);
    tier->BeginStep(moves);
    ASSERT_TRUE(tier->WaitUp(runtime::kForever));
    EXPECT_EQ(tier->bytes_up(), kPlaceBytes);
    EXPECT_TRUE(tier->store().TakeLost().blocks.empty());
    EXPECT_EQ(place(states->data, 1), place(before.data(), 2));
    for (const int64_t other : {0, 2, 3})
      EXPECT_EQ(place(states->data, other), place(before.data(), other)) << other;
    EXPECT_TRUE(device->Synchronize(device->compute()).ok());
    tier->Quiesce();
  }
}

TEST(TierTest, BlocksComeBackWithTheirDigestsAndNothingElseMoves) {
  const auto runtime = runtime::CreateRealRuntime();
  Rank rank(*runtime);
  for (uint64_t i = 0; i < rank.region->bytes; ++i)
    rank.region->data[i] = static_cast<std::byte>((i * 37 + i / 251) % 256);
  const auto first = rank.Bytes(0, 3), second = rank.Bytes(0, 7), windowed = rank.Bytes(1, 5);
  const uint64_t digest = rank.cache.DigestOf(0, std::vector<BlockId>{3, 7}, 0, 64);
  rank.tier->BeginStep(
      {.down = {{.group = 0, .device = 3, .below = 9}, {0, 7, 2}, {1, 5, 2}}, .up = {}});
  rank.Finish();
  std::memset(rank.region->data, 0, rank.region->bytes);
  rank.tier->BeginStep({.down = {}, .up = {{0, 1, 9}, {0, 0, 2}, {1, 11, 2}}});
  rank.Finish();
  EXPECT_EQ(rank.Bytes(0, 1), first);
  EXPECT_EQ(rank.Bytes(0, 0), second);
  EXPECT_EQ(rank.Bytes(1, 11), windowed);
  EXPECT_EQ(rank.cache.DigestOf(0, std::vector<BlockId>{1, 0}, 0, 64), digest);
  const uint64_t moved = 2 * first.size() + windowed.size();
  EXPECT_EQ(rank.tier->bytes_down(), moved);
  EXPECT_EQ(rank.tier->bytes_up(), moved);
  uint64_t written = 0;
  for (int32_t group = 0; group < 2; ++group) {
    for (BlockId block = 0; block < kBlocks; ++block) {
      const auto bytes = rank.Bytes(group, block);
      written += std::ranges::count(bytes, std::byte{0}) < std::ssize(bytes);
    }
  }
  EXPECT_EQ(written, 3u);
}

enum class Mistake { kNone, kStepBeforeItsMoves, kNextStepDoesNotWait };

// Steps whose blocks are parked and come back at random while copies take their time; returns what
// the checker found. A block's content is the number of its writer.
base::Status RunSteps(uint64_t seed, Mistake mistake) {
  runtime::VirtualRuntime runtime(seed);
  device::HazardChecker checker;
  const base::Status status = runtime.Run([&] {
    Rank rank(runtime, {.checker = &checker, .max_virtual_delay = 40'000, .seed = seed});
    base::Rng rng(seed);
    for (int round = 0; round < 6; ++round) {
      // Block 0 is written, goes below, is written over, and comes back as block 1 in the time of
      // the next step.
      const auto below = static_cast<BlockId>(rng.Below(kBlocks));
      EnqueueWrite(*rank.device, rank.cache, 0, 1 + round);
      FB_CHECK(rank.device->Synchronize(rank.device->compute()).ok(), "no faults here");
      const TierMoves parks{.down = {{0, 0, below}}, .up = {}};
      if (mistake == Mistake::kStepBeforeItsMoves) EnqueueWrite(*rank.device, rank.cache, 0, 100);
      rank.tier->BeginStep(parks);
      EnqueueWrite(*rank.device, rank.cache, 0, 100);
      rank.tier->BeginStep({.down = {}, .up = {{0, 1, below}}});
      EnqueueWrite(*rank.device, rank.cache, 2, 101);
      if (mistake != Mistake::kNextStepDoesNotWait) rank.tier->BeginStep({});
      EnqueueWrite(*rank.device, rank.cache, 1, 102 + round);
      FB_CHECK(rank.device->Synchronize(rank.device->compute()).ok(), "no faults here");
      rank.tier->Quiesce();
      if (mistake == Mistake::kNone) {
        EXPECT_EQ(rank.Bytes(0, 1)[0], static_cast<std::byte>(102 + round));
      }
    }
    rank.Finish();
  });
  FB_CHECK(status.ok(), "{}", status.ToString());
  EXPECT_GT(checker.num_operations(), 0);
  return checker.status();
}

TEST(TierTest, NoInterleavingTouchesABlockOnItsWay) {
  for (uint64_t seed = 0; seed < base::Interleavings(1500); ++seed)
    ASSERT_TRUE(RunSteps(seed, Mistake::kNone).ok()) << seed;
}

// The planted mistakes are found in some interleavings, and a seed finds its again.
TEST(TierTest, MistakesAreFoundAndReplayed) {
  for (const Mistake mistake : {Mistake::kStepBeforeItsMoves, Mistake::kNextStepDoesNotWait}) {
    int found = 0;
    for (uint64_t seed = 0; seed < 40; ++seed) {
      const base::Status status = RunSteps(seed, mistake);
      if (status.ok()) continue;
      ++found;
      EXPECT_EQ(status.code(), device::kHazard);
      EXPECT_THAT(status.message(),
                  testing::AllOf(testing::HasSubstr("kv copy"), testing::HasSubstr("rope_kv")));
      EXPECT_EQ(RunSteps(seed, mistake).message(), status.message());
    }
    EXPECT_GT(found, 5) << static_cast<int>(mistake);
  }
}

}  // namespace
}  // namespace forebay::kv

// Blocks go into a file and come back; what fails on the way is said of the block, and the device
// goes on.
#include "kv/tier/file_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "base/rng.h"
#include "base/units.h"
#include "kv/testing/bytes_of.h"
#include "kv/testing/disk.h"
#include "kv/testing/groups.h"
#include "kv/tier/checksum.h"
#include "kv/tier/tier.h"
#include "runtime/real/real_runtime.h"

namespace forebay::kv {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr int32_t kBlocks = 12;

struct Rank {
  explicit Rank(uint64_t staging = base::kMiB, FileOptions options = {})
      : runtime(runtime::CreateRealRuntime()),
        device(device::CreateCpuDevice(*runtime, {.memory_bytes = 8 * base::kMiB}).value()),
        region(device->arena().Allocate("kv", kBlocks * KvBlockBytes(Groups(), true)).value()),
        cache(*device, *region, Groups(), kBlocks, true) {
    options.path = "fake";
    options.staging_bytes = staging;
    options.open = OpenOn(disk);
    tier = Tier::Create(*device, cache, {.in_file = kBlocks}, options).value();
    Fill(1);
  }
  ~Rank() { device.reset(); }

  void Fill(uint64_t seed) const {
    base::Rng rng(seed);
    for (uint64_t i = 0; i < region->bytes; ++i)
      region->data[i] = static_cast<std::byte>(rng.Below(256));
  }
  std::vector<std::byte> Bytes(int32_t group, BlockId block) const {
    return BytesOf(cache, group, block);
  }
  // Moves, and what was lost of it.
  LostBlocks Move(const TierMoves& moves) {
    tier->BeginStep(moves);
    EXPECT_TRUE(tier->WaitUp(runtime::kForever));
    // No failure of a file is one of the device.
    EXPECT_TRUE(device->Synchronize(device->copy(device::CopyKind::kKvDown)).ok());
    EXPECT_TRUE(device->Synchronize(device->copy(device::CopyKind::kKvUp)).ok());
    EXPECT_TRUE(device->Synchronize(device->compute()).ok());
    return tier->store().TakeLost();
  }
  uint64_t OffsetOf(BlockId below) const {
    return static_cast<uint64_t>(below) * tier->store().block_bytes();
  }

  Disk disk;
  std::unique_ptr<runtime::Runtime> runtime;
  std::unique_ptr<device::Device> device;
  const device::Region* const region;
  Cache cache;
  std::unique_ptr<Tier> tier;
};

TierMoves Down(std::vector<TierMove> moves) { return {.down = std::move(moves), .up = {}}; }
TierMoves Up(std::vector<TierMove> moves) { return {.down = {}, .up = std::move(moves)}; }

TEST(FileStoreTest, BlocksComeBackThroughAnyStaging) {
  for (const uint64_t staging : {uint64_t{1}, uint64_t{40} << 10, base::kMiB}) {
    Rank rank(staging);
    EXPECT_EQ(rank.tier->store().block_bytes(), FileBlockBytes(Groups(), true));
    const auto first = rank.Bytes(0, 3), second = rank.Bytes(0, 7), windowed = rank.Bytes(1, 5);
    EXPECT_THAT(rank.Move(Down({{0, 3, 9}, {0, 7, 2}, {1, 5, 2}})).blocks, IsEmpty());
    rank.Fill(2);
    EXPECT_THAT(rank.Move(Up({{0, 1, 9}, {0, 0, 2}, {1, 11, 2}})).blocks, IsEmpty());
    EXPECT_EQ(rank.Bytes(0, 1), first);
    EXPECT_EQ(rank.Bytes(0, 0), second);
    EXPECT_EQ(rank.Bytes(1, 11), windowed);
    EXPECT_EQ(rank.tier->bytes_down(), rank.tier->bytes_up());
    EXPECT_EQ(rank.tier->store().bytes_written(), rank.tier->store().bytes_read());
  }
}

// Blocks side by side go in one request.
TEST(FileStoreTest, RequestsAreJoined) {
  Rank rank;
  rank.Move(Down({{0, 1, 5}, {1, 1, 5}, {0, 2, 4}, {1, 2, 4}, {0, 3, 8}, {1, 3, 8}}));
  const uint64_t block = rank.tier->store().block_bytes();
  EXPECT_THAT(rank.disk.request_bytes, UnorderedElementsAre(2 * block, block));
}

// A layer of some blocks, through staging that holds a few at a time or all.
TEST(FileStoreTest, LayersComeUpAloneAndAreChecked) {
  for (const uint64_t staging : {uint64_t{1}, base::kMiB}) {
    Rank rank(staging, {.streams = true});
    const auto part = static_cast<uint64_t>(rank.cache.view().groups[0].layout.LayerBytes());
    rank.Move(Down({{0, 3, 9}, {0, 7, 2}, {0, 1, 5}, {0, 2, 1}, {0, 4, 3}, {0, 6, 7}}));
    const std::vector<StreamedBlock> blocks = {{0, 9}, {1, 5}, {2, 2}, {4, 1}, {5, 3}, {6, 7}};
    std::vector<std::byte> slot(7 * part);
    const auto fetch = [&](int64_t layer) {
      device::Stream& up = rank.device->copy(device::CopyKind::kKvUp);
      rank.tier->store().UpLayer(up, {.blocks = blocks,
                                      .layer = layer,
                                      .slot = slot.data(),
                                      .part_bytes = part,
                                      .label = "l"});
      EXPECT_TRUE(rank.device->Synchronize(up).ok());
      return rank.tier->store().TakeLost().blocks;
    };
    for (const int64_t layer : {0, 1}) {
      EXPECT_THAT(fetch(layer), IsEmpty());
      for (const auto& [place, block] : {std::pair{0, 3}, {1, 1}, {2, 7}, {4, 2}, {5, 4}, {6, 6}}) {
        const std::vector<std::byte> all = rank.Bytes(0, block);
        EXPECT_EQ(std::memcmp(slot.data() + static_cast<uint64_t>(place) * part,
                              all.data() + static_cast<uint64_t>(layer) * part, part),
                  0)
            << layer << " " << place;
      }
    }
    rank.disk.bytes[rank.OffsetOf(2) + part + 3] ^= std::byte{1};
    EXPECT_THAT(fetch(0), IsEmpty());
    EXPECT_THAT(fetch(1), ElementsAre(2));
    rank.disk.unreadable = {rank.OffsetOf(9)};
    EXPECT_THAT(fetch(0), testing::Contains(9));
  }
}

TEST(FileStoreTest, AChecksumHoldsEachBitAndTheLength) {
  std::vector<std::byte> bytes(101);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 37);
  std::set<uint64_t> sums{Checksum(bytes)};
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    sums.insert(Checksum(bytes));
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  const std::vector<std::byte> zeros(101);
  for (size_t size = 0; size <= zeros.size(); ++size)
    sums.insert(Checksum(std::span(zeros).first(size)));
  EXPECT_EQ(sums.size(), 1 + 8 * bytes.size() + zeros.size() + 1);
}

TEST(FileStoreTest, WhatIsNotWhatWasWrittenIsLost) {
  Rank rank;
  EXPECT_THAT(rank.Move(Down({{0, 0, 0}, {0, 1, 4}, {0, 2, 8}})).blocks, IsEmpty());
  rank.disk.bytes[rank.OffsetOf(4) + 17] ^= std::byte{1};
  rank.disk.unreadable = {rank.OffsetOf(8)};
  const auto good = rank.Bytes(0, 0);
  const LostBlocks lost = rank.Move(Up({{0, 9, 0}, {0, 10, 4}, {0, 11, 8}}));
  EXPECT_THAT(lost.blocks, UnorderedElementsAre(4, 8));
  EXPECT_TRUE(lost.closed.ok());
  EXPECT_EQ(rank.Bytes(0, 9), good);
  // Nobody wrote it.
  EXPECT_THAT(rank.Move(Up({{0, 9, 3}})).blocks, ElementsAre(3));
}

TEST(FileStoreTest, AWriteThatFailsClosesTheFileAndWhatIsThereStaysReadable) {
  Rank rank;
  const auto kept = rank.Bytes(0, 0);
  EXPECT_TRUE(rank.Move(Down({{0, 0, 0}})).closed.ok());
  rank.disk.writes_left = 0;
  const LostBlocks lost = rank.Move(Down({{0, 1, 1}}));
  EXPECT_THAT(lost.blocks, ElementsAre(1));
  EXPECT_EQ(lost.closed.code(), kKvFileIo);
  rank.disk.writes_left = 100;
  EXPECT_THAT(rank.Move(Down({{0, 2, 2}})).blocks, ElementsAre(2));
  EXPECT_EQ(rank.disk.writes_left, 100);
  EXPECT_THAT(rank.Move(Up({{0, 5, 0}})).blocks, IsEmpty());
  EXPECT_EQ(rank.Bytes(0, 5), kept);
  EXPECT_THAT(rank.Move(Up({{0, 5, 1}})).blocks, ElementsAre(1));
}

// Random moves with faults: a block comes back as it was, or is said to be lost.
TEST(FileStoreTest, NoBlockComesBackAsAnother) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    Rank rank(48 << 10);
    base::Rng rng(seed);
    std::map<BlockId, std::vector<std::byte>> below;
    for (int step = 0; step < 40; ++step) {
      rank.Fill(seed * 1000 + static_cast<uint64_t>(step));
      std::vector<TierMove> down, up;
      for (BlockId id = 0; id < kBlocks; ++id) {
        if (rng.Below(4) != 0) continue;
        const auto block = static_cast<BlockId>(rng.Below(kBlocks));
        down.push_back({0, block, id});
        below[id] = rank.Bytes(0, block);
      }
      if (step == 30) rank.disk.writes_left = 1;
      const LostBlocks unwritten = rank.Move(Down(down));
      for (const BlockId id : unwritten.blocks) below.erase(id);
      const auto damaged = static_cast<BlockId>(rng.Below(kBlocks));
      const bool damages = below.contains(damaged) && rng.Below(3) == 0;
      if (damages) rank.disk.bytes[rank.OffsetOf(damaged) + rng.Below(1000)] ^= std::byte{4};
      BlockId above = 0;
      for (const auto& [id, bytes] : below) up.push_back({0, above++, id});
      const LostBlocks lost = rank.Move(Up(up));
      if (damages) {
        EXPECT_THAT(lost.blocks, ElementsAre(damaged));
        below.erase(damaged);
      } else {
        EXPECT_THAT(lost.blocks, IsEmpty());
      }
      for (const TierMove& move : up) {
        if (below.contains(move.below)) {
          EXPECT_EQ(rank.Bytes(0, move.device), below[move.below]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace forebay::kv

// Blocks and their digests go from one rank's cache to another's.
#include "kv/cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/units.h"
#include "kv/testing/groups.h"
#include "runtime/real/real_runtime.h"

namespace forebay::kv {
namespace {

constexpr int64_t kBlocks = 10;

// Of layers with windows the cache has a block less.
std::vector<KvGroup> UnequalGroups() {
  std::vector<KvGroup> groups = Groups();
  groups[1].most_blocks = kBlocks - 1;
  return groups;
}

struct Rank {
  Rank(runtime::Runtime& runtime, std::unique_ptr<fabric::Fabric> own)
      : fabric(std::move(own)),
        device(
            device::CreateCpuDevice(
                runtime, {.rank = fabric->rank(), .memory_bytes = 8 * base::kMiB, .num_workers = 1})
                .value()),
        region(
            device->arena().Allocate("kv", KvCacheBytes(UnequalGroups(), kBlocks, true)).value()),
        cache(*device, *region, UnequalGroups(), kBlocks, true) {
    for (uint64_t i = 0; i < region->bytes; ++i)
      region->data[i] = static_cast<std::byte>((i * 37 + i / 251 + fabric->rank() * 101) % 256);
    FB_CHECK(fabric->Publish(*region).ok(), "publish");
  }

  const std::unique_ptr<fabric::Fabric> fabric;
  const std::unique_ptr<device::Device> device;
  const device::Region* const region;
  Cache cache;
};

class CacheTest : public testing::Test {
 protected:
  CacheTest() : runtime_(runtime::CreateRealRuntime()) {
    for (auto& fabric : fabric::CreateLocalFabric(*runtime_, 2))
      ranks_.push_back(std::make_unique<Rank>(*runtime_, std::move(fabric)));
  }

  std::unique_ptr<runtime::Runtime> runtime_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

TEST_F(CacheTest, APullBringsBlocksAndDigestsAndNothingElse) {
  Rank &to = *ranks_[0], &from = *ranks_[1];
  const std::vector<std::byte> before(to.region->data, to.region->data + to.region->bytes);
  const std::vector<BlockId> theirs[] = {{7, 0, 3}, {5}}, mine[] = {{1, 2, 9}, {8}};
  const Cache::Move moves[] = {{theirs[0], mine[0]}, {theirs[1], mine[1]}};
  const auto groups = UnequalGroups();
  const KvShare mine_of[] = {{0, {0, 3}, groups, kBlocks}},
                theirs_of[] = {{1, {0, 3}, groups, kBlocks}};
  const std::vector<PullPart> parts = PullParts(mine_of, 0, theirs_of, true);
  EXPECT_EQ(parts.size(), 4u);  // two strips a group
  ASSERT_TRUE(to.cache.EnqueuePull(*to.fabric, parts, moves).ok());
  ASSERT_TRUE(to.cache.WaitPull(10'000'000'000).ok());

  std::vector<std::byte> want = before;
  uint64_t base = 0, copied = 0;
  const auto copy = [&](size_t group, uint64_t bytes) {
    for (size_t i = 0; i < mine[group].size(); ++i) {
      std::memcpy(&want[base + static_cast<uint64_t>(mine[group][i]) * bytes],
                  from.region->data + base + static_cast<uint64_t>(theirs[group][i]) * bytes,
                  bytes);
      copied += bytes;
    }
    base += static_cast<uint64_t>(groups[group].BlocksOf(kBlocks)) * bytes;
  };
  for (size_t group = 0; group < 2; ++group)
    copy(group, static_cast<uint64_t>(groups[group].layout.block_stride));
  for (size_t group = 0; group < 2; ++group) copy(group, 32 * sizeof(uint64_t));
  EXPECT_EQ(std::memcmp(to.region->data, want.data(), want.size()), 0);
  EXPECT_EQ(to.cache.pull_bytes(), copied);
  EXPECT_EQ(to.cache.bytes_pulled(), copied);
  // A sequence has the digests that it had at the other rank.
  EXPECT_EQ(to.cache.DigestOf(0, mine[0], 5, 90), from.cache.DigestOf(0, theirs[0], 5, 90));
  EXPECT_NE(to.cache.DigestOf(0, mine[0], 5, 90), from.cache.DigestOf(0, theirs[0], 5, 91));
}

}  // namespace
}  // namespace forebay::kv

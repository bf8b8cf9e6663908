// Between replicas that are cut in any way each rank gets every head of every layer that it holds,
// once, and each summand of a digest goes to one rank.
#include "kv/pull_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace forebay::kv {
namespace {

constexpr int64_t kLayers = 6, kHeads = 4, kPeerBlocks = 5;

// Layers 0, 2 and 4 see all, the others a window; 4 KV heads of 16.
std::vector<KvLayerPlan> Model(const base::Part& heads) {
  const kernels::KvLayout layout{tensor::DType::kBF16, static_cast<int32_t>(heads.size()), 16, 16};
  std::vector<KvLayerPlan> layers;
  for (int64_t i = 0; i < kLayers; ++i) {
    layers.push_back({{.token_bytes = 256, .reach = i % 2 == 0 ? base::Reach() : base::Reach(64)},
                      layout,
                      heads});
  }
  return layers;
}

// A replica of pp x tp ranks; where tp is more than the heads, neighbours share one.
struct Replica {
  Replica(int pp, int tp, int first_peer) {
    groups.reserve(static_cast<size_t>(pp * tp));
    for (int stage = 0; stage < pp; ++stage) {
      for (int rank = 0; rank < tp; ++rank) {
        const int64_t each = std::max<int64_t>(1, kHeads / tp);
        const base::Part layers{kLayers * stage / pp, kLayers * (stage + 1) / pp};
        const base::Part heads{kHeads * rank / tp, kHeads * rank / tp + each};
        groups.push_back(PlanKvGroups(Model(heads), layers));
        shares.push_back({first_peer + stage * tp + rank, layers, groups.back()});
      }
    }
  }

  std::vector<std::vector<KvGroup>> groups;
  std::vector<KvShare> shares;
};

// What a block of every group of a rank holds: each head of each layer under a number of its own.
std::vector<uint8_t> Memory(const KvShare& share, int64_t blocks) {
  std::vector<uint8_t> memory;
  for (const KvGroup& group : share.groups) {
    for (int64_t block = 0; block < blocks; ++block) {
      for (const int32_t local : group.layers) {
        for (int64_t head = group.heads.begin; head < group.heads.end; ++head) {
          const int64_t number = 1 + (share.layers.begin + local) * kHeads + head + 40 * block;
          memory.insert(memory.end(), static_cast<size_t>(group.layout.HeadBytes()),
                        static_cast<uint8_t>(number));
        }
      }
    }
  }
  return memory;
}

TEST(PullParts, EveryRankGetsWhatItHoldsOnce) {
  const std::pair<int, int> cuts[] = {{1, 1}, {1, 2}, {1, 4}, {1, 8},
                                      {2, 1}, {2, 2}, {3, 1}, {3, 4}};
  for (const auto& [from_pp, from_tp] : cuts) {
    for (const auto& [to_pp, to_tp] : cuts) {
      SCOPED_TRACE(fmt::format("{}x{} to {}x{}", from_pp, from_tp, to_pp, to_tp));
      const Replica from(from_pp, from_tp, 0), to(to_pp, to_tp, 100);
      std::vector<int> digests(from.shares.size(), 0);
      for (size_t rank = 0; rank < to.shares.size(); ++rank) {
        const KvShare& share = to.shares[rank];
        const std::vector<PullPart> parts = PullParts(to.shares, rank, from.shares, true);
        std::vector<uint8_t> got;  // one block of each group, from block 3
        std::vector<uint64_t> begins;
        for (const KvGroup& group : share.groups) {
          begins.push_back(got.size());
          got.resize(got.size() + static_cast<size_t>(group.layout.block_stride));
        }
        uint64_t bytes = 0;
        for (const PullPart& part : parts) {
          const auto peer = static_cast<size_t>(part.peer);
          if (part.digests) {
            ++digests[peer];
            EXPECT_FALSE(share.groups[part.group].layers.empty());
            continue;
          }
          const std::vector<uint8_t> theirs = Memory(from.shares[peer], kPeerBlocks);
          const uint64_t at = part.before * kPeerBlocks + 3 * part.stride + part.from;
          ASSERT_LE(at + part.bytes, theirs.size());
          std::memcpy(&got[begins[part.group] + part.to], &theirs[at], part.bytes);
          bytes += part.bytes;
        }
        std::vector<uint8_t> expected = Memory(share, 1);
        for (uint8_t& byte : expected) byte = static_cast<uint8_t>(byte + 40 * 3);
        EXPECT_EQ(got, expected) << "rank " << rank;
        EXPECT_EQ(bytes, got.size());
      }
      // One strip a group of which the giver has layers.
      for (size_t rank = 0; rank < from.shares.size(); ++rank) {
        EXPECT_EQ(digests[rank],
                  std::ranges::count_if(from.shares[rank].groups, [](const KvGroup& group) {
                    return !group.layers.empty();
                  }));
      }
    }
  }
}

// As whole blocks, each rank from its like.
TEST(PullParts, LikeRanksGiveWholeBlocks) {
  const Replica from(2, 4, 0), to(2, 4, 8);
  for (size_t rank = 0; rank < to.shares.size(); ++rank) {
    const std::vector<PullPart> parts = PullParts(to.shares, rank, from.shares, true);
    ASSERT_EQ(parts.size(), 4u);  // two groups, K and V and digests
    for (const PullPart& part : parts) EXPECT_EQ(part.peer, static_cast<int>(rank));
  }
  EXPECT_EQ(PullParts(to.shares, 0, from.shares, false).size(), 2u);
}

}  // namespace
}  // namespace forebay::kv

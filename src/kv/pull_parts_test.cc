// Between replicas that are cut in any way each rank gets every head of every layer that it holds,
// once, and each summand of a digest goes to one rank.
#include "kv/pull_parts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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
        const base::Part layers{kLayers * stage / pp, kLayers * (stage + 1) / pp};
        const int64_t first = kHeads * rank / tp;
        const base::Part heads{first, std::max(first + 1, kHeads * (rank + 1) / tp)};
        groups.push_back(PlanKvGroups(Model(heads), layers));
        groups.back()[1].most_blocks = 4;
        shares.push_back({first_peer + stage * tp + rank, layers, groups.back(), kPeerBlocks});
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
    for (int64_t block = 0; block < group.BlocksOf(blocks); ++block) {
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
          const uint64_t at = part.begin + 3 * part.stride + part.from;
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

// Every layer keeps a state, too, over 8 value heads of 4 channels and 4 key heads of 8.
struct ReplicaWithStates : Replica {
  ReplicaWithStates(int pp, int tp, int first_peer) : Replica(pp, tp, first_peer) {
    for (size_t i = 0; i < shares.size(); ++i) {
      const base::Part values = base::EvenPart(8, tp, static_cast<int64_t>(i) % tp),
                       keys{values.begin / 2, (values.end + 1) / 2};
      StateSpec spec{.matrix_bytes = static_cast<uint64_t>(values.size()) * 48,
                     .heads = static_cast<int32_t>(values.size()),
                     .first_head = static_cast<int32_t>(values.begin),
                     .channels = {base::Part{8 * keys.begin, 8 * keys.end},
                                  {32 + 8 * keys.begin, 32 + 8 * keys.end},
                                  {64 + 4 * values.begin, 64 + 4 * values.end}}};
      spec.tail_bytes = static_cast<uint64_t>(16 * keys.size() + 4 * values.size()) * 3 * 4;
      states[i].assign(static_cast<size_t>(shares[i].layers.size()), spec);
      shares[i].states = states[i];
    }
  }

  std::array<std::vector<StateSpec>, 16> states;
};

// A place of a rank: each channel at each tap and each word of a matrix has a number of its own.
std::vector<std::byte> Place(const KvShare& share, uint32_t place) {
  std::vector<std::byte> bytes(PlaceBytes(share.states));
  for (size_t i = 0; i < share.states.size(); ++i) {
    const StateSpec& spec = share.states[i];
    const auto layer = static_cast<uint32_t>(share.layers.begin) + static_cast<uint32_t>(i);
    std::byte* at = bytes.data() + PlaceBytes(share.states.first(i));
    const auto put = [&](uint32_t number) {
      number += 10'000 * (10 * layer + place);
      std::memcpy(at, &number, sizeof number);
      at += sizeof number;
    };
    for (uint32_t tap = 0; tap < 3; ++tap) {
      for (const base::Part& part : spec.channels) {
        for (int64_t channel = part.begin; channel < part.end; ++channel)
          put(1 + 100 * tap + static_cast<uint32_t>(channel));
      }
    }
    at = bytes.data() + PlaceBytes(share.states.first(i)) + MatrixOffset(spec);
    for (int32_t head = 0; head < spec.heads; ++head) {
      for (uint32_t word = 0; word < 12; ++word)
        put(1000 + 100 * static_cast<uint32_t>(spec.first_head + head) + word);
    }
  }
  return bytes;
}

TEST(PullParts, EveryRankGetsItsStatesOnce) {
  const std::pair<int, int> cuts[] = {{1, 1}, {1, 2}, {1, 3}, {1, 8}, {2, 1}, {2, 4}};
  for (const auto& [from_pp, from_tp] : cuts) {
    for (const auto& [to_pp, to_tp] : cuts) {
      SCOPED_TRACE(fmt::format("{}x{} to {}x{}", from_pp, from_tp, to_pp, to_tp));
      const ReplicaWithStates from(from_pp, from_tp, 0), to(to_pp, to_tp, 100);
      for (size_t rank = 0; rank < to.shares.size(); ++rank) {
        const KvShare& share = to.shares[rank];
        std::vector<std::byte> got(PlaceBytes(share.states));
        uint64_t bytes = 0, expected = 0;
        for (const PullPart& part : PullParts(to.shares, rank, from.shares, true)) {
          if (part.group < std::ssize(share.groups)) continue;
          const KvShare& giver = from.shares[static_cast<size_t>(part.peer)];
          EXPECT_FALSE(part.digests);
          EXPECT_EQ(part.begin, 0u);
          EXPECT_EQ(part.stride, PlaceBytes(giver.states));
          ASSERT_LE(part.from + part.bytes, part.stride);
          ASSERT_LE(part.to + part.bytes, got.size());
          std::memcpy(&got[part.to], &Place(giver, 3)[part.from], part.bytes);
          bytes += part.bytes;
        }
        EXPECT_EQ(got, Place(share, 3)) << "rank " << rank;
        for (const StateSpec& spec : share.states) expected += spec.bytes();
        EXPECT_EQ(bytes, expected);
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

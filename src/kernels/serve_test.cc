// Who computes experts that several ranks hold, by a table and by what it promises; and that a
// round with data and one without choose alike.
#include "kernels/serve.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/testing/immediate_stream.h"

namespace forebay::kernels {
namespace {

using ::testing::ElementsAreArray;

std::vector<int> Owners(const std::vector<HolderMask>& holders, int num_ranks,
                        const std::vector<int32_t>& counts) {
  std::vector<uint8_t> owners(holders.size() * static_cast<size_t>(num_ranks), 99);
  ChooseOwners(holders, num_ranks, counts.empty() ? nullptr : counts.data(), owners.data());
  return {owners.begin(), owners.end()};
}

TEST(ChooseOwners, Table) {
  struct Case {
    const char* what;
    int num_ranks;
    std::vector<HolderMask> holders;  // [experts]
    std::vector<int32_t> counts;      // [ranks, experts]
    std::vector<int> owners;          // [ranks, experts]
  };
  const Case cases[] = {
      {"one holder each", 2, {0b01, 0b10}, {5, 5, 5, 5}, {0, 1, 0, 1}},
      {"held at home, however much there is to do", 2, {0b11}, {1000, 1}, {0, 1}},
      {"no rows are known: the nearest, of two the lower",
       5,
       {0b00101, 0b11000},
       {},
       {0, 3, 0, 3, 2, 3, 2, 3, 2, 4}},
      {"rank 3 is nearest to 2, which has 4 rows of its own; 1 has none",
       4,
       {0b0001, 0b0110, 0b0100},
       {0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 3, 0},
       {0, 1, 2, 0, 1, 2, 0, 2, 2, 0, 1, 2}},
      {"what is given adds up: expert 0 goes to 1, which is nearest, so 1 goes to 0, and 2 to 1",
       3,
       {0b011, 0b011, 0b011},
       {0, 0, 0, 0, 0, 0, 2, 3, 4},
       {0, 0, 0, 1, 1, 1, 1, 0, 1}},
      {"what only one can compute counts before what comes earlier",
       3,
       {0b011, 0b010},
       {0, 0, 0, 0, 1, 6},
       {0, 1, 1, 1, 0, 1}},
      {"two parts: a rank's own member of the part, or another one of it",
       2,
       {0b0011, 0b0100, 0b1100},
       {},
       {0, 2, 2, 1, 2, 3}},
      {"two parts: 4 is nearest to what is 5 at home, and has 5 rows of its own",
       3,
       {0b000'001, 0b011'000},
       {9, 1, 0, 5, 0, 2},
       {0, 3, 0, 4, 0, 3}},
  };
  for (const Case& c : cases)
    EXPECT_THAT(Owners(c.holders, c.num_ranks, c.counts), ElementsAreArray(c.owners)) << c.what;
}

// Stretches of experts as DWDP lays them: rank r holds `size` from r x stride on.
std::vector<HolderMask> Stretches(int num_ranks, int size, int stride) {
  std::vector<HolderMask> holders(static_cast<size_t>(size + (num_ranks - 1) * stride));
  for (int rank = 0; rank < num_ranks; ++rank) {
    for (int i = 0; i < size; ++i)
      holders[static_cast<size_t>(rank * stride + i)] |= HolderMask{1} << rank;
  }
  return holders;
}

int64_t Busiest(const std::vector<int>& owners, const std::vector<int32_t>& counts) {
  std::vector<int64_t> rows(kMaxServed, 0);
  for (size_t i = 0; i < owners.size(); ++i) rows[static_cast<size_t>(owners[i])] += counts[i];
  return *std::ranges::max_element(rows);
}

TEST(ChooseOwners, HoldersAloneComputeAndTheBusiestHasLess) {
  std::mt19937_64 rng(7);
  int64_t chosen = 0, nearest = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const int num_ranks = 4, size = trial % 2 == 0 ? 94 : 67;
    const std::vector<HolderMask> holders = Stretches(num_ranks, size, trial % 2 == 0 ? 54 : 63);
    std::vector<int32_t> counts(holders.size() * num_ranks);
    for (int32_t& count : counts) {
      const double uniform = static_cast<double>(rng() % 10'000) / 10'000;
      count = static_cast<int32_t>(2 / (uniform * uniform + .01));
    }
    const std::vector<int> owners = Owners(holders, num_ranks, counts);
    for (size_t at = 0; at < owners.size(); ++at) {
      const int rank = static_cast<int>(at / holders.size());
      const HolderMask mask = holders[at % holders.size()];
      EXPECT_TRUE(mask >> owners[at] & 1);
      if ((mask >> rank & 1) != 0) {
        EXPECT_EQ(owners[at], rank);
      }
    }
    chosen += Busiest(owners, counts);
    nearest += Busiest(Owners(holders, num_ranks, {}), counts);
  }
  EXPECT_LT(chosen, nearest);
}

// Says what was counted in data.
class Counted final : public RoutingSource {
 public:
  Counted(std::vector<int32_t> counts, int32_t num_experts)
      : counts_(std::move(counts)), num_experts_(num_experts) {}
  void Count(const Draw& draw, std::span<int32_t> counts) const override {
    std::copy_n(counts_.begin() + static_cast<int64_t>(draw.rank) * num_experts_, num_experts_,
                counts.begin());
  }

 private:
  const std::vector<int32_t> counts_;
  const int32_t num_experts_;
};

TEST(GroupServed, ChoosesAlikeWithDataAndWithout) {
  constexpr int kRanks = 4, kTop = 3;
  const std::vector<HolderMask> holders = Stretches(kRanks, 5, 1);
  const auto num_experts = static_cast<int32_t>(holders.size());
  const size_t pairs = holders.size() * kRanks;
  std::mt19937_64 rng(3);
  testing::ImmediateStream stream(1, 1 << 12);
  int64_t moved = 0;
  for (int trial = 0; trial < 50; ++trial) {
    int32_t first_row[kRanks + 1] = {};
    const uint64_t steps[kRanks] = {};
    for (int rank = 0; rank < kRanks; ++rank)
      first_row[rank + 1] = first_row[rank] + static_cast<int32_t>(rng() % 9);
    ServedRanks ranks{.num_ranks = kRanks,
                      .num_experts = num_experts,
                      .experts_per_token = kTop,
                      .first_row = first_row,
                      .step = steps};
    const auto rows = static_cast<size_t>(ranks.first_row[kRanks]);
    if (rows == 0) continue;
    std::vector<int32_t> experts(rows * kTop), drawn(pairs);
    for (int rank = 0; rank < kRanks; ++rank) {
      for (int32_t row = ranks.first_row[rank]; row < ranks.first_row[rank + 1]; ++row) {
        const auto first = static_cast<int32_t>(std::min(rng() % 8, rng() % 8));
        for (int32_t slot = 0; slot < kTop; ++slot) {
          const int32_t expert = (first + slot) % num_experts;
          experts[static_cast<size_t>(row * kTop + slot)] = expert;
          ++drawn[static_cast<size_t>(rank * num_experts + expert)];
        }
      }
    }
    const Counted source(drawn, num_experts);
    std::vector<int32_t> computed(rows * kTop, 0);
    for (ranks.me = 0; ranks.me < kRanks; ++ranks.me) {
      ranks.member = ranks.me;
      std::vector<uint8_t> owners(pairs);
      std::vector<int32_t> counts(pairs), source_rows(rows * kTop), positions(rows * kTop),
          offsets(holders.size() + 1), simulated(holders.size() + 1);
      ranks.owners = owners.data();
      GroupServedArgs args{.ranks = ranks,
                           .holders = holders.data(),
                           .owners = owners.data(),
                           .counts = counts.data(),
                           .experts = experts.data(),
                           .offsets = offsets.data(),
                           .source = source_rows.data(),
                           .positions = positions.data()};
      GroupServed(stream, args);
      EXPECT_EQ(counts, drawn);
      EXPECT_THAT(Owners(holders, kRanks, drawn), ElementsAreArray(owners));
      args.routing = &source;
      args.offsets = simulated.data();
      GroupServed(stream, args);
      EXPECT_EQ(simulated, offsets);
      for (size_t slot = 0; slot < computed.size(); ++slot) computed[slot] += positions[slot] >= 0;
      // What comes from each rank is what would be counted without data.
      for (int rank = 0; rank < kRanks; ++rank) {
        const ServedCount count = CountServed(ranks, rank, drawn.data())[ranks.me];
        int64_t slots = 0;
        for (int64_t slot = ranks.first_row[rank] * kTop; slot < ranks.first_row[rank + 1] * kTop;
             ++slot)
          slots += positions[static_cast<size_t>(slot)] >= 0;
        EXPECT_EQ(count.slots, slots);
      }
      moved += Owners(holders, kRanks, {}) != std::vector<int>(owners.begin(), owners.end());
    }
    EXPECT_THAT(computed, ::testing::Each(1));
  }
  EXPECT_GT(moved, 0);
}

}  // namespace
}  // namespace forebay::kernels

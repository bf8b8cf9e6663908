#include "kernels/cpu/attention_items.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "kernels/testing/team.h"

namespace forebay::kernels {
namespace {

struct Rows {
  int32_t first, count;  // positions
};

struct Problem {
  Problem(int32_t heads, int32_t kv_heads, const std::vector<Rows>& sequences, int32_t window = 0) {
    for (const Rows& rows : sequences) {
      this->sequences.push_back({args.batch.num_rows, rows.count, rows.first, 0});
      args.batch.num_rows += rows.count;
    }
    args.batch.num_sequences = static_cast<int32_t>(sequences.size());
    args.batch.sequences = this->sequences.data();
    args.layout = {tensor::DType::kBF16, kv_heads, 64, 0};
    args.heads = heads;
    args.reach = window;
  }

  std::vector<AttentionItem> Items(int workers, int64_t slots,
                                   ItemWalk::Kind kind = ItemWalk::kItems) const {
    std::vector<AttentionItem> items;
    for (const Units units : {Units::kOneRow, Units::kSeveralRows}) {
      ItemWalk walk(args, workers, slots, units, kind);
      AttentionItem item;
      for (int64_t ticket = 0; walk.Seek(ticket, item); ++ticket) {
        EXPECT_EQ(item.num_rows == 1, units == Units::kOneRow);
        items.push_back(item);
      }
    }
    return items;
  }

  AttentionArgs args;
  std::vector<SequenceRows> sequences;
};

const Problem kProblems[] = {{16, 8, {{32767, 1}}},
                             {16, 1, {{32767, 1}}},
                             {9, 3, {{20000, 1}, {100, 1}, {5000, 20}}},
                             {71, 1, {{5000, 3}, {0, 40}}},
                             {4, 2, {{9000, 1}, {3000, 33}}, 4000},
                             {20, 5, {{1100, 1}, {2040, 40}, {0, 1}}}};

// Each query head of each row meets each block that it may see in one item; a cut unit's parts have
// slots of their own, and one merge item names all of them.
TEST(AttentionItemsTest, CoverAllOnce) {
  constexpr size_t kMostBlocks = 32768 / kBlockTokens;
  for (const Problem& problem : kProblems) {
    const auto at = [&](int64_t row, int32_t head, int32_t block) {
      return static_cast<size_t>(row * problem.args.heads + head) * kMostBlocks +
             static_cast<size_t>(block);
    };
    const size_t all = at(problem.args.batch.num_rows, 0, 0);
    for (const int workers : {1, 2, 3, 16}) {
      for (const int64_t slots : {0, 10, 40, 100000}) {
        std::vector<int> seen(all);
        std::map<int32_t, int> slot_uses;
        const std::vector<AttentionItem> items = problem.Items(workers, slots);
        for (const AttentionItem& item : items) {
          EXPECT_LE(item.num_rows * item.num_heads, kMaxLines);
          ASSERT_LT(item.first_block, item.end_block);
          for (int32_t block = item.first_block; block < item.end_block; ++block) {
            for (int row = 0; row < item.num_rows; ++row) {
              for (int head = 0; head < item.num_heads; ++head)
                ++seen[at(item.row + row, item.head + head, block)];
            }
          }
          if (item.slot < 0) continue;
          for (int32_t part = item.first_block / kPartBlocks;
               part <= (item.end_block - 1) / kPartBlocks; ++part) {
            const int32_t slot = item.slot + part - item.first_block / kPartBlocks;
            EXPECT_LT(slot, slots);
            ++slot_uses[slot];
          }
        }
        for (const SequenceRows& sequence : problem.sequences) {
          for (int32_t row = 0; row < sequence.num_rows; ++row) {
            const int32_t position = sequence.first_position + row,
                          window = problem.args.reach.window;
            for (int32_t block = window ? std::max(0, position - window + 1) / kBlockTokens : 0;
                 block <= position / kBlockTokens; ++block) {
              for (int32_t head = 0; head < problem.args.heads; ++head) {
                ASSERT_EQ(seen[at(sequence.first_row + row, head, block)], 1)
                    << row << " " << head << " " << block;
              }
            }
          }
        }
        for (const AttentionItem& item : problem.Items(workers, slots, ItemWalk::kMerges)) {
          ASSERT_GE(item.slot, 0);
          for (int32_t part = item.first_block / kPartBlocks;
               part <= (item.end_block - 1) / kPartBlocks; ++part) {
            ++slot_uses[item.slot + part - item.first_block / kPartBlocks];
          }
        }
        for (const auto& [slot, uses] : slot_uses) EXPECT_EQ(uses, 2) << slot;
      }
    }
  }
}

// Blocks of the busiest worker beside the mean, if each takes the next item when it is done with
// one.
double Imbalance(const Problem& problem, int workers) {
  std::vector<double> load(static_cast<size_t>(workers));
  double total = 0;
  for (const AttentionItem& item : problem.Items(workers, 1000)) {
    const double cost = static_cast<double>(item.end_block - item.first_block) * item.num_kv_heads;
    *std::ranges::min_element(load) += cost;
    total += cost;
  }
  return *std::ranges::max_element(load) * workers / total;
}

TEST(AttentionItemsTest, ALoneLongSequenceIsShared) {
  for (const int32_t kv_heads : {1, 3, 8}) {
    for (const int workers : {2, 4, 8}) {
      EXPECT_LT(Imbalance({kv_heads * 2, kv_heads, {{32767, 1}}}, workers), 1.06)
          << kv_heads << " " << workers;
      EXPECT_LT(Imbalance({kv_heads * 2, kv_heads, {{32767, 1}, {300, 1}, {4000, 1}}}, workers),
                1.15)
          << kv_heads << " " << workers;
    }
  }
}

TEST(AttentionItemsTest, PlentyOfItemsAreNotCut) {
  std::vector<Rows> decode(64, Rows{5000, 1});
  for (const Problem& problem :
       {Problem(16, 8, decode), Problem(9, 3, decode), Problem(8, 1, {{32000, 512}})}) {
    EXPECT_TRUE(problem.Items(2, 1000, ItemWalk::kMerges).empty());
  }
  EXPECT_EQ(Problem(16, 8, decode).Items(2, 1000).size(), 64u);  // all KV heads of a sequence
}

// Each item is attended to once, by some worker; between rows of a prompt and a waiting row the
// worker goes on with the prompt until what lies ahead is read.
TEST(AttentionItemsTest, RowsOfPromptsComeWhileTheKvOfAWaitingRowIsRead) {
  static std::vector<AttentionItem> attended;
  static std::vector<int64_t> left;
  static int64_t pieces_an_item;
  Problem problem(9, 3, {{191, 1}, {250, 60}, {100, 1}, {400, 1}, {95, 1}});
  problem.args.layout.value_dim = 64;
  for (const int64_t pieces : {0, 4, 1000}) {
    attended.clear(), left.clear();
    pieces_an_item = pieces;
    const AttentionFns functions = {
        [](const AttentionArgs&, const AttentionItem& item, const AttentionItem*, KvAhead& ahead,
           const PartSlots&, std::byte*) {
          attended.push_back(item);
          left.push_back(ahead.left);
          if (item.num_rows > 1) ahead.left = std::max<int64_t>(0, ahead.left - pieces_an_item);
        },
        nullptr};
    testing::Team team(1);
    team.Run([&](const device::WorkerContext& context) {
      RunAttention(problem.args, context, functions);
    });
    ASSERT_EQ(attended.size(), problem.Items(1, 0).size());
    int64_t ahead = 0, several = 0;
    for (size_t i = 0; i < attended.size(); ++i) {
      if (attended[i].num_rows > 1) {
        ++several;
        ahead = std::max<int64_t>(0, left[i] - pieces);
      } else {
        EXPECT_TRUE(ahead == 0 || several == 18) << "item " << i << ", " << pieces << " pieces";
        ahead = left[i];
      }
    }
    EXPECT_EQ(several, 18);  // units of 10 rows, and three KV heads
    EXPECT_EQ(attended[0].num_rows > 1, true);
    const AttentionItem costliest = problem.Items(1, 0)[0];
    EXPECT_EQ(left[0], 13 * 2 * costliest.num_kv_heads);  // blocks of a K and a V a head
  }
}

TEST(AttentionItemsTest, CutsOfOneUnit) {
  const auto cut = [](UnitShape unit, int64_t wanted, int64_t slots) {
    const UnitCut cut = CutUnit(unit, wanted, slots);
    return std::pair(cut.kv_step, cut.spans);
  };
  EXPECT_EQ(cut({8, 8, 1, 32}, 1, 1000), std::pair(8, 1));
  EXPECT_EQ(cut({8, 8, 1, 32}, 2, 1000), std::pair(4, 1));
  EXPECT_EQ(cut({8, 8, 1, 32}, 32, 1000), std::pair(4, 16));
  EXPECT_EQ(cut({8, 8, 1, 4}, 32, 1000), std::pair(1, 4));
  EXPECT_EQ(cut({8, 8, 1, 4}, 32, 16), std::pair(2, 4));  // slots for no more
  EXPECT_EQ(cut({8, 8, 1, 32}, 32, 63), std::pair(1, 1));
  EXPECT_EQ(cut({1, 1, 1, 32}, 32, 32), std::pair(1, 32));
  EXPECT_EQ(cut({3, 1, 1, 5}, 8, 15), std::pair(1, 3));
  EXPECT_EQ(cut({1, 1, 3, 10}, 4, 1000), std::pair(1, 2));
}

}  // namespace
}  // namespace forebay::kernels

#include "model/ulysses.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace forebay::model {
namespace {

using tensor::DType;

ModelConfig UlyssesConfig(int64_t heads, int64_t kv_heads, int64_t head_dim) {
  ModelConfig config;
  config.vocab_size = 5000;
  config.num_layers = 1;
  config.num_heads = heads;
  config.num_kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.hidden_size = heads * head_dim;
  config.intermediate_size = 28672;
  return config;
}

Shard ShardOfBlock(const ModelConfig& config, const Degrees& layout, int block) {
  return ShardOf(config, {.tp = layout.tp,
                          .tp_rank = layout.TpIndex(block),
                          .sp = layout.sp,
                          .sp_rank = layout.SpIndex(block)});
}

// Bytes that ranks read from others in the two all-to-alls of a layer.
uint64_t WireBytes(const ModelConfig& config, const Degrees& layout, int64_t rows) {
  uint64_t bytes = 0;
  for (int block = 0; block < layout.ranks(); ++block) {
    const Shard shard = ShardOfBlock(config, layout, block);
    const int index = layout.SpIndex(block);
    const UlyssesPlan plan(shard, shard, config.head_dim, DType::kBF16, rows, index);
    for (int i = 0; i < layout.sp; ++i) {
      if (i == index) continue;
      const fabric::GatherBlock &forth = plan.forth()[static_cast<size_t>(i)],
                                &back = plan.back()[static_cast<size_t>(i)];
      bytes += static_cast<uint64_t>(forth.rows) * (forth.bytes + plan.kv_row_bytes());
      bytes += static_cast<uint64_t>(back.rows) * back.bytes;
    }
  }
  return bytes;
}

// n (s - 1) / s (h + 2 k R) D a forth and n (s - 1) / s h D a back, R copies of a KV head.
TEST(Ulysses, BytesAreTheClosedForm) {
  const ModelConfig llama_70b = UlyssesConfig(64, 8, 128);
  for (const Degrees& layout : {Degrees{8, 1}, {4, 2}, {2, 4}, {4, 1}, {2, 1}}) {
    const int64_t n = 32 * layout.sp, copies = std::max(1, layout.ranks() / 8);
    const int64_t want = n * (layout.sp - 1) / layout.sp * (2 * 64 + 2 * 8 * copies) * 128 * 2;
    EXPECT_EQ(WireBytes(llama_70b, layout, n), static_cast<uint64_t>(want)) << layout.sp;
  }
  // A row and layer of it.
  EXPECT_EQ(WireBytes(llama_70b, {8, 1}, 800) / 800, 32'256u);
  EXPECT_EQ(WireBytes(llama_70b, {4, 2}, 800) / 800, 27'648u);
  // Fewer KV heads than ranks: each reader takes its copy in the same meeting.
  EXPECT_EQ(WireBytes(UlyssesConfig(32, 4, 128), {8, 1}, 80),
            uint64_t{80} * 7 / 8 * (2 * 32 + 2 * 4 * 2) * 128 * 2);
}

// Whether ranks that take `forth` (or, planted, `back`) for q end up with all rows of their heads:
// rank i wrote where its row and head belong.
bool TakesAllRows(const ModelConfig& config, const Degrees& layout, int64_t n, bool swapped) {
  for (int reader = 0; reader < layout.sp; ++reader) {
    const Shard shard = ShardOfBlock(config, layout, reader);
    const UlyssesPlan plan(shard, shard, config.head_dim, DType::kBF16, n, reader);
    const std::span<const fabric::GatherBlock> blocks = swapped ? plan.back() : plan.forth();
    int64_t rows = 0;
    for (int i = 0; i < layout.sp; ++i) {
      const fabric::GatherBlock& block = blocks[static_cast<size_t>(i)];
      const Part theirs = RowsOf(n, layout, i);
      if (block.row != theirs.begin || block.rows != theirs.size()) return false;
      if (block.bytes != static_cast<uint64_t>(shard.own_heads.size() * config.head_dim) * 2)
        return false;
      rows += block.rows;
    }
    if (rows != n) return false;
  }
  return true;
}

// The way back in place of the way forth: rows and heads of an all-to-all's arguments swapped.
TEST(Ulysses, SwappedArgumentsAreSeen) {
  for (const int64_t n : {2, 5, 9}) {
    EXPECT_TRUE(TakesAllRows(UlyssesConfig(8, 2, 16), {.sp = 4, .tp = 1}, n, false)) << n;
    EXPECT_FALSE(TakesAllRows(UlyssesConfig(8, 2, 16), {.sp = 4, .tp = 1}, n, true)) << n;
  }
}

// A value that no other (row, head) of q, k or v has; `kind` says which of these.
uint32_t Mark(int kind, int64_t row, int64_t head) {
  return static_cast<uint32_t>(kind * 1'000'000 + row * 1'000 + head);
}

// Staging is written and read by plain loops: every rank ends up with all rows of its own heads,
// and then with all heads of its own rows.
TEST(Ulysses, EveryHeadMeetsEveryRow) {
  struct Case {
    int64_t heads, kv_heads;
    Degrees layout;
  };
  int checked = 0;
  for (const Case& c : {Case{6, 6, {3, 2}}, Case{8, 2, {4, 1}}, Case{8, 2, {8, 1}},
                        Case{8, 2, {2, 2}}, Case{32, 4, {8, 1}}, Case{40, 8, {4, 2}},
                        Case{9, 3, {3, 1}}, Case{14, 2, {2, 1}}, Case{14, 2, {4, 1}}}) {
    const ModelConfig config =
        UlyssesConfig(c.heads, c.kv_heads, 2);  // an element of two bf16: a mark
    const Degrees& layout = c.layout;
    ASSERT_TRUE(CheckCut(config, layout, 1).ok());
    for (const int64_t n : {1, 2, layout.sp - 1, layout.sp, layout.sp + 1, 9}) {
      if (n == 0) continue;
      std::vector<std::vector<uint32_t>> staging(static_cast<size_t>(layout.ranks()));
      const auto plan_of = [&](const Shard& shard, int block) {
        return UlyssesPlan(shard, shard, 2, DType::kBF16, n, layout.SpIndex(block));
      };
      for (int block = 0; block < layout.ranks(); ++block) {
        const Shard shard = ShardOfBlock(config, layout, block);
        const UlyssesPlan plan = plan_of(shard, block);
        std::vector<uint32_t>& mine = staging[static_cast<size_t>(block)];
        mine.resize(plan.forth_bytes() / 4);
        const Part own = RowsOf(n, layout, layout.SpIndex(block));
        for (int reader = 0; reader < layout.sp; ++reader) {
          const auto& [heads, kv] = shard.run_heads[static_cast<size_t>(reader)];
          size_t at = plan.StagingOf(reader) / 4;
          for (int64_t row = own.begin; row < own.end; ++row) {
            for (int64_t h = heads.begin; h < heads.end; ++h) mine[at++] = Mark(1, row, h);
          }
          for (int64_t row = own.begin; row < own.end; ++row) {
            for (const int kind : {2, 3}) {
              for (int64_t h = kv.begin; h < kv.end; ++h) mine[at++] = Mark(kind, row, h);
            }
          }
        }
      }
      for (int block = 0; block < layout.ranks(); ++block) {
        const Shard shard = ShardOfBlock(config, layout, block);
        const UlyssesPlan plan = plan_of(shard, block);
        const Part heads = shard.own_heads, kv = shard.own_kv_heads;
        int64_t rows_seen = 0;
        for (int i = 0; i < layout.sp; ++i) {
          const fabric::GatherBlock& from = plan.forth()[static_cast<size_t>(i)];
          const int sender = layout.TpIndex(block) * layout.sp + i;
          const uint32_t* at = staging[static_cast<size_t>(sender)].data() + from.from / 4;
          EXPECT_EQ(from.row, rows_seen);
          rows_seen += from.rows;
          EXPECT_EQ(from.bytes, static_cast<uint64_t>(heads.size()) * 4);
          for (int64_t row = from.row; row < from.row + from.rows; ++row) {
            for (int64_t h = heads.begin; h < heads.end; ++h) ASSERT_EQ(*at++, Mark(1, row, h));
          }
          for (int64_t row = from.row; row < from.row + from.rows; ++row) {
            for (const int kind : {2, 3}) {
              for (int64_t h = kv.begin; h < kv.end; ++h) ASSERT_EQ(*at++, Mark(kind, row, h));
            }
          }
          ++checked;
        }
        EXPECT_EQ(rows_seen, n);
        // The way back, from matrices [n, heads of i].
        const Part own = RowsOf(n, layout, layout.SpIndex(block));
        int64_t columns_seen = 0;
        for (int i = 0; i < layout.sp; ++i) {
          const fabric::GatherBlock& from = plan.back()[static_cast<size_t>(i)];
          const int64_t theirs = shard.run_heads[static_cast<size_t>(i)].heads.size();
          EXPECT_EQ(from.bytes, static_cast<uint64_t>(theirs) * 4);
          EXPECT_EQ(from.from, static_cast<uint64_t>(own.begin * theirs) * 4);
          EXPECT_EQ(from.rows, own.size());
          EXPECT_EQ(from.offset, static_cast<uint64_t>(columns_seen) * 4);
          columns_seen += theirs;
        }
        EXPECT_EQ(columns_seen, shard.heads.size());
      }
    }
  }
  EXPECT_GT(checked, 100);
}

Shard TwoStepShard(const ModelConfig& config, const Degrees& layout, int block) {
  return ShardOf(config, {.tp = layout.tp,
                          .tp_rank = layout.TpIndex(block),
                          .sp = layout.sp,
                          .sp_rank = layout.SpIndex(block),
                          .two_step_kv = true});
}

// Whose row each row of k and v is that the rank of `block` ends up with in two steps: by plain
// loops over what its neighbours took in the first.
std::vector<int64_t> RowsInTwoSteps(const ModelConfig& config, const Degrees& layout, int block,
                                    int64_t n) {
  const int64_t run = block / layout.sp * layout.sp;
  const auto plan_of = [&](const Shard& shard, int index) {
    return UlyssesPlan(shard, shard, config.head_dim, DType::kBF16, n, index);
  };
  std::vector<int64_t> rows(static_cast<size_t>(n), -1);
  const Shard own = TwoStepShard(config, layout, block);
  const UlyssesPlan plan = plan_of(own, layout.SpIndex(block));
  for (const fabric::GatherBlock& taken : plan.kv_all()) {
    const Shard holder = TwoStepShard(config, layout, static_cast<int>(run) + taken.holder);
    EXPECT_EQ(holder.own_kv_heads.begin, own.own_kv_heads.begin);
    const UlyssesPlan first = plan_of(holder, taken.holder);
    std::vector<int64_t> of_class(first.kv_class_bytes() / first.kv_row_bytes(), -1);
    for (int i = 0; i < layout.sp; ++i) {
      const fabric::GatherBlock& block_of = first.kv_class()[static_cast<size_t>(i)];
      for (int64_t r = 0; r < block_of.rows; ++r)
        of_class[static_cast<size_t>(block_of.row + r)] = RowsOf(n, layout, i).begin + r;
    }
    for (int64_t r = 0; r < taken.rows; ++r)
      rows[static_cast<size_t>(taken.row + r)] = of_class[taken.from / plan.kv_row_bytes() + r];
  }
  return rows;
}

// The planted fault leaves the rows in the order in which neighbours have them: class by class.
std::vector<int64_t> WithoutInterleave(const ModelConfig& config, const Degrees& layout, int block,
                                       int64_t n) {
  const Shard own = TwoStepShard(config, layout, block);
  const UlyssesPlan plan(own, own, config.head_dim, DType::kBF16, n, layout.SpIndex(block));
  std::vector<int64_t> rows;
  for (int copy = 0; copy < KvCopies(own); ++copy) {
    for (const fabric::GatherBlock& taken : plan.kv_all()) {
      if (taken.holder % KvCopies(own) != copy) continue;
      for (int64_t r = 0; r < taken.rows; ++r) rows.push_back(taken.row + r);
    }
  }
  return rows;
}

TEST(Ulysses, TwoStepsWithoutInterleaveAreSeen) {
  struct Case {
    int64_t heads, kv_heads;
    Degrees layout;
    int copies;
    bool several_classes;  // whose rows lie between those of others
  };
  for (const Case& c :
       {Case{8, 2, {4, 1}, 2, true}, Case{8, 2, {8, 1}, 4, true}, Case{32, 4, {8, 1}, 2, true},
        Case{14, 2, {4, 1}, 2, true}, Case{8, 2, {2, 2}, 2, false}, Case{8, 1, {4, 1}, 4, false}}) {
    const ModelConfig config = UlyssesConfig(c.heads, c.kv_heads, 2);
    for (const int64_t n : {1, 2, 3, 9, 16, 17}) {
      std::vector<int64_t> all(static_cast<size_t>(n));
      std::iota(all.begin(), all.end(), 0);
      for (int block = 0; block < c.layout.ranks(); ++block) {
        EXPECT_EQ(KvCopies(TwoStepShard(config, c.layout, block)), c.copies);
        EXPECT_EQ(RowsInTwoSteps(config, c.layout, block, n), all) << n << " " << block;
        if (n < 9) continue;
        EXPECT_EQ(WithoutInterleave(config, c.layout, block, n) != all, c.several_classes);
      }
    }
  }
  // Every KV head on one rank, or on unequally many: one step.
  EXPECT_EQ(KvCopies(TwoStepShard(UlyssesConfig(8, 8, 2), {8, 1}, 3)), 1);
}

// The same bytes go from rank to rank as in one step.
TEST(Ulysses, TwoStepsMoveTheSameBytes) {
  const ModelConfig config = UlyssesConfig(32, 4, 128);
  for (const int64_t n : {1, 8, 9, 80}) {
    const Degrees layout{8, 1};
    uint64_t bytes = 0;
    for (int block = 0; block < 8; ++block) {
      const Shard shard = TwoStepShard(config, layout, block);
      const UlyssesPlan plan(shard, shard, 128, DType::kBF16, n, block);
      for (int i = 0; i < 8; ++i) {
        const auto at = static_cast<size_t>(i);
        const auto size = [](const fabric::GatherBlock& b) {
          return static_cast<uint64_t>(b.rows) * b.bytes;
        };
        if (i != block)
          bytes += size(plan.forth()[at]) + size(plan.kv_class()[at]) + size(plan.back()[at]);
        if (plan.kv_all()[at].holder != block) bytes += size(plan.kv_all()[at]);
      }
    }
    EXPECT_EQ(bytes, WireBytes(config, layout, n)) << n;
  }
}

}  // namespace
}  // namespace forebay::model

// Attention of class mma_k16f25 against ref/ by memcmp, likewise.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <span>
#include <tuple>
#include <vector>

#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/cuda/launch/mma.h"
#include "kernels/cuda/mma/testing/rows.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/cuda/testing/watched_context.h"
#include "kernels/kernel_set.h"
#include "kernels/testing/attention_problem.h"

namespace forebay::kernels::cuda {
namespace {

using kernels::testing::AttentionProblem;
using kernels::testing::AttentionShape;
using kernels::testing::SequenceSpec;
using tensor::BF16;
using testing::Bytes;
using testing::ExpectBytes;
using testing::FormedRows;
using testing::kPoison;
using testing::Oracle;
using testing::TheLauncher;
using testing::WatchedContext;

// A step of attention, its blocks in the kernels' form, and ref/'s answer.
struct AttentionStep {
  AttentionStep(const AttentionShape& shape, const std::vector<SequenceSpec>& specs,
                base::Reach reach = {})
      : problem(shape, specs) {
    problem.Permute(3);  // some blocks in the window
    std::vector<int32_t> done;
    for (const SequenceSpec& spec : specs) done.push_back(spec.first);
    problem.Prepare(std::vector<int32_t>(specs.size()), 1 << 20);  // all of K and V
    problem.Prepare(done, 1 << 20);
    args = problem.args();
    args.reach = reach;
    expected.resize(static_cast<size_t>(args.batch.num_rows) *
                    static_cast<size_t>(shape.heads * shape.values()) * sizeof(BF16));
    args.out = expected.data();
    Oracle().Run([&](const device::WorkerContext& context) {
      RefKernels(MmaOrder::kK16F25).attention(args, context);
    });
    const KvLayout& layout = args.layout;
    in_chunks = layout.key_dim % kChunkSide == 0 && !layout.values_in_keys;
    if (!in_chunks) return;
    for (const SequenceRows& rows : std::span(args.batch.sequences, args.batch.num_sequences)) {
      const uint32_t* const table =
          args.batch.block_tables + rows.table_row * args.batch.table_stride;
      const int last = rows.first_position + rows.num_rows - 1;
      for (int block = 0; block <= last / kBlockTokens; ++block) Convert(table[block]);
    }
    kv = {.block_tables = args.batch.block_tables,
          .table_stride = args.batch.table_stride,
          .resident = resident.data(),
          .window = window.data(),
          .block_stride = layout.block_stride,
          .layer_bytes = layout.LayerBytes(),
          .kv_heads = layout.kv_heads,
          .codes = static_cast<int32_t>(layout.codes)};
  }

  // The block's bytes in the other order: as many, at the same place.
  void Convert(uint32_t entry) {
    const KvLayout& layout = args.layout;
    const bool in_window = (entry & kWindowBit) != 0;
    const auto index = static_cast<int64_t>(entry & ~kWindowBit);
    Bytes& to = in_window ? window : resident;
    const int64_t at = index * (in_window ? layout.LayerBytes() : layout.block_stride);
    to.resize(std::max(to.size(), static_cast<size_t>(at + layout.LayerBytes())), kPoison);
    const std::byte* const block = args.layer.Block(entry, layout);
    const int size = layout.codes == KvCodes::kNone ? sizeof(BF16) : 1;
    for (int head = 0; head < layout.kv_heads; ++head) {
      const std::byte* const from = block + head * layout.HeadBytes();
      std::byte* const head_to = to.data() + at + head * layout.HeadBytes();
      const auto put = [&](int place, int element) {
        std::memcpy(head_to + place * size, from + element * size, static_cast<size_t>(size));
      };
      const int half = layout.key_dim * kBlockTokens;
      for (int t = 0; t < kBlockTokens; ++t) {
        for (int j = 0; j < layout.key_dim; ++j) {
          const int place = InHeadHalf(t, j) / 2;
          put(place, (j / 2 * kBlockTokens + t) * 2 + j % 2);
          put(half + place, half + (t / 2 * layout.key_dim + j) * 2 + t % 2);
        }
      }
      if (layout.codes == KvCodes::kInt8)
        std::memcpy(head_to + 2 * half, from + 2 * half, kScaleBytes);
    }
  }

  AttentionProblem<BF16> problem;
  AttentionArgs args;
  Bytes expected, resident, window;
  bool in_chunks;
  MmaKvParams kv;
};

// A step through the set, whose kernels follow from its shape: as a layer that finds out what the
// rows are, and, of chunks, as the next one.
void TryAttentionOfSet(const AttentionShape& shape, const std::vector<SequenceSpec>& specs,
                       base::Reach reach = {}, uint64_t scratch_bytes = UINT64_MAX,
                       RowForm form = RowForm::kRows) {
  AttentionStep step(shape, specs, reach);
  AttentionArgs args = step.args;
  if (step.in_chunks) {
    args.layout.form = PackedForm::kCuda;
    args.layer = {step.resident.data(), step.window.data()};
  }
  const int columns = shape.heads * shape.values();
  const Bytes expected =
      FormedRows(form, step.expected.data(), args.batch.num_rows, columns, columns);
  args.out_form = form;
  std::vector<Bytes> outs(form == RowForm::kChunks ? 2 : 1, Bytes(expected.size()));
  for (int launch = 0; launch < TheLauncher().launches(); ++launch) {
    const base::Status status =
        TheLauncher().Run(launch, [&](const device::LaunchContext& context) {
          for (Bytes& out : outs) {
            std::ranges::fill(out, kPoison);
            args.out = out.data();
            args.as_before = &out != outs.data();
            MmaKernels().attention(args, WatchedContext(context, nullptr, scratch_bytes));
          }
        });
    ASSERT_TRUE(status.ok()) << "launch " << launch << ": " << status.ToString();
    for (const Bytes& out : outs) {
      const auto [ours, theirs] = std::ranges::mismatch(expected, out);
      ASSERT_EQ(ours - expected.begin(), std::ssize(expected))
          << shape.heads << " heads of " << shape.head_dim << ", launch " << launch
          << ": the first byte that differs";
    }
  }
}

TEST(MmaKernels, AttentionOfTheSet) {
  TryAttentionOfSet({.heads = 5, .kv_heads = 1, .head_dim = 16}, {{0, 3}, {31, 34}, {150, 151}});
  TryAttentionOfSet({.heads = 12, .kv_heads = 1, .head_dim = 24}, {{40, 41}});
  // Single rows and prompts, for kernels of their own; units that have no room.
  TryAttentionOfSet({.heads = 4, .kv_heads = 2, .head_dim = 64}, {{0, 3}, {131, 132}});
  TryAttentionOfSet({.heads = 2, .kv_heads = 1, .head_dim = 128},
                    {{1029, 1030}, {3, 4}, {0, 140}, {63, 70}, {200, 201}});
  TryAttentionOfSet({.heads = 2, .kv_heads = 2, .head_dim = 64, .window = 150}, {{1100, 1101}},
                    {150, 0});
  TryAttentionOfSet({.heads = 2, .kv_heads = 1, .head_dim = 128}, {{40, 41}, {0, 5}, {70, 71}}, {},
                    2300);
  TryAttentionOfSet({.heads = 1, .kv_heads = 1, .head_dim = 192}, {{70, 71}});
  TryAttentionOfSet({.heads = 2, .kv_heads = 1, .head_dim = 32, .window = 40}, {{98, 101}},
                    {40, 0});
  TryAttentionOfSet({.heads = 2, .kv_heads = 1, .head_dim = 32, .chunk = 48}, {{98, 101}}, {0, 48});
  // Both ways: all, and a window; a text of one token.
  TryAttentionOfSet({.heads = 2, .kv_heads = 1, .head_dim = 64}, {{0, 40}, {0, 1}, {0, 131}},
                    {0, 0, base::Reach::kAllAhead});
  TryAttentionOfSet({.heads = 1, .kv_heads = 1, .head_dim = 128}, {{0, 33}},
                    {0, 0, base::Reach::kAllAhead});
  TryAttentionOfSet({.heads = 2, .kv_heads = 1, .head_dim = 32}, {{0, 70}, {0, 3}}, {20, 0, 19});
  TryAttentionOfSet({.heads = 2, .kv_heads = 1, .head_dim = 16, .score_cap = 5, .sinks = true},
                    {{60, 62}});
  TryAttentionOfSet(
      {.heads = 3, .kv_heads = 1, .head_dim = 48, .value_dim = 40, .values_in_keys = true},
      {{33, 36}});
  // Parts of 1,024 positions.
  TryAttentionOfSet({.heads = 1, .kv_heads = 1, .head_dim = 16, .sinks = true},
                    {{1023, 1025}, {2100, 2101}});
  // KV in one byte, by each kernel.
  for (const KvCodes codes : {KvCodes::kInt8, KvCodes::kFP8}) {
    TryAttentionOfSet({.heads = 3, .kv_heads = 1, .head_dim = 24, .codes = codes}, {{40, 42}});
    TryAttentionOfSet({.heads = 2, .kv_heads = 2, .head_dim = 64, .codes = codes},
                      {{0, 3}, {131, 132}});
    TryAttentionOfSet({.heads = 2, .kv_heads = 1, .head_dim = 128, .codes = codes},
                      {{130, 131}, {0, 33}});
    TryAttentionOfSet(
        {.heads = 2, .kv_heads = 1, .head_dim = 16, .score_cap = 5, .sinks = true, .codes = codes},
        {{60, 62}});
  }
  // For a layer that reads chunks.
  for (const AttentionShape& shape : {AttentionShape{.heads = 2, .kv_heads = 1, .head_dim = 64},
                                      AttentionShape{.heads = 2, .kv_heads = 1, .head_dim = 128}}) {
    TryAttentionOfSet(shape, {{1029, 1030}, {3, 4}}, {}, UINT64_MAX, RowForm::kChunks);
    TryAttentionOfSet(shape, {{0, 70}, {63, 64}, {130, 131}}, {}, UINT64_MAX, RowForm::kChunks);
  }
}

// Units and tiles are those that the host would list, long ones first by steps of 128 positions.
TEST(MmaKernels, ListsOfAStep) {
  constexpr int kKvHeads = 2;
  std::vector<SequenceRows> sequences, many;
  std::vector<DecodeRow> rows;
  int row = 0;
  for (int i = 0; i < 300; ++i) {
    const int of_sequence = i % 40 == 7 ? 130 + i : 1, first = i * 37 % 2500;
    sequences.push_back({row, of_sequence, first, i});
    if (of_sequence > 1) {
      many.push_back(sequences.back());
    } else {
      rows.push_back({.row = row, .table_row = i, .first = 0, .last = first});
    }
    row += of_sequence;
  }
  const std::vector<DecodeUnit> expected = ListDecodeUnits(rows, kKvHeads);
  const std::vector<PrefillTile> expected_tiles = ListPrefillTiles(many);
  std::vector<DecodeUnit> units(expected.size());
  std::vector<PrefillTile> tiles(expected_tiles.size());
  std::vector<int32_t> counts(units.size(), -1), totals(kListTotals);
  const AttentionListParams params{.sequences = sequences.data(),
                                   .num_sequences = static_cast<int32_t>(sequences.size()),
                                   .kv_heads = kKvHeads,
                                   .most_units = static_cast<int32_t>(units.size()),
                                   .units = units.data(),
                                   .counts = counts.data(),
                                   .tiles = tiles.data(),
                                   .totals = totals.data()};
  const base::Status status = TheLauncher().Run(0, [&](const device::LaunchContext& context) {
    context.Launch(KernelNamed("mma_attention_lists"),
                   {.threads = kListThreads, .shared_bytes = kListSharedBytes}, params);
  });
  ASSERT_TRUE(status.ok()) << status.ToString();
  ASSERT_EQ(totals, (std::vector<int32_t>{static_cast<int32_t>(units.size()),
                                          static_cast<int32_t>(tiles.size()), 1}));
  EXPECT_EQ(std::ranges::count(counts, 0), std::ssize(counts));
  const auto steps = [](const DecodeUnit& unit) { return (unit.end - unit.first + 127) / 128; };
  EXPECT_TRUE(std::ranges::is_sorted(units, std::greater{}, steps));
  const auto log_steps = [](const PrefillTile& tile) {
    return std::bit_width(static_cast<uint32_t>(tile.first_position + tile.rows + 127) / 128);
  };
  EXPECT_TRUE(std::ranges::is_sorted(tiles, std::greater{}, log_steps));
  // Each once; the parts of a row and head in slots of their own, one behind the other.
  const auto same = [](const DecodeUnit& unit) {
    return std::tuple(unit.row, unit.kv_head, unit.part, unit.parts, unit.table_row, unit.first,
                      unit.end);
  };
  std::vector<DecodeUnit> sorted = expected;
  std::ranges::sort(sorted, {}, same);
  std::ranges::sort(units, {}, same);
  EXPECT_TRUE(std::ranges::equal(units, sorted, {}, same, same));
  std::vector<int32_t> slots;
  for (const DecodeUnit& unit : units) slots.push_back(unit.slot + unit.part);
  std::ranges::sort(slots);
  for (int i = 0; i < static_cast<int>(slots.size()); ++i) ASSERT_EQ(slots[i], i);
  const auto place = [](const PrefillTile& tile) {
    return std::tuple(tile.row, tile.rows, tile.table_row, tile.first_position, tile.end);
  };
  std::vector<PrefillTile> sorted_tiles = expected_tiles;
  std::ranges::sort(sorted_tiles, {}, place);
  std::ranges::sort(tiles, {}, place);
  EXPECT_TRUE(std::ranges::equal(tiles, sorted_tiles, {}, place, place));
}

// The last position of sequences of these lengths, by the kernel named.
void TryDecode(const AttentionShape& shape, const std::vector<int>& lengths, int multiprocessors,
               const char* kernel, base::Reach reach = {}) {
  std::vector<SequenceSpec> specs;
  for (const int length : lengths) specs.push_back({length - 1, length});
  const AttentionStep step(shape, specs, reach);
  std::vector<DecodeRow> rows;
  for (const SequenceRows& of : std::span(step.args.batch.sequences, specs.size())) {
    rows.push_back({.row = of.first_row,
                    .table_row = of.table_row,
                    .first = reach.First(of.first_position),
                    .last = of.first_position});
  }
  const std::vector<DecodeUnit> units = ListDecodeUnits(rows, shape.kv_heads);
  Bytes out(step.expected.size());
  const std::vector<int32_t> num_units = {static_cast<int32_t>(units.size())};
  const int group = shape.heads / shape.kv_heads;
  std::vector<int32_t> counts(units.size());
  std::vector<float> partials(units.size() * static_cast<size_t>(group * (shape.head_dim + 2)));
  const DecodeParams params{.kv = step.kv,
                            .units = units.data(),
                            .num_units = num_units.data(),
                            .group = group,
                            .row_heads = shape.heads,
                            .scale = step.args.scale,
                            .q = step.args.q,
                            .out = out.data(),
                            .partials = partials.data(),
                            .counts = counts.data()};
  const KernelPlan plan = PlanDecode(multiprocessors, shape.head_dim, group,
                                     static_cast<int>(units.size()), shape.codes != KvCodes::kNone);
  EXPECT_STREQ(plan.kernel, kernel);
  ExpectBytes(fmt::format("{} units of {} heads of {}", units.size(), shape.heads, shape.head_dim),
              plan, params, step.expected, out);
  EXPECT_EQ(std::ranges::count(counts, 0), std::ssize(counts));
}

TEST(MmaKernels, DecodeOfAUnitAWarp) {
  const AttentionShape shape{.heads = 6, .kv_heads = 2, .head_dim = 64};
  TryDecode(shape, {1, 31, 33, 128, 129, 300, 1025, 2100}, 1, "mma_decode_64");
  TryDecode({.heads = 8, .kv_heads = 1, .head_dim = 128}, {40, 200, 1030, 1}, 1, "mma_decode_128");
  TryDecode({.heads = 1, .kv_heads = 1, .head_dim = 64, .window = 150},
            {100, 340, 1100, 20, 30, 40}, 1, "mma_decode_64", {150, 0});
}

TEST(MmaKernels, DecodeOfAUnitABlock) {
  const AttentionShape shape{.heads = 6, .kv_heads = 2, .head_dim = 64};
  TryDecode(shape, {1, 33, 129, 1025, 2100}, 8, "mma_decode_wide_64");
  TryDecode({.heads = 8, .kv_heads = 1, .head_dim = 128}, {40, 200, 1030, 1}, 3,
            "mma_decode_wide_128");
  TryDecode({.heads = 1, .kv_heads = 1, .head_dim = 64, .window = 150}, {100, 340, 1100}, 3,
            "mma_decode_wide_64", {150, 0});
}

TEST(MmaKernels, DecodeOfCodes) {
  for (const KvCodes codes : {KvCodes::kInt8, KvCodes::kFP8}) {
    TryDecode({.heads = 6, .kv_heads = 2, .head_dim = 64, .codes = codes}, {1, 33, 129, 1030}, 1,
              "mma_decode_codes_64");
    TryDecode({.heads = 4, .kv_heads = 1, .head_dim = 128, .window = 150, .codes = codes},
              {40, 200}, 2, "mma_decode_codes_128", {150, 0});
  }
}

TEST(MmaKernels, DecodeOfManySequences) {
  if (!TheLauncher().fast()) return;
  for (const int sequences : {3, 40}) {
    std::vector<int> lengths;
    for (int i = 0; i < sequences; ++i) lengths.push_back(1 + i * 31);
    TryDecode({.heads = 16, .kv_heads = 8, .head_dim = 128}, lengths, 132,
              sequences == 3 ? "mma_decode_wide_128" : "mma_decode_128");
  }
}

void TryPrefill(int heads, int kv_heads, const std::vector<SequenceSpec>& specs,
                int multiprocessors, KvCodes codes = KvCodes::kNone) {
  const AttentionStep step({.heads = heads, .kv_heads = kv_heads, .head_dim = 128, .codes = codes},
                           specs);
  const std::vector<PrefillTile> tiles =
      ListPrefillTiles(std::span(step.args.batch.sequences, specs.size()));
  const std::vector<int32_t> num_tiles = {static_cast<int32_t>(tiles.size())};
  Bytes out(step.expected.size());
  const PrefillParams params{.kv = step.kv,
                             .tiles = tiles.data(),
                             .num_tiles = num_tiles.data(),
                             .heads = heads,
                             .row_heads = heads,
                             .scale = step.args.scale,
                             .q = step.args.q,
                             .out = out.data()};
  ExpectBytes(
      fmt::format("{} tiles, {} heads", tiles.size(), heads),
      PlanPrefill(multiprocessors, static_cast<int>(tiles.size()), heads, codes != KvCodes::kNone),
      params, step.expected, out);
}

// Tiles that are not full, begin anywhere and end within a step, parts that a row does not reach;
// several units a block.
TEST(MmaKernels, Prefill) {
  TryPrefill(2, 1, {{0, 40}, {77, 80}}, 1);
  TryPrefill(1, 1, {{0, 200}}, 2);
  TryPrefill(1, 1, {{1000, 1050}}, 1);
  TryPrefill(2, 1, {{77, 80}, {100, 131}}, 1, KvCodes::kInt8);
  TryPrefill(1, 1, {{1000, 1050}}, 1, KvCodes::kFP8);
  if (!TheLauncher().fast()) return;
  TryPrefill(4, 2, {{0, 500}, {100, 612}, {5, 6}}, 5);
  TryPrefill(2, 1, {{2100, 2230}, {0, 400}, {900, 1100}, {0, 128}, {64, 192}}, 132);
}

}  // namespace
}  // namespace forebay::kernels::cuda

// The kernels of class mma_k16f25 against ref/ by memcmp: all bytes of their outputs, gaps too,
// whatever lay there before, in each of the launcher's schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "kernels/cuda/launch/mma.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/kernel_set.h"
#include "kernels/testing/attention_problem.h"
#include "kernels/testing/pack_rounded.h"
#include "kernels/testing/team.h"
#include "tensor/bf16.h"

namespace forebay::kernels::cuda {
namespace {

using kernels::testing::AttentionProblem;
using kernels::testing::AttentionShape;
using kernels::testing::PackRounded;
using kernels::testing::SequenceSpec;
using kernels::testing::Team;
using tensor::BF16;
using testing::TheLauncher;
using Bytes = std::vector<std::byte>;

constexpr std::byte kPoison{0xFF};  // NaN

// Those that run ref/: on a GPU's machine with large shapes.
Team& Oracle() {
  static Team team(TheLauncher().fast() ? 16 : 1);
  return team;
}

// Launches the plan in every schedule; `out`, poisoned before each, shall be `expected` behind.
template <typename Params>
void ExpectBytes(const std::string& what, const KernelPlan& plan, const Params& params,
                 const Bytes& expected, Bytes& out) {
  for (int launch = 0; launch < TheLauncher().launches(); ++launch) {
    std::ranges::fill(out, kPoison);
    const base::Status status =
        TheLauncher().Run(launch, [&](const device::LaunchContext& context) {
          context.Launch(KernelNamed(plan.kernel), plan.shape, params);
        });
    ASSERT_TRUE(status.ok()) << what << ", launch " << launch << ": " << status.ToString();
    const auto [ours, theirs] = std::ranges::mismatch(expected, out);
    ASSERT_EQ(ours - expected.begin(), std::ssize(expected))
        << what << " by " << plan.kernel << ", launch " << launch
        << ": the first byte that differs";
  }
}

// Values of bf16 [rows, columns], as fp32.
std::vector<float> RandomMatrix(base::Rng& rng, int rows, int columns) {
  std::vector<float> values(static_cast<size_t>(rows) * static_cast<size_t>(columns));
  for (float& value : values)
    value = tensor::ToFloat(tensor::ToBF16(static_cast<float>(rng.Uniform() * 2 - 1)));
  return values;
}

// Chunks of rows [first_row, first_row + rows) and elements [begin, end) of a row-major matrix of
// `k` columns, padded along K with zeros. Other rows are poison.
void PackChunks(const float* matrix, int k, int rows, int begin, int end, std::byte* to) {
  for (int chunk = begin; chunk < end; chunk += kChunkSide, to += kChunkBytes) {
    for (int row = 0; row < kChunkSide; ++row) {
      for (int i = 0; i < kChunkSide; ++i) {
        const float value = chunk + i < end && row < rows ? matrix[row * k + chunk + i] : 0;
        const BF16 element = row < rows ? tensor::ToBF16(value) : BF16{0xFFFF};
        std::memcpy(to + InChunk(row, i), &element, sizeof element);
      }
    }
  }
}

int ChunksOf(int k) { return (k + kChunkSide - 1) / kChunkSide; }

// A layer of `columns` = 64 `panels` whose leaves of K end at `borders`, by all kernels.
struct LinearProblem {
  LinearProblem(int rows, int panels, const std::vector<int>& borders, bool with_bias,
                uint64_t seed)
      : rng(seed), rows(rows), panels(panels), borders(borders), k(borders.back()) {
    const int columns = panels * kPanelColumns;
    x = RandomMatrix(rng, rows, k);
    w = RandomMatrix(rng, columns, k);
    if (with_bias) bias = RandomMatrix(rng, 1, columns);
  }

  int leaves() const { return static_cast<int>(borders.size()) - 1; }

  // By ref/: [rows, columns] of T.
  template <typename T>
  std::vector<T> Expected(LinearOutput output) const {
    LinearArgs args;
    args.weight.dtype = tensor::DType::kBF16;
    args.weight.k = k;
    args.weight.n = panels * kPanelColumns;
    args.weight.num_panels = panels;
    args.weight.leaves.num_leaves = leaves();
    std::ranges::copy(borders, args.weight.leaves.begin);
    std::vector<Bytes> tiles;
    std::vector<const std::byte*> pointers;
    std::vector<PanelColumns> places;
    for (int leaf = 0; leaf < leaves(); ++leaf) {
      const int of_leaf = borders[leaf + 1] - borders[leaf];
      for (int panel = 0; panel < panels; ++panel) {
        const float* columns[kPanelColumns];
        for (int c = 0; c < kPanelColumns; ++c)
          columns[c] = w.data() + (panel * kPanelColumns + c) * k + borders[leaf];
        Bytes& tile = tiles.emplace_back((of_leaf + 1) / 2 * kPanelColumns * 2 * sizeof(BF16));
        PackRounded(tensor::DType::kBF16, of_leaf, columns, tile.data());
      }
    }
    for (const Bytes& tile : tiles) pointers.push_back(tile.data());
    for (int panel = 0; panel < panels; ++panel)
      places.push_back({panel * kPanelColumns, kPanelColumns});
    args.weight.tiles = pointers.data();
    args.weight.panels = places.data();
    args.weight.bias = bias.empty() ? nullptr : bias.data();
    std::vector<BF16> rounded(x.size());
    std::ranges::transform(x, rounded.begin(), tensor::ToBF16);
    std::vector<T> y(static_cast<size_t>(rows) * static_cast<size_t>(args.weight.n));
    args.output = output;
    args.rows = rows;
    args.leaf_end = leaves();
    args.x = reinterpret_cast<const std::byte*>(rounded.data());
    args.x_stride = k;
    args.y = reinterpret_cast<std::byte*>(y.data());
    args.y_stride = args.weight.n;
    Oracle().Run([&](const device::WorkerContext& context) {
      RefKernels(MmaOrder::kK16F25).linear(args, context);
    });
    return y;
  }

  // Fills in `tiles` and `leaf_begin`; returns the weight's chunks.
  Bytes PackWeight(std::vector<const std::byte*>* tiles, int32_t* leaf_begin) const {
    leaf_begin[0] = 0;
    for (int leaf = 0; leaf < leaves(); ++leaf)
      leaf_begin[leaf + 1] = leaf_begin[leaf] + ChunksOf(borders[leaf + 1] - borders[leaf]);
    Bytes packed(static_cast<size_t>(leaf_begin[leaves()]) * panels * kChunkBytes);
    std::byte* to = packed.data();
    for (int leaf = 0; leaf < leaves(); ++leaf) {
      for (int panel = 0; panel < panels; ++panel) {
        tiles->push_back(to);
        PackChunks(w.data() + panel * kPanelColumns * k, k, kPanelColumns, borders[leaf],
                   borders[leaf + 1], to);
        to += int64_t{leaf_begin[leaf + 1] - leaf_begin[leaf]} * kChunkBytes;
      }
    }
    return packed;
  }

  base::Rng rng;
  int rows, panels;
  std::vector<int> borders;
  int k;
  std::vector<float> x, w, bias;
};

// `multiprocessors`: of the GPU that is planned for; few make a block go round.
void TrySmallLinear(int rows, int panels, const std::vector<int>& borders, int multiprocessors,
                    const char* kernel, bool bias = false) {
  const LinearProblem problem(rows, panels, borders, bias, static_cast<uint64_t>(rows));
  std::vector<const std::byte*> tiles;
  SmallLinearParams params{.rows = rows, .num_panels = panels, .num_leaves = problem.leaves()};
  const Bytes w = problem.PackWeight(&tiles, params.leaf_begin);
  Bytes x(static_cast<size_t>(params.leaf_begin[params.num_leaves]) * kChunkBytes);
  for (int leaf = 0; leaf < params.num_leaves; ++leaf) {
    PackChunks(problem.x.data(), problem.k, rows, borders[leaf], borders[leaf + 1],
               x.data() + int64_t{params.leaf_begin[leaf]} * kChunkBytes);
  }
  const auto values = problem.Expected<BF16>(LinearOutput::kRounded);
  Bytes expected(static_cast<size_t>(panels) * kChunkBytes, kPoison), y(expected.size());
  for (int row = 0; row < rows; ++row) {
    for (int c = 0; c < panels * kPanelColumns; ++c) {
      std::memcpy(&expected[c / kChunkSide * kChunkBytes + InChunk(row, c % kChunkSide)],
                  &values[row * panels * kPanelColumns + c], sizeof(BF16));
    }
  }
  params.tiles = tiles.data();
  params.x = x.data();
  params.y = y.data();
  params.bias = problem.bias.empty() ? nullptr : problem.bias.data();
  const KernelPlan plan = PlanSmallLinear(multiprocessors, &params);
  if (kernel != nullptr) {
    EXPECT_STREQ(plan.kernel, kernel);
  }
  ExpectBytes(fmt::format("{} rows, {} panels, {} leaves of K {}", rows, panels, params.num_leaves,
                          problem.k),
              plan, params, expected, y);
}

TEST(MmaKernels, SmallLinearOfOneLeaf) {
  TrySmallLinear(1, 2, {0, 200}, 3, "mma_linear_chain_1_1", true);
  TrySmallLinear(13, 3, {0, 64}, 1, "mma_linear_chain_2_2");
  TrySmallLinear(9, 1, {0, 720}, 2, "mma_linear_chain_1_1");  // rows over warps
  TrySmallLinear(30, 2, {0, 130}, 2, "mma_linear_chain_2_1");
  TrySmallLinear(8, 9, {0, 70}, 2, "mma_linear_chain_1_2");
  TrySmallLinear(32, 3, {0, 96}, 1, "mma_linear_chain_4_2");
  TrySmallLinear(27, 2, {0, 96}, 1, "mma_linear_chain_4_1");
  TrySmallLinear(61, 2, {0, 100}, 1, "mma_linear_chain_8_1");
  TrySmallLinear(40, 5, {0, 64}, 1, "mma_linear_chain_8_2", true);
  if (!TheLauncher().fast()) return;
  for (const int rows : {1, 11, 30, 64})
    TrySmallLinear(rows, 3 + rows / 4, {0, 512 + 8 * rows}, 132, nullptr);
}

TEST(MmaKernels, SmallLinearOfLeavesOverWarps) {
  TrySmallLinear(1, 1, {0, 64, 128, 192, 256, 320, 384, 448, 512}, 3, "mma_linear_leaves_1_2");
  TrySmallLinear(5, 2, {0, 33, 200}, 8, "mma_linear_leaves_1_1", true);
  TrySmallLinear(12, 1, {0, 70, 140, 340}, 4, "mma_linear_leaves_2_1");
  TrySmallLinear(16, 2, {0, 64, 70, 140, 200, 264}, 4, "mma_linear_leaves_2_2", true);
  TrySmallLinear(31, 1, {0, 150, 320, 400, 500, 600, 640, 700}, 4, "mma_linear_leaves_4_1");
  TrySmallLinear(32, 2, {0, 64, 128, 130}, 4, "mma_linear_leaves_4_2");
  TrySmallLinear(3, 2, {0, 64, 128, 192, 256}, 3, "mma_linear_leaves_1_3");
  TrySmallLinear(15, 2, {0, 64, 128}, 2, "mma_linear_leaves_2_3");
  TrySmallLinear(20, 2, {0, 64, 128, 192, 256, 320}, 2, "mma_linear_leaves_4_3");
  TrySmallLinear(64, 1, {0, 64, 120, 184, 248, 312, 376}, 4, "mma_linear_leaves_8_1", true);
  TrySmallLinear(50, 1, {0, 64, 192}, 3, "mma_linear_leaves_8_2");
  TrySmallLinear(33, 3, {0, 64, 128}, 4, "mma_linear_leaves_8_3");
  if (!TheLauncher().fast()) return;
  std::vector<int> borders(kMmaLeaves + 1);
  for (int leaf = 0; leaf <= kMmaLeaves; ++leaf) borders[static_cast<size_t>(leaf)] = 200 * leaf;
  for (const int rows : {2, 16, 31, 60}) TrySmallLinear(rows, 5 + rows / 4, borders, 132, nullptr);
}

// Rows are a multiple of 64 or zeros follow, which come out as the rounded bias.
void TryManyLinear(int rows, int panels, const std::vector<int>& borders, int multiprocessors,
                   const char* kernel, bool bias = false) {
  const int row_blocks = ChunksOf(rows), columns = panels * kPanelColumns;
  LinearProblem problem(rows, panels, borders, bias, static_cast<uint64_t>(rows));
  problem.rows = row_blocks * kChunkSide;
  problem.x.resize(static_cast<size_t>(problem.rows) * static_cast<size_t>(problem.k));
  std::vector<const std::byte*> tiles;
  ManyLinearParams params{
      .row_blocks = row_blocks, .num_panels = panels, .num_leaves = problem.leaves()};
  const Bytes w = problem.PackWeight(&tiles, params.leaf_begin);
  const int chunks = params.leaf_begin[params.num_leaves];
  Bytes x(static_cast<size_t>(row_blocks) * chunks * kChunkBytes);
  for (int block = 0; block < row_blocks; ++block) {
    for (int leaf = 0; leaf < params.num_leaves; ++leaf) {
      PackChunks(problem.x.data() + block * kChunkSide * problem.k, problem.k, kChunkSide,
                 borders[leaf], borders[leaf + 1],
                 x.data() + (int64_t{block} * chunks + params.leaf_begin[leaf]) * kChunkBytes);
    }
  }
  const auto values = problem.Expected<BF16>(LinearOutput::kRounded);
  Bytes expected(static_cast<size_t>(row_blocks) * panels * kChunkBytes), y(expected.size());
  for (int row = 0; row < problem.rows; ++row) {
    for (int c = 0; c < columns; ++c) {
      const int64_t chunk = int64_t{row / kChunkSide} * panels + c / kChunkSide;
      std::memcpy(&expected[chunk * kChunkBytes + InChunk(row % kChunkSide, c % kChunkSide)],
                  &values[row * columns + c], sizeof(BF16));
    }
  }
  params.tiles = tiles.data();
  params.x = x.data();
  params.y = y.data();
  params.bias = problem.bias.empty() ? nullptr : problem.bias.data();
  const KernelPlan plan = PlanManyLinear(multiprocessors, &params);
  if (kernel != nullptr) {
    EXPECT_STREQ(plan.kernel, kernel);
  }
  ExpectBytes(fmt::format("{} rows, {} panels, {} leaves of K {}", rows, panels, params.num_leaves,
                          problem.k),
              plan, params, expected, y);
}

// Blocks and panels that fill no tile, several tiles a block, rings that go round.
TEST(MmaKernels, ManyRowLinear) {
  TryManyLinear(40, 5, {0, 200}, 2, "mma_linear_256", true);
  TryManyLinear(300, 3, {0, 130}, 2, "mma_linear_256");
  TryManyLinear(190, 5, {0, 130}, 2, "mma_linear_128", true);
  TryManyLinear(64, 1, {0, 64, 100}, 2, "mma_linear_128_leaves", true);
  TryManyLinear(130, 3, {0, 64, 128, 140}, 2, "mma_linear_128_leaves");
  TryManyLinear(64, 2, {0, 64, 128, 192, 256, 320, 384, 448, 512}, 2, "mma_linear_128_leaves");
  if (!TheLauncher().fast()) return;
  TryManyLinear(300, 9, {0, 600}, 5, nullptr, true);
  TryManyLinear(256, 20, {0, 256}, 132, nullptr);
  TryManyLinear(520, 7, {0, 64, 128, 192, 256, 320, 384, 448, 500}, 6, nullptr, true);
  TryManyLinear(384, 3, {0, 64, 200, 264}, 132, nullptr);
}

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
                    static_cast<size_t>(shape.heads * shape.head_dim) * sizeof(BF16));
    args.out = expected.data();
    Oracle().Run([&](const device::WorkerContext& context) {
      RefKernels(MmaOrder::kK16F25).attention(args, context);
    });
    const KvLayout& layout = args.layout;
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
          .kv_heads = layout.kv_heads};
  }

  // The block's bytes in the other order: as many, at the same place.
  void Convert(uint32_t entry) {
    const KvLayout& layout = args.layout;
    const bool in_window = (entry & kWindowBit) != 0;
    const auto index = static_cast<int64_t>(entry & ~kWindowBit);
    Bytes& to = in_window ? window : resident;
    const int64_t at = index * (in_window ? layout.LayerBytes() : layout.block_stride);
    to.resize(std::max(to.size(), static_cast<size_t>(at + layout.LayerBytes())), kPoison);
    const auto* from = reinterpret_cast<const BF16*>(args.layer.Block(entry, layout));
    for (int head = 0; head < layout.kv_heads; ++head) {
      std::byte* const keys = to.data() + at + head * layout.HeadBytes();
      std::byte* const values = keys + HeadHalfBytes(layout.key_dim);
      for (int t = 0; t < kBlockTokens; ++t) {
        for (int j = 0; j < layout.key_dim; ++j) {
          std::memcpy(keys + InHeadHalf(t, j), from + (j / 2 * kBlockTokens + t) * 2 + j % 2,
                      sizeof(BF16));
          std::memcpy(
              values + InHeadHalf(t, j),
              from + layout.key_dim * kBlockTokens + (t / 2 * layout.key_dim + j) * 2 + t % 2,
              sizeof(BF16));
        }
      }
      from += layout.HeadElements();
    }
  }

  AttentionProblem<BF16> problem;
  AttentionArgs args;
  Bytes expected, resident, window;
  MmaKvParams kv;
};

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
  std::vector<int32_t> counts(rows.size() * static_cast<size_t>(shape.kv_heads));
  const int most_parts = 1 + *std::ranges::max_element(lengths) / kPartTokens;
  std::vector<float> partials(rows.size() * static_cast<size_t>(shape.heads) * most_parts *
                              (shape.head_dim + 2));
  const DecodeParams params{.kv = step.kv,
                            .units = units.data(),
                            .num_units = static_cast<int32_t>(units.size()),
                            .group = shape.heads / shape.kv_heads,
                            .row_heads = shape.heads,
                            .scale = step.args.scale,
                            .q = step.args.q,
                            .out = out.data(),
                            .partials = partials.data(),
                            .counts = counts.data(),
                            .most_parts = most_parts};
  const KernelPlan plan = PlanDecode(multiprocessors, shape.head_dim, params);
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
                int multiprocessors) {
  const AttentionStep step({.heads = heads, .kv_heads = kv_heads, .head_dim = 128}, specs);
  const std::vector<PrefillTile> tiles =
      ListPrefillTiles(std::span(step.args.batch.sequences, specs.size()));
  Bytes out(step.expected.size());
  const PrefillParams params{.kv = step.kv,
                             .tiles = tiles.data(),
                             .num_tiles = static_cast<int32_t>(tiles.size()),
                             .heads = heads,
                             .row_heads = heads,
                             .scale = step.args.scale,
                             .q = step.args.q,
                             .out = out.data()};
  ExpectBytes(fmt::format("{} tiles, {} heads", tiles.size(), heads),
              PlanPrefill(multiprocessors, params), params, step.expected, out);
}

// Tiles that are not full, begin anywhere and end within a step, parts that a row does not reach;
// several units a block.
TEST(MmaKernels, Prefill) {
  TryPrefill(2, 1, {{0, 40}, {77, 80}}, 1);
  TryPrefill(1, 1, {{0, 200}}, 2);
  TryPrefill(1, 1, {{1000, 1050}}, 1);
  if (!TheLauncher().fast()) return;
  TryPrefill(4, 2, {{0, 500}, {100, 612}, {5, 6}}, 5);
  TryPrefill(2, 1, {{2100, 2230}, {0, 400}, {900, 1100}, {0, 128}, {64, 192}}, 132);
}

}  // namespace
}  // namespace forebay::kernels::cuda

// The kernels of class mma_k16f25 against ref/ by memcmp: all bytes of their outputs, gaps too,
// whatever lay there before, in each of the launcher's schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <vector>

#include "base/rng.h"
#include "base/units.h"
#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/cuda/launch/mma.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/cuda/testing/watched_context.h"
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
using testing::WatchedContext;
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

// Puts rows of bf16, `stride` elements apart, where they lie in the form.
void PutRows(RowForm form, const std::byte* rows, int num_rows, int columns, int64_t stride,
             Bytes* to) {
  for (int row = 0; row < num_rows; ++row) {
    for (int column = 0; column < columns; ++column) {
      std::memcpy(to->data() + InRows(form, row, column, columns),
                  rows + (row * stride + column) * int64_t{sizeof(BF16)}, sizeof(BF16));
    }
  }
}
// A buffer of such rows: the others are poison.
Bytes FormedRows(RowForm form, const std::byte* rows, int num_rows, int columns, int64_t stride) {
  Bytes formed(static_cast<size_t>(RoomForRows(form, num_rows) * columns) * sizeof(BF16), kPoison);
  PutRows(form, rows, num_rows, columns, stride, &formed);
  return formed;
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

  // By ref/: [rows, columns], rounded.
  Bytes Expected() const {
    LinearArgs args;
    args.weight.dtype = tensor::DType::kBF16;
    args.weight.k = k;
    args.weight.n = panels * kPanelColumns;
    args.weight.num_panels = panels;
    args.weight.leaves.num_leaves = leaves();
    std::ranges::copy(borders, args.weight.leaves.begin);
    std::vector<Bytes> tiles;
    std::vector<const std::byte*> pointers;
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
    const std::vector<PanelColumns> places = Panels();
    args.weight.tiles = pointers.data();
    args.weight.panels = places.data();
    args.weight.bias = bias.empty() ? nullptr : bias.data();
    std::vector<BF16> rounded(x.size());
    std::ranges::transform(x, rounded.begin(), tensor::ToBF16);
    Bytes y(static_cast<size_t>(rows) * static_cast<size_t>(args.weight.n) * sizeof(BF16));
    args.rows = rows;
    args.leaf_end = leaves();
    args.x = reinterpret_cast<const std::byte*>(rounded.data());
    args.x_stride = k;
    args.y = y.data();
    args.y_stride = args.weight.n;
    Oracle().Run([&](const device::WorkerContext& context) {
      RefKernels(MmaOrder::kK16F25).linear(args, context);
    });
    return y;
  }

  // Fills in `tiles` and `leaf_begin`; returns the tiles' memory.
  std::vector<Bytes> PackWeight(std::vector<const std::byte*>* tiles, int32_t* leaf_begin) const {
    std::vector<BF16> rounded(w.size());
    std::ranges::transform(w, rounded.begin(), tensor::ToBF16);
    std::vector<Bytes> packed;
    leaf_begin[0] = 0;
    for (int leaf = 0; leaf < leaves(); ++leaf) {
      const int of_leaf = borders[leaf + 1] - borders[leaf];
      leaf_begin[leaf + 1] = leaf_begin[leaf] + ChunksOf(of_leaf);
      for (int panel = 0; panel < panels; ++panel) {
        const BF16* columns[kPanelColumns];
        for (int c = 0; c < kPanelColumns; ++c)
          columns[c] = rounded.data() + (panel * kPanelColumns + c) * k + borders[leaf];
        Bytes& tile =
            packed.emplace_back(static_cast<size_t>(ChunksOf(of_leaf)) * size_t{kChunkBytes});
        PackTile(PackedForm::kCuda, of_leaf, columns, tile.data());
        tiles->push_back(tile.data());
      }
    }
    return packed;
  }
  std::vector<PanelColumns> Panels() const {
    std::vector<PanelColumns> places;
    for (int panel = 0; panel < panels; ++panel)
      places.push_back({panel * kPanelColumns, kPanelColumns});
    return places;
  }
  LinearOutputs OutputsTo(Bytes& y, const std::vector<PanelColumns>& places) const {
    return {.y = y.data(),
            .y_stride = panels * kPanelColumns,
            .panels = reinterpret_cast<const int32_t*>(places.data()),
            .bias = bias.empty() ? nullptr : bias.data(),
            .output = static_cast<int32_t>(LinearOutput::kRounded),
            .rows = rows};
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
  SmallLinearParams params{.num_panels = panels, .num_leaves = problem.leaves()};
  const std::vector<Bytes> w = problem.PackWeight(&tiles, params.leaf_begin);
  Bytes x(static_cast<size_t>(params.leaf_begin[params.num_leaves]) * kChunkBytes);
  for (int leaf = 0; leaf < params.num_leaves; ++leaf) {
    PackChunks(problem.x.data(), problem.k, rows, borders[leaf], borders[leaf + 1],
               x.data() + int64_t{params.leaf_begin[leaf]} * kChunkBytes);
  }
  const Bytes expected = problem.Expected();
  Bytes y(expected.size());
  const std::vector<PanelColumns> places = problem.Panels();
  params.tiles = tiles.data();
  params.x = x.data();
  params.to = problem.OutputsTo(y, places);
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

void TryManyLinear(int rows, int panels, const std::vector<int>& borders, int multiprocessors,
                   const char* kernel, bool bias = false) {
  const LinearProblem problem(rows, panels, borders, bias, static_cast<uint64_t>(rows));
  const int row_blocks = ChunksOf(rows);
  std::vector<const std::byte*> tiles;
  ManyLinearParams params{
      .row_blocks = row_blocks, .num_panels = panels, .num_leaves = problem.leaves()};
  const std::vector<Bytes> w = problem.PackWeight(&tiles, params.leaf_begin);
  params.x_chunks = params.leaf_begin[params.num_leaves] + 1;
  Bytes x(static_cast<size_t>(row_blocks) * params.x_chunks * kChunkBytes, kPoison);
  for (int block = 0; block < row_blocks; ++block) {
    for (int leaf = 0; leaf < params.num_leaves; ++leaf) {
      PackChunks(
          problem.x.data() + block * kChunkSide * problem.k, problem.k,
          std::min(kChunkSide, rows - block * kChunkSide), borders[leaf], borders[leaf + 1],
          x.data() + (int64_t{block} * params.x_chunks + params.leaf_begin[leaf]) * kChunkBytes);
    }
  }
  const Bytes expected = problem.Expected();
  Bytes y(expected.size());
  const std::vector<PanelColumns> places = problem.Panels();
  params.tiles = tiles.data();
  params.x = x.data();
  params.to = problem.OutputsTo(y, places);
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

// A layer through the set, whose kernel follows from its shape, against ref/: every output, leaves
// of all or of some, panels that are not full, and what lies between rows of y. `form`: of x, and
// of y where that is bf16. Whole 16s of rows have no bias and rows of y at multiples of 16 bytes,
// which linear_many stores in a way of its own.
void TryLinearOfSet(LinearOutput output, int rows, const std::vector<int>& borders,
                    const std::vector<int>& widths, int first_leaf = 0, int end_leaf = -1,
                    RowForm form = RowForm::kRows) {
  const int k = borders.back(), leaves = static_cast<int>(borders.size()) - 1;
  const int panels = static_cast<int>(widths.size());
  base::Rng rng(static_cast<uint64_t>(rows * 100 + k));
  const std::vector<float> w = RandomMatrix(rng, panels * kPanelColumns, k),
                           x = RandomMatrix(rng, rows, k + 3),
                           bias = RandomMatrix(rng, 1, panels * kPanelColumns);
  std::vector<BF16> rounded_w(w.size()), rounded_x(x.size());
  std::ranges::transform(w, rounded_w.begin(), tensor::ToBF16);
  std::ranges::transform(x, rounded_x.begin(), tensor::ToBF16);
  LinearArgs args;
  PackedWeight& weight = args.weight;
  weight.k = k;
  weight.num_panels = panels;
  weight.leaves.num_leaves = leaves;
  std::ranges::copy(borders, weight.leaves.begin);
  std::vector<PanelColumns> places;
  for (const int width : widths) {
    places.push_back({weight.n, width});
    weight.n += width;
  }
  weight.panels = places.data();
  const bool partial = output == LinearOutput::kPartial;
  const bool plain = rows % 16 == 0;
  if (!partial && !plain) weight.bias = bias.data();
  std::vector<Bytes> memory;
  const auto pack = [&](PackedForm form) {
    weight.packed = form;
    std::vector<const std::byte*> tiles;
    for (int leaf = 0; leaf < leaves; ++leaf) {
      for (int panel = 0; panel < panels; ++panel) {
        const BF16* columns[kPanelColumns] = {};
        for (int c = 0; c < kPanelColumns; ++c) {
          const bool used = c % (IsGated(output) ? kPanelColumns / 2 : kPanelColumns) <
                            widths[static_cast<size_t>(panel)];
          if (used) columns[c] = rounded_w.data() + (panel * kPanelColumns + c) * k + borders[leaf];
        }
        Bytes& tile = memory.emplace_back(weight.ExpandedTileBytes(leaf));
        PackTile(form, borders[leaf + 1] - borders[leaf], columns, tile.data());
        tiles.push_back(tile.data());
      }
    }
    return tiles;
  };
  const std::vector<const std::byte*> chunks = pack(PackedForm::kCuda),
                                      pairs = pack(PackedForm::kPairs);
  args.x = reinterpret_cast<const std::byte*>(rounded_x.data());
  args.x_stride = k + 3;
  args.y_stride = weight.n + (plain ? 8 : 6);
  args.rows = rows;
  args.output = output;
  args.leaf_begin = first_leaf;
  args.leaf_end = end_leaf < 0 ? leaves : end_leaf;
  const bool fp32 = partial || output == LinearOutput::kF32;
  // Before: small values of bf16, of which a residual is made.
  Bytes before(static_cast<size_t>((partial ? kMaxLeaves : 1) * rows * args.y_stride) *
               (fp32 ? sizeof(float) : sizeof(BF16)));
  for (size_t i = 0; i < before.size(); i += sizeof(BF16)) {
    const BF16 value = tensor::ToBF16(static_cast<float>(rng.Uniform() * 2 - 1));
    std::memcpy(&before[i], &value, sizeof value);
  }
  Bytes expected = before;
  weight.tiles = pairs.data();
  args.y = expected.data();
  Oracle().Run([&](const device::WorkerContext& context) {
    RefKernels(MmaOrder::kK16F25).linear(args, context);
  });
  weight.packed = PackedForm::kCuda;
  weight.tiles = chunks.data();
  Bytes x_chunks;
  if (form == RowForm::kChunks) {
    ASSERT_EQ(RowFormOf(weight), form);
    x_chunks = FormedRows(form, args.x, rows, k, args.x_stride);
    args.x = x_chunks.data();
    args.x_stride = k;
    args.x_form = form;
  }
  if (form == RowForm::kChunks && !fp32) {
    const Bytes sums = expected;
    before = FormedRows(form, before.data(), rows, weight.n, args.y_stride);
    expected = before;
    PutRows(form, sums.data(), rows, weight.n, args.y_stride, &expected);
    args.y_stride = weight.n;
    args.y_form = form;
  }
  Bytes y = before;
  args.y = y.data();
  Bytes workspace(LinearWorkspaceBytes(weight.dtype, rows, k, weight.packed) + 1024, kPoison);
  args.workspace = reinterpret_cast<std::byte*>(
      base::RoundUp(reinterpret_cast<uintptr_t>(workspace.data()), 1024));
  for (int launch = 0; launch < TheLauncher().launches(); ++launch) {
    y = before;
    const base::Status status = TheLauncher().Run(
        launch, [&](const device::LaunchContext& context) { MmaKernels().linear(args, context); });
    ASSERT_TRUE(status.ok()) << "launch " << launch << ": " << status.ToString();
    const auto [ours, theirs] = std::ranges::mismatch(expected, y);
    ASSERT_EQ(ours - expected.begin(), std::ssize(expected))
        << "output " << static_cast<int>(output) << ", " << rows << " rows, " << leaves
        << " leaves of K " << k << ", launch " << launch << ": the first byte that differs";
  }
}

TEST(MmaKernels, EveryOutputOfTheSet) {
  constexpr LinearOutput kOutputs[] = {LinearOutput::kF32,      LinearOutput::kRounded,
                                       LinearOutput::kResidual, LinearOutput::kSiluMul,
                                       LinearOutput::kGeluMul,  LinearOutput::kClampedSiluMul};
  for (const LinearOutput output : kOutputs) {
    const bool gated = IsGated(output);
    TryLinearOfSet(output, 3, {0, 100}, {gated ? 32 : 64, 20});
    TryLinearOfSet(output, 34, {0, 37, 80, 144}, {gated ? 31 : 33});
    TryLinearOfSet(output, 70, {0, 72}, {gated ? 32 : 64, gated ? 30 : 62, 8});
  }
  for (const LinearOutput output :
       {LinearOutput::kF32, LinearOutput::kRounded, LinearOutput::kResidual}) {
    TryLinearOfSet(output, 80, {0, 72}, {64, 64, 64, 64, 64});
    TryLinearOfSet(output, 96, {0, 37, 80, 144}, {64, 64, 64});
  }
  TryLinearOfSet(LinearOutput::kSiluMul, 80, {0, 72}, {32, 32, 32, 32, 32});
  TryLinearOfSet(LinearOutput::kPartial, 5, {0, 40, 64, 100}, {64, 10}, 0, 3);
  TryLinearOfSet(LinearOutput::kPartial, 9, {0, 20, 40, 60, 80, 100}, {64}, 1, 5);
  TryLinearOfSet(LinearOutput::kPartial, 66, {0, 64, 96, 160}, {48}, 0, 2);
}

TEST(MmaKernels, LinearReadsAndWritesChunks) {
  constexpr RowForm kChunks = RowForm::kChunks;
  for (const int rows : {3, 34, 70, 80}) {
    TryLinearOfSet(LinearOutput::kF32, rows, {0, 128}, {64, 20}, 0, 1, kChunks);
    TryLinearOfSet(LinearOutput::kSiluMul, rows, {0, 64}, {32, 32, 32, 32}, 0, 1, kChunks);
    TryLinearOfSet(LinearOutput::kRounded, rows, {0, 64, 192}, {64, 64}, 0, 2, kChunks);
    TryLinearOfSet(LinearOutput::kResidual, rows, {0, 64, 192}, {64}, 0, 2, kChunks);
  }
  // By the plain kernel.
  TryLinearOfSet(LinearOutput::kSiluMul, 70, {0, 64, 128}, {32, 32}, 0, 2, kChunks);
  TryLinearOfSet(LinearOutput::kPartial, 66, {0, 64, 128, 192}, {48}, 1, 3, kChunks);
}

TEST(MmaKernels, NormsWriteChunks) {
  constexpr int kRows = 67, kColumns = 192;
  base::Rng rng(9);
  const std::vector<float> values = RandomMatrix(rng, kRows, kColumns),
                           weight = RandomMatrix(rng, 1, kColumns);
  std::vector<BF16> x(values.size());
  std::ranges::transform(values, x.begin(), tensor::ToBF16);
  Bytes rows(x.size() * sizeof(BF16));
  RmsNormArgs args{.x = reinterpret_cast<const std::byte*>(x.data()),
                   .out = rows.data(),
                   .weight = weight.data(),
                   .num_rows = kRows,
                   .columns = kColumns,
                   .eps = 1e-5f};
  Oracle().Run([&](const device::WorkerContext& context) { RefKernels().rms_norm(args, context); });
  const Bytes expected = FormedRows(RowForm::kChunks, rows.data(), kRows, kColumns, kColumns);
  Bytes out(expected.size(), kPoison);
  args.out = out.data();
  args.out_form = RowForm::kChunks;
  const base::Status status = TheLauncher().Run(
      0, [&](const device::LaunchContext& context) { MmaKernels().rms_norm(args, context); });
  ASSERT_TRUE(status.ok()) << status.ToString();
  EXPECT_EQ(out, expected);
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
  TryAttentionOfSet({.heads = 2, .kv_heads = 1, .head_dim = 16, .score_cap = 5, .sinks = true},
                    {{60, 62}});
  TryAttentionOfSet(
      {.heads = 3, .kv_heads = 1, .head_dim = 48, .value_dim = 40, .values_in_keys = true},
      {{33, 36}});
  // Parts of 1,024 positions.
  TryAttentionOfSet({.heads = 1, .kv_heads = 1, .head_dim = 16, .sinks = true},
                    {{1023, 1025}, {2100, 2101}});
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
  const KernelPlan plan =
      PlanDecode(multiprocessors, shape.head_dim, group, static_cast<int>(units.size()));
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
  ExpectBytes(fmt::format("{} tiles, {} heads", tiles.size(), heads),
              PlanPrefill(multiprocessors, static_cast<int>(tiles.size()), heads), params,
              step.expected, out);
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

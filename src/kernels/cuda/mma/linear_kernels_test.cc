// Linear layers of class mma_k16f25 against ref/ by memcmp: all bytes of their outputs, gaps too,
// whatever lay there before, in each of the launcher's schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "base/units.h"
#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/cuda/launch/mma.h"
#include "kernels/cuda/mma/testing/rows.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/kernel_set.h"
#include "kernels/testing/pack_rounded.h"

namespace forebay::kernels::cuda {
namespace {

using kernels::testing::PackRounded;
using tensor::BF16;
using testing::Bytes;
using testing::ExpectBytes;
using testing::FormedRows;
using testing::kPoison;
using testing::Oracle;
using testing::PutRows;
using testing::RandomMatrix;
using testing::TheLauncher;

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
                                       LinearOutput::kGeluMul,  LinearOutput::kClampedSiluMul,
                                       LinearOutput::kErfGelu,  LinearOutput::kErfGeluMul};
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

}  // namespace
}  // namespace forebay::kernels::cuda

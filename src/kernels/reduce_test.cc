// A layer whose leaves lie on several ranks, against the same layer whole: by memcmp, for every
// split.
#include "kernels/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "base/part.h"
#include "kernels/kernel_set.h"
#include "kernels/testing/immediate_stream.h"
#include "kernels/testing/pack_rounded.h"
#include "kernels/testing/tile_sets.h"
#include "tensor/bf16.h"

namespace forebay::kernels {
namespace {

using tensor::DType;
using testing::ImmediateStream;

// y [rows, n] += x [rows, k] W^T + bias, whole or in parts.
struct Layer {
  Layer(DType dtype, int rows, int n, int k, int leaves, bool with_bias)
      : dtype(dtype), rows(rows), n(n), k(k) {
    std::mt19937 rng(rows * 1000 + n + leaves);
    std::uniform_real_distribution<float> draw(-1, 1);
    borders.num_leaves = leaves;
    for (int leaf = 0; leaf <= leaves; ++leaf) borders.begin[leaf] = leaf * k / leaves;
    for (int column = 0; column < n; column += kPanelColumns)
      panels.push_back({column, std::min(kPanelColumns, n - column)});
    for (int leaf = 0; leaf < leaves; ++leaf) {
      for (const PanelColumns& panel : panels) {
        const int k_leaf = borders.begin[leaf + 1] - borders.begin[leaf];
        std::vector<float> values(static_cast<size_t>(panel.width * k_leaf));
        for (float& value : values) value = draw(rng);
        const float* columns[kPanelColumns] = {};
        for (int c = 0; c < panel.width; ++c) columns[c] = &values[c * k_leaf];
        auto* const tile = static_cast<std::byte*>(
            std::aligned_alloc(64, (k_leaf + 1) / 2 * kPanelColumns * 2 * element()));
        testing::PackRounded(dtype, k_leaf, columns, tile);
        tiles.push_back(tile);
      }
    }
    for (int i = 0; with_bias && i < static_cast<int>(panels.size()) * kPanelColumns; ++i)
      bias.push_back(draw(rng));
    x = Random(rows * k, rng);
    residual = Random(rows * n, rng);
    workspace =
        static_cast<std::byte*>(std::aligned_alloc(64, LinearWorkspaceBytes(dtype, rows, k)));
  }
  ~Layer() {
    for (const std::byte* tile : tiles) std::free(const_cast<std::byte*>(tile));
    std::free(workspace);
  }

  size_t element() const { return tensor::SizeOf(dtype); }
  std::vector<std::byte> Random(int count, std::mt19937& rng) const {
    std::uniform_real_distribution<float> draw(-1, 1);
    std::vector<std::byte> bytes(count * element());
    for (int i = 0; i < count; ++i) {
      const float value = draw(rng);
      const tensor::BF16 rounded = tensor::ToBF16(value);
      std::memcpy(&bytes[i * element()],
                  dtype == DType::kBF16 ? static_cast<const void*>(&rounded) : &value, element());
    }
    return bytes;
  }

  // y before it is written.
  std::vector<std::byte> Output(LinearOutput output) const {
    std::vector<std::byte> y = residual;
    y.resize(rows * n * (output == LinearOutput::kF32 ? sizeof(float) : element()));
    return y;
  }

  // A rank's weight has its own leaves alone.
  LinearArgs Args(int leaf_begin, int leaf_end, LinearOutput output, std::byte* y) const {
    LinearArgs args;
    args.weight = {.dtype = dtype, .n = n, .num_panels = static_cast<int32_t>(panels.size())};
    args.weight.leaves = borders.Slice(leaf_begin, leaf_end);
    args.weight.k = args.weight.leaves.begin[leaf_end - leaf_begin];
    args.weight.tiles = tiles.data() + leaf_begin * panels.size();
    args.weight.panels = panels.data();
    args.weight.bias = bias.empty() ? nullptr : bias.data();
    args.x = x.data() + borders.begin[leaf_begin] * element();
    args.x_stride = k;
    args.y = y;
    args.y_stride = n;
    args.rows = rows;
    args.output = output;
    args.leaf_end = leaf_end - leaf_begin;
    args.workspace = workspace;
    return args;
  }

  const DType dtype;
  const int rows, n, k;
  LeafBorders borders;
  std::vector<PanelColumns> panels;
  std::vector<const std::byte*> tiles;
  std::vector<float> bias;
  std::vector<std::byte> x, residual;
  std::byte* workspace;
};

// What `ranks` ranks compute, each with its share of the leaves.
class Parts {
 public:
  Parts(const Layer& layer, const KernelSet& set, int ranks, ImmediateStream& stream)
      : layer_(layer),
        reduce_{.dtype = layer.dtype,
                .num_leaves = layer.borders.num_leaves,
                .bias = layer.bias.empty() ? nullptr : layer.bias.data(),
                .stride = layer.n,
                .y_stride = layer.n,
                .rows = layer.rows,
                .n = layer.n,
                .ranks = ranks} {
    for (int rank = 0; rank < ranks; ++rank) {
      const base::Part leaves = base::EvenPart(reduce_.num_leaves, ranks, rank);
      const auto begin = static_cast<int>(leaves.begin), end = static_cast<int>(leaves.end);
      planes_.emplace_back(NumPlanes(reduce_.num_leaves, begin, end) * layer.rows * layer.n);
      Linear(stream, set, "part",
             layer.Args(begin, end, LinearOutput::kPartial,
                        reinterpret_cast<std::byte*>(planes_.back().data())));
      AddPlanes(begin, end, planes_.back().data(), &reduce_);
    }
  }

  std::vector<std::byte> Sum(LinearOutput output, ImmediateStream& stream) const {
    std::vector<std::byte> y = layer_.Output(output);
    ReduceArgs reduce = reduce_;
    reduce.output = output;
    reduce.y = y.data();
    ReducePlanes(stream, RefKernels(), "all_reduce", reduce);
    return y;
  }

 private:
  const Layer& layer_;
  ReduceArgs reduce_;
  std::vector<std::vector<float>> planes_;
};

// What each output comes to on one rank.
constexpr LinearOutput kOutputs[] = {LinearOutput::kResidual, LinearOutput::kRounded,
                                     LinearOutput::kF32};
using Whole = std::array<std::vector<std::byte>, std::size(kOutputs)>;
Whole RunWhole(const Layer& layer, const KernelSet& set, ImmediateStream& stream) {
  Whole whole;
  for (size_t i = 0; i < whole.size(); ++i) {
    whole[i] = layer.Output(kOutputs[i]);
    Linear(stream, set, "whole",
           layer.Args(0, layer.borders.num_leaves, kOutputs[i], whole[i].data()));
  }
  return whole;
}

TEST(ReduceTest, EverySplitHasTheBytesOfOneRank) {
  ImmediateStream stream(2);
  const auto sets = testing::SetsWithOracles();
  int splits = 0;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const int leaves : {1, 2, 3, 5, 6, 7, 8}) {
      for (const auto& [rows, n] : {std::pair{1, 40}, {3, 600}, {17, 256}}) {
        const Layer layer(dtype, rows, n, 264, leaves, rows != 3);
        std::map<LinearFunction, Whole> wholes;
        for (const auto& [set, oracle] : sets) {
          if (!wholes.contains(oracle.linear))
            wholes[oracle.linear] = RunWhole(layer, oracle, stream);
          const Whole& whole = wholes[oracle.linear];
          for (int ranks = 1; ranks <= leaves; ++ranks) {
            const Parts parts(layer, set, ranks, stream);
            for (size_t i = 0; i < whole.size(); ++i, ++splits) {
              EXPECT_EQ(parts.Sum(kOutputs[i], stream), whole[i])
                  << set.name << ", " << leaves << " leaves over " << ranks << " ranks, " << rows
                  << " x " << n << ", output " << i;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(splits, 1000);
}

// Each rank adds a part of the rows, and writes them elsewhere than where the residual is.
TEST(ReduceTest, PartsOfTheRowsHaveTheBytesOfAll) {
  ImmediateStream stream(2);
  constexpr int kRows = 7, kColumns = 300;
  std::vector<float> sums(3 * kRows * kColumns);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = 0.37f * static_cast<float>(i % 101);
  std::vector<std::byte> residual(kRows * kColumns * 2), whole, parts(residual.size());
  for (size_t i = 0; i < residual.size(); ++i) residual[i] = static_cast<std::byte>(i * 7 % 64);
  const auto args_of = [&](std::byte* y) {
    ReduceArgs args{.num_leaves = 3,
                    .y = y,
                    .stride = kColumns,
                    .y_stride = kColumns,
                    .rows = kRows,
                    .n = kColumns,
                    .ranks = 3};
    for (int leaf = 0; leaf < 3; ++leaf)
      AddPlanes(leaf, leaf + 1, sums.data() + leaf * kRows * kColumns, &args);
    return args;
  };
  whole = residual;
  ReducePlanes(stream, RefKernels(), "whole", args_of(whole.data()));
  for (int rank = 0; rank < 3; ++rank) {
    const base::Part rows = base::EvenPart(kRows, 3, rank);
    const size_t begin = static_cast<size_t>(rows.begin) * kColumns * 2;
    ReduceArgs args = args_of(parts.data() + begin);
    args.residual = residual.data() + begin;
    KeepRows(rows.begin, static_cast<int32_t>(rows.size()), &args);
    ReducePlanes(stream, RefKernels(), "part", args);
    EXPECT_EQ(stream.last.collective, cost::Collective::kReduceScatter);
    EXPECT_EQ(stream.last.read_bytes, 4.0 * kRows * kColumns);
  }
  EXPECT_EQ(parts, whole);
  EXPECT_NE(parts, residual);
}

TEST(ReduceTest, IsPricedAsAnAllReduce) {
  ImmediateStream stream(1);
  const Layer layer(DType::kBF16, 4, 128, 64, 2, false);
  Parts(layer, RefKernels(), 2, stream).Sum(LinearOutput::kResidual, stream);
  EXPECT_EQ(stream.last.kind, cost::OpKind::kCollective);
  EXPECT_EQ(stream.last.collective, cost::Collective::kAllReduce);
  EXPECT_EQ(stream.last.ranks, 2);
  EXPECT_EQ(stream.last.read_bytes, 4.0 * 128 * 4);
}

TEST(ReduceDeathTest, PlanesThatAreNoCutThroughTheTree) {
  ImmediateStream stream(1);
  float sums[8] = {};
  std::byte y[64];
  ReduceArgs args{.output = LinearOutput::kF32,
                  .num_leaves = 4,
                  .y = y,
                  .stride = 1,
                  .y_stride = 1,
                  .rows = 1,
                  .n = 1};
  AddPlanes(0, 2, sums, &args);
  EXPECT_DEATH(ReducePlanes(stream, RefKernels(), "lacks", args), "1 planes lack leaf 2");
  AddPlanes(3, 4, sums, &args);
  EXPECT_DEATH(ReducePlanes(stream, RefKernels(), "lacks", args), "leaf 2 is due");
}

TEST(ReduceTest, Throughput) {
  ImmediateStream stream(1);
  const Layer layer(DType::kBF16, 256, 4096, 64, 2, false);
  std::vector<float> planes(2 * 256 * 4096, 0.5f);
  std::vector<std::byte> y = layer.residual;
  ReduceArgs args{.num_leaves = 2,
                  .y = y.data(),
                  .stride = 4096,
                  .y_stride = 4096,
                  .rows = 256,
                  .n = 4096,
                  .ranks = 2};
  AddPlanes(0, 1, planes.data(), &args);
  AddPlanes(1, 2, planes.data() + 256 * 4096, &args);
  double best = 1;
  for (int i = 0; i < 10; ++i) {
    const auto start = std::chrono::steady_clock::now();
    ReducePlanes(stream, RefKernels(), "all_reduce", args);
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::printf("all-reduce of two planes, 256 x 4096 bf16, one worker: %.2f ms, %.1f GB/s\n",
              best * 1e3, 256 * 4096 * 12 / best * 1e-9);
}

}  // namespace
}  // namespace forebay::kernels

// Linear layers of kW8A8 in every set against ref, by memcmp: all codes and row counts, leaves of
// any length, all output modes, rows without a scale; and ref against the definition.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "kernels/testing/random_rows.h"
#include "kernels/testing/team.h"
#include "kernels/testing/tile_sets.h"

namespace forebay::kernels {
namespace {

struct Int8Case {
  tensor::DType dtype = tensor::DType::kBF16;
  int rows = 1;
  LeafBorders leaves = LeafBorders::Single(64);
  int panels = 1;
  LinearOutput output = LinearOutput::kRounded;

  int k() const { return leaves.begin[leaves.num_leaves]; }
};

class Int8Problem {
 public:
  explicit Int8Problem(const Int8Case& c)
      : case_(c), columns_(TileForm::kW8A8, c.k(), c.panels * kPanelColumns, 3) {
    const int width = IsGated(c.output) ? kPanelColumns / 2 : kPanelColumns;
    for (int panel = 0; panel < c.panels; ++panel) panels_.push_back({panel * width, width});
    weight_.dtype = c.dtype;
    weight_.form = TileForm::kW8A8;
    weight_.k = c.k();
    weight_.n = c.panels * width;
    weight_.num_panels = c.panels;
    weight_.leaves = c.leaves;
    weight_.panels = panels_.data();
    for (int i = 0; i < c.panels * kPanelColumns; ++i)
      bias_.push_back(static_cast<float>(i % 7) - 3);
    if (c.rows % 2 == 0) weight_.bias = bias_.data();
    for (int leaf = 0; leaf < c.leaves.num_leaves; ++leaf) {
      for (int panel = 0; panel < c.panels; ++panel) AddTile(leaf, panel);
    }
    weight_.tiles = tiles_.data();
    FillX();
    workspace_ = New(static_cast<int64_t>(LinearWorkspaceBytes(c.dtype, c.rows, c.k())));
  }

  std::vector<std::byte> Run(LinearFunction linear, int workers) {
    static testing::Team* teams[3] = {nullptr, new testing::Team(1, 1 << 20),
                                      new testing::Team(2, 1 << 20)};
    std::vector<std::byte> y(static_cast<size_t>(case_.rows) * weight_.n * 4 * kMaxLeaves);
    LinearArgs args;
    args.weight = weight_;
    args.x = x_.data();
    args.y = y.data();
    args.x_stride = case_.k();
    args.y_stride = weight_.n;
    args.rows = case_.rows;
    args.output = case_.output;
    args.leaf_end = case_.leaves.num_leaves;
    args.workspace = workspace_.get();
    teams[workers]->Run([&](const device::WorkerContext& context) { linear(args, context); });
    return y;
  }

  // What the definition makes of one leaf: no outputs but fp32.
  float Defined(int row, int column) const {
    float most = 0;
    for (int k = 0; k < case_.k(); ++k) most = std::max(most, std::fabs(X(row, k)));
    const float scale = most == 0 ? 1 : most / 127;
    const StoredRow& codes = columns_[static_cast<size_t>(column)];
    int64_t sum = 0;
    for (int k = 0; k < case_.k(); ++k) {
      sum += static_cast<int64_t>(std::nearbyint(X(row, k) / scale)) *
             static_cast<int8_t>(codes.codes[k]);
    }
    float column_scale;
    std::memcpy(&column_scale, codes.scales, sizeof(column_scale));
    const float product = static_cast<float>(sum) * scale * column_scale;
    return weight_.bias == nullptr ? product : product + bias_[static_cast<size_t>(column)];
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;
  static Memory New(int64_t bytes) {
    return Memory(new (std::align_val_t{64}) std::byte[static_cast<size_t>(bytes)]);
  }

  void AddTile(int leaf, int panel) {
    const int64_t begin = case_.leaves.begin[leaf], end = case_.leaves.begin[leaf + 1];
    const StoredRow* columns[kPanelColumns];
    for (int c = 0; c < kPanelColumns; ++c)
      columns[c] = &columns_[static_cast<size_t>(panel * kPanelColumns + c)];
    memory_.push_back(New(weight_.TileBytes(leaf, panel)));
    PackTile(TileForm::kW8A8, begin, end, columns, memory_.back().get());
    tiles_.push_back(memory_.back().get());
  }

  // Of every eighth row on a leaf is all 0, has denormals alone, NaN or infinity.
  void FillX() {
    std::mt19937 rng(7);
    const size_t element = tensor::SizeOf(case_.dtype);
    x_.resize(static_cast<size_t>(case_.rows) * case_.k() * element);
    const int first = case_.leaves.begin[case_.leaves.num_leaves - 1];
    for (int row = 0; row < case_.rows; ++row) {
      for (int k = 0; k < case_.k(); ++k) {
        float value = static_cast<float>(static_cast<int>(rng() % 2001) - 1000) * 0.001f;
        if (row % 8 == 3 && k >= first) value = 0;
        if (row % 8 == 4 && k >= first) value *= std::numeric_limits<float>::min();
        if (row % 8 == 5 && k == first) value = std::numeric_limits<float>::quiet_NaN();
        if (row % 8 == 6 && k == case_.k() - 1) value = -std::numeric_limits<float>::infinity();
        const tensor::BF16 rounded = tensor::ToBF16(value);
        std::memcpy(&x_[(static_cast<size_t>(row) * case_.k() + k) * element],
                    element == 4 ? static_cast<const void*>(&value) : &rounded, element);
      }
    }
  }
  float X(int row, int k) const {
    const size_t at = static_cast<size_t>(row) * case_.k() + k;
    return case_.dtype == tensor::DType::kF32
               ? reinterpret_cast<const float*>(x_.data())[at]
               : tensor::ToFloat(reinterpret_cast<const tensor::BF16*>(x_.data())[at]);
  }

  Int8Case case_;
  testing::RandomRows columns_;
  PackedWeight weight_;
  std::vector<PanelColumns> panels_;
  std::vector<float> bias_;
  std::vector<Memory> memory_;
  std::vector<const std::byte*> tiles_;
  std::vector<std::byte> x_;
  Memory workspace_;
};

TEST(Int8Linear, EverySetHasTheBytesOfRef) {
  constexpr tensor::DType kTypes[] = {tensor::DType::kBF16, tensor::DType::kF32};
  LeafBorders ragged = LeafBorders::Single(203);
  ragged.num_leaves = 3;
  ragged.begin[1] = 66;
  ragged.begin[2] = 131;
  ragged.begin[3] = 203;
  const LeafBorders all_leaves[] = {ragged, LeafBorders::Single(64), LeafBorders::Single(1500),
                                    LeafBorders::ForDown(1184), LeafBorders::ForOutput(5, 80)};
  int next = 0;
  for (const int rows : {1, 2, 3, 4, 5, 6, 7, 17, 40, 130}) {
    for (const LeafBorders& leaves : all_leaves) {
      const Int8Case c{.dtype = kTypes[next % 2],
                       .rows = rows,
                       .leaves = leaves,
                       .panels = 1 + next % 3,
                       .output = static_cast<LinearOutput>(next % 7)};
      ++next;
      Int8Problem problem(c);
      const std::vector<std::byte> expected = problem.Run(&ref::Linear, 1);
      for (const auto& [set, oracle] : testing::SetsWithOracles()) {
        EXPECT_EQ(problem.Run(set.linear, 1 + next % 2), expected)
            << set.name << " rows " << rows << " K " << c.k() << " leaves " << leaves.num_leaves
            << " output " << static_cast<int>(c.output);
        EXPECT_EQ(problem.Run(oracle.linear, 1), expected) << oracle.name;
      }
    }
  }
}

TEST(Int8Linear, RefIsTheDefinition) {
  for (const tensor::DType dtype : {tensor::DType::kBF16, tensor::DType::kF32}) {
    Int8Problem problem({.dtype = dtype,
                         .rows = 4,
                         .leaves = LeafBorders::Single(310),
                         .panels = 2,
                         .output = LinearOutput::kF32});
    const std::vector<std::byte> y = problem.Run(&ref::Linear, 1);
    for (int row = 0; row < 4; ++row) {
      for (int column = 0; column < 2 * kPanelColumns; ++column) {
        EXPECT_EQ(reinterpret_cast<const float*>(y.data())[row * 2 * kPanelColumns + column],
                  problem.Defined(row, column))
            << row << " " << column;
      }
    }
  }
}

}  // namespace
}  // namespace forebay::kernels

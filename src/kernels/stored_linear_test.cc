// Linear layers over stored tiles against the same layer over those tiles expanded by ref/, by
// memcmp, in every set: forms that differ by panel, leaves that cut groups, all output modes.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu/linear_blocking.h"
#include "kernels/expand.h"
#include "kernels/testing/random_rows.h"
#include "kernels/testing/team.h"
#include "kernels/testing/tile_sets.h"

namespace forebay::kernels {
namespace {

struct StoredCase {
  tensor::DType dtype = tensor::DType::kBF16;
  int rows = 1, k = 256;
  LeafBorders leaves = LeafBorders::Single(256);
  std::vector<TileForm> forms;  // of panels
  LinearOutput output = LinearOutput::kRounded;
  int first_k = 0;
};

class StoredProblem {
 public:
  explicit StoredProblem(const StoredCase& c) : case_(c) {
    const int num_panels = static_cast<int>(c.forms.size());
    const int width = c.output == LinearOutput::kSiluMul ? kPanelColumns / 2 : kPanelColumns;
    for (int panel = 0; panel < num_panels; ++panel) panels_.push_back({panel * width, width});
    weight_.dtype = c.dtype;
    weight_.k = c.k;
    weight_.n = num_panels * width;
    weight_.num_panels = num_panels;
    weight_.leaves = c.leaves;
    weight_.panels = panels_.data();
    weight_.first_k = c.first_k;
    std::vector<testing::RandomRows> rows;
    for (int panel = 0; panel < num_panels; ++panel) {
      const TileForm form =
          c.forms[panel] == TileForm::kExpanded ? TileForm::kQ8_0 : c.forms[panel];
      rows.emplace_back(form, c.first_k + c.k + 32, kPanelColumns, static_cast<unsigned>(panel));
    }
    for (int leaf = 0; leaf < c.leaves.num_leaves; ++leaf) {
      for (int panel = 0; panel < num_panels; ++panel) AddTile(leaf, panel, rows[panel]);
    }
    std::mt19937 rng(7);
    const size_t element = tensor::SizeOf(c.dtype);
    x_.resize(static_cast<size_t>(c.rows) * c.k * element);
    for (size_t i = 0; i < x_.size() / element; ++i) {
      const float value = static_cast<float>(static_cast<int>(rng() % 2001) - 1000) * 0.001f;
      const tensor::BF16 rounded = tensor::ToBF16(value);
      std::memcpy(&x_[i * element], element == 4 ? static_cast<const void*>(&value) : &rounded,
                  element);
    }
    workspace_ = New(static_cast<int64_t>(LinearWorkspaceBytes(c.dtype, c.rows, c.k)));
  }

  std::vector<std::byte> Run(LinearFunction linear, bool stored, int workers) {
    static testing::Team* teams[3] = {nullptr, new testing::Team(1, 1 << 20),
                                      new testing::Team(2, 1 << 20)};
    std::vector<std::byte> y(static_cast<size_t>(case_.rows) * weight_.n * 4 * kMaxLeaves);
    LinearArgs args;
    args.weight = weight_;
    args.weight.tiles = (stored ? stored_ : expanded_).data();
    args.weight.forms = stored ? case_.forms.data() : nullptr;
    args.x = x_.data();
    args.y = y.data();
    args.x_stride = case_.k;
    args.y_stride = weight_.n;
    args.rows = case_.rows;
    args.output = case_.output;
    args.leaf_end = case_.leaves.num_leaves;
    args.workspace = workspace_.get();
    teams[workers]->Run([&](const device::WorkerContext& context) { linear(args, context); });
    return y;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  using Memory = std::unique_ptr<std::byte[], Free>;
  static Memory New(int64_t bytes) {
    return Memory(new (std::align_val_t{64}) std::byte[static_cast<size_t>(bytes)]);
  }

  void AddTile(int leaf, int panel, const testing::RandomRows& rows) {
    const TileForm form =
        case_.forms[panel] == TileForm::kExpanded ? TileForm::kQ8_0 : case_.forms[panel];
    const int64_t begin = case_.first_k + case_.leaves.begin[leaf],
                  end = case_.first_k + case_.leaves.begin[leaf + 1];
    const StoredRow* columns[kPanelColumns];
    for (int c = 0; c < kPanelColumns; ++c) columns[c] = &rows[static_cast<size_t>(c)];
    memory_.push_back(New(PartsOf(form, begin, end).bytes));
    std::byte* const stored = memory_.back().get();
    PackTile(form, begin, end, columns, stored);
    memory_.push_back(New(weight_.ExpandedTileBytes(leaf)));
    std::byte* const expanded = memory_.back().get();
    ref::Expand({form, case_.dtype, stored, begin, end, 0, (end - begin + 1) / 2, expanded});
    stored_.push_back(case_.forms[panel] == TileForm::kExpanded ? expanded : stored);
    expanded_.push_back(expanded);
  }

  StoredCase case_;
  PackedWeight weight_;
  std::vector<PanelColumns> panels_;
  std::vector<Memory> memory_;
  std::vector<const std::byte*> stored_, expanded_;
  std::vector<std::byte> x_;
  Memory workspace_;
};

void ExpectStoredIsExpanded(const StoredCase& c) {
  StoredProblem problem(c);
  for (const auto& [set, oracle] : testing::SetsWithOracles()) {
    if (set.isa == Isa::kRef && c.rows * c.k > 40000) continue;
    const int workers = 1 + c.rows % 2;
    EXPECT_EQ(problem.Run(set.linear, true, workers), problem.Run(set.linear, false, workers))
        << set.name << " rows " << c.rows << " K " << c.k << " leaves " << c.leaves.num_leaves
        << " output " << static_cast<int>(c.output) << " first_k " << c.first_k;
  }
}

TEST(StoredLinear, HasTheBytesOfExpandedTiles) {
  std::vector<TileForm> forms;
  for (int form = 0; form < kNumValueForms; ++form) forms.push_back(static_cast<TileForm>(form));
  constexpr tensor::DType kTypes[] = {tensor::DType::kBF16, tensor::DType::kF32};
  int next = 0;
  for (const int rows : {1, 2, 6, 7, 17, 40, 130}) {
    for (const int k : {64, 160, 1024, 4864}) {
      if (rows > 40 && k > 1024) continue;
      StoredCase c;
      c.dtype = kTypes[next % 2];
      c.rows = rows;
      c.k = k;
      c.output = static_cast<LinearOutput>(next % 5);
      c.leaves = next % 3 == 0   ? LeafBorders::ForDown(k)
                 : next % 3 == 1 ? LeafBorders::ForOutput(k / 16, 16)
                                 : LeafBorders::Single(k);
      for (int panel = 0; panel < 5; ++panel)
        c.forms.push_back(forms[(5 * next + panel) % forms.size()]);
      c.first_k = next % 4 * 80;
      ++next;
      ExpectStoredIsExpanded(c);
    }
  }
}

}  // namespace
}  // namespace forebay::kernels

// Experts of every set against ref/ by memcmp, and a row against the dense layer.
#include "kernels/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/testing/pack_rounded.h"
#include "kernels/testing/random_rows.h"
#include "kernels/testing/team.h"
#include "kernels/testing/tile_sets.h"
#include "tensor/bf16.h"

namespace forebay::kernels {
namespace {

using tensor::DType;

struct Case {
  DType dtype = DType::kBF16;
  std::vector<int> counts;  // rows of each expert
  int k = 64;
  std::vector<int> widths = {64};  // widths of the panels
  LinearOutput output = LinearOutput::kRounded;
  bool biased = false;
  bool gathered = true;
  uint64_t seed = 1;
  bool int8 = false;
};

struct Free {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
};
using Buffer = std::unique_ptr<std::byte[], Free>;
Buffer NewBuffer(size_t bytes) {
  Buffer buffer(new (std::align_val_t{64}) std::byte[bytes]);
  std::memset(buffer.get(), 0x7F, bytes);  // a NaN, in both types
  return buffer;
}

constexpr int kMostWorkers = 3;

testing::Team& TeamOf(int workers) {
  static std::unique_ptr<testing::Team> teams[kMostWorkers + 1];
  if (teams[workers] == nullptr) teams[workers] = std::make_unique<testing::Team>(workers);
  return *teams[workers];
}

// Owns what ExpertsArgs point to. Runs lie in memory in a drawn order, with gaps.
class Problem {
 public:
  explicit Problem(const Case& c) : case_(c), rng_(c.seed) {
    weight_.dtype = c.dtype;
    if (c.int8) weight_.form = TileForm::kW8A8;
    weight_.k = c.k;
    weight_.leaves = LeafBorders::Single(c.k);
    weight_.num_panels = static_cast<int>(c.widths.size());
    for (const int width : c.widths) {
      panels_.push_back({weight_.n, width});
      weight_.n += width;
    }
    weight_.panels = panels_.data();
    const size_t experts = c.counts.size(), bytes = static_cast<size_t>(weight_.bytes()),
                 stride = bytes + 64;
    memory_ = NewBuffer(experts * stride);
    std::vector<size_t> places(experts);
    std::iota(places.begin(), places.end(), size_t{0});
    std::ranges::shuffle(places, rng_);
    for (const size_t place : places) {
      runs_.push_back(memory_.get() + place * stride);
      for (size_t panel = 0; panel < c.widths.size(); ++panel)
        FillTile(memory_.get() + place * stride + panel * weight_.TileBytes(0, 0), c.widths[panel]);
    }
    for (size_t i = 0; c.biased && i < experts * c.widths.size() * kPanelColumns; ++i)
      bias_.push_back(Value());
    if (c.biased) weight_.bias = bias_.data();
    offsets_.push_back(0);
    for (const int count : c.counts) offsets_.push_back(offsets_.back() + count);
    const int rows = offsets_.back(), x_rows = c.gathered ? rows / 2 + 1 : rows;
    for (int i = 0; i < rows; ++i) x_rows_.push_back(static_cast<int32_t>(rng_() % x_rows));
    x_stride_ = c.k + static_cast<int>(rng_() % 3);
    y_stride_ = weight_.n + static_cast<int>(rng_() % 3);
    const size_t element = tensor::SizeOf(c.dtype);
    x_ = NewBuffer(static_cast<size_t>(x_rows) * x_stride_ * element + 1);
    for (int64_t i = 0; i < x_rows * x_stride_; ++i) Put(x_.get(), i, Value());
    y_bytes_ = static_cast<size_t>(rows) * y_stride_ * element;
    if (c.int8) codes_ = NewBuffer(static_cast<size_t>(x_rows * CodedRowBytes(c.k)));
  }

  // Experts share the codes of x; `coded`: those of the run before, without x.
  std::vector<std::byte> RunCoded(ExpertsFunction experts, int workers, bool coded) {
    std::vector<std::byte> y(y_bytes_, std::byte{0x55});
    ExpertsArgs args = Args(y.data());
    args.codes = codes_.get();
    args.coded = coded;
    if (coded) args.x = nullptr;
    TeamOf(workers).Run([&](const device::WorkerContext& context) { experts(args, context); });
    return y;
  }

  ExpertsArgs Args(std::byte* y) const {
    ExpertsArgs args;
    args.weight = weight_;
    args.runs = runs_.data();
    args.offsets = offsets_.data();
    args.num_experts = static_cast<int32_t>(runs_.size());
    args.max_rows = offsets_.back() + 5;  // the capacity, not the rows
    args.x = x_.get();
    args.x_rows = case_.gathered ? x_rows_.data() : nullptr;
    args.x_count = case_.gathered ? offsets_.back() / 2 + 1 : 0;
    args.y = y;
    args.x_stride = x_stride_;
    args.y_stride = y_stride_;
    args.output = case_.output;
    return args;
  }

  std::vector<std::byte> Run(ExpertsFunction experts, int workers) const {
    std::vector<std::byte> y(y_bytes_, std::byte{0x55});
    const ExpertsArgs args = Args(y.data());
    TeamOf(workers).Run([&](const device::WorkerContext& context) { experts(args, context); });
    return y;
  }

  // Each row alone, as a dense layer of one row.
  std::vector<std::byte> RunRowByRow(LinearFunction linear) const {
    std::vector<std::byte> y(y_bytes_, std::byte{0x55});
    const Buffer workspace = NewBuffer(LinearWorkspaceBytes(case_.dtype, 1, case_.k));
    const auto element = static_cast<int64_t>(tensor::SizeOf(case_.dtype));
    for (size_t expert = 0; expert < runs_.size(); ++expert) {
      std::vector<const std::byte*> tiles;
      for (int panel = 0; panel < weight_.num_panels; ++panel)
        tiles.push_back(runs_[expert] + panel * weight_.TileBytes(0, 0));
      for (int32_t row = offsets_[expert]; row < offsets_[expert + 1]; ++row) {
        LinearArgs args;
        args.weight = weight_;
        args.weight.tiles = tiles.data();
        args.weight.bias = Args(nullptr).Bias(static_cast<int32_t>(expert));
        args.x = x_.get() + (case_.gathered ? x_rows_[row] : row) * x_stride_ * element;
        args.y = y.data() + row * y_stride_ * element;
        args.x_stride = x_stride_;
        args.y_stride = y_stride_;
        args.rows = 1;
        args.output = case_.output;
        args.leaf_end = 1;
        args.workspace = workspace.get();
        TeamOf(1).Run([&](const device::WorkerContext& context) { linear(args, context); });
      }
    }
    return y;
  }

  // All matrices as those of heads, with all rows of x each: head h reads x from element h on, and
  // writes between the others' outputs.
  std::vector<std::byte> RunHeads(ExpertsFunction experts, int workers) const {
    std::vector<std::byte> y(HeadBytes(), std::byte{0x55});
    std::vector<const std::byte*> tiles;
    for (const std::byte* run : runs_) {
      for (int panel = 0; panel < weight_.num_panels; ++panel)
        tiles.push_back(run + panel * weight_.TileBytes(0, 0));
    }
    ExpertsArgs args = Args(y.data());
    args.weight.tiles = tiles.data();
    args.runs = nullptr;
    args.offsets = nullptr;
    args.max_rows = HeadRows();
    args.y_stride = weight_.n * static_cast<int64_t>(runs_.size());
    args.x_step = 1;
    args.y_step = weight_.n;
    TeamOf(workers).Run([&](const device::WorkerContext& context) { experts(args, context); });
    return y;
  }
  std::vector<std::byte> RunHeadsRowByRow(LinearFunction linear) const {
    std::vector<std::byte> y(HeadBytes(), std::byte{0x55});
    const Buffer workspace = NewBuffer(LinearWorkspaceBytes(case_.dtype, 1, case_.k));
    const auto element = static_cast<int64_t>(tensor::SizeOf(case_.dtype));
    const auto heads = static_cast<int64_t>(runs_.size());
    for (int64_t i = 0; i < HeadRows() * heads; ++i) {
      std::vector<const std::byte*> tiles;
      for (int panel = 0; panel < weight_.num_panels; ++panel)
        tiles.push_back(runs_[i % heads] + panel * weight_.TileBytes(0, 0));
      LinearArgs args;
      args.weight = weight_;
      args.weight.tiles = tiles.data();
      args.x = x_.get() + (i / heads * x_stride_ + i % heads) * element;
      args.y = y.data() + i * weight_.n * element;
      args.x_stride = x_stride_;
      args.y_stride = weight_.n;
      args.rows = 1;
      args.leaf_end = 1;
      args.workspace = workspace.get();
      TeamOf(1).Run([&](const device::WorkerContext& context) { linear(args, context); });
    }
    return y;
  }

 private:
  // The last row's x would reach beyond the others'.
  int32_t HeadRows() const { return offsets_.back() - 1; }
  size_t HeadBytes() const {
    return static_cast<size_t>(HeadRows() * weight_.n) * runs_.size() * tensor::SizeOf(case_.dtype);
  }
  float Value() {
    const uint32_t draw = static_cast<uint32_t>(rng_());
    const float unit = static_cast<float>(draw >> 8) * 0x1p-23f - 1.0f;
    return draw % 32 == 0 ? unit * 1e-38f : unit;  // some are denormal
  }
  void Put(std::byte* data, int64_t i, float value) {
    if (case_.dtype == DType::kF32) {
      reinterpret_cast<float*>(data)[i] = value;
    } else {
      reinterpret_cast<tensor::BF16*>(data)[i] = tensor::ToBF16(value);
    }
  }
  void FillTile(std::byte* tile, int width) {
    if (case_.int8) return FillCodes(tile, width);
    std::vector<float> values(static_cast<size_t>(case_.k) * kPanelColumns);
    for (float& value : values) value = Value();
    const bool gated = IsGated(case_.output);
    const float* rows[kPanelColumns] = {};
    for (int c = 0; c < kPanelColumns; ++c) {
      if (c % (gated ? kPanelColumns / 2 : kPanelColumns) < width)
        rows[c] = &values[static_cast<size_t>(c * case_.k)];
    }
    testing::PackRounded(case_.dtype, case_.k, rows, tile);
  }
  void FillCodes(std::byte* tile, int width) {
    const testing::RandomRows columns(TileForm::kW8A8, case_.k, kPanelColumns,
                                      static_cast<unsigned>(rng_()));
    const int half = IsGated(case_.output) ? kPanelColumns / 2 : kPanelColumns;
    const StoredRow* rows[kPanelColumns] = {};
    for (int c = 0; c < kPanelColumns; ++c) {
      if (c % half < width) rows[c] = &columns[static_cast<size_t>(c)];
    }
    PackTile(TileForm::kW8A8, 0, case_.k, rows, tile);
  }

  const Case case_;
  std::mt19937_64 rng_;
  PackedWeight weight_;
  std::vector<PanelColumns> panels_;
  std::vector<float> bias_;  // [experts, panels, kPanelColumns]
  Buffer memory_, x_, codes_;
  std::vector<const std::byte*> runs_;
  std::vector<int32_t> offsets_, x_rows_;
  int64_t x_stride_ = 0, y_stride_ = 0;
  size_t y_bytes_ = 0;
};

// Model tiles are slow: one order a problem.
bool Solves(const KernelSet& set, const Case& c) {
  const bool model = set.name == std::string_view("amx on model tiles");
  return !model ||
         (c.dtype == DType::kBF16 &&
          set.numerics_class ==
              std::string_view(NumericsClassOf(kTileOrders[c.seed % std::size(kTileOrders)])));
}

void ExpectOracles(const Case& c) {
  const Problem problem(c);
  for (const auto& [set, oracle] : testing::SetsWithOracles()) {
    if (!Solves(set, c)) continue;
    const std::vector<std::byte> expected = problem.Run(oracle.experts, 1);
    for (int workers = 1; workers <= kMostWorkers; ++workers) {
      EXPECT_TRUE(problem.Run(set.experts, workers) == expected)
          << set.name << ", " << workers << " workers, seed " << c.seed << ", "
          << tensor::Name(c.dtype);
    }
  }
}

TEST(ExpertsTest, RowCounts) {
  uint64_t seed = 1;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (int rows = 0; rows <= 40; ++rows) {
      ExpectOracles({.dtype = dtype,
                     .counts = {rows, 0, 40 - rows, 1},
                     .k = 48 + rows % 3 * 31,  // odd ones too
                     .widths = {64, 64, 17},
                     .gathered = rows % 2 == 0,
                     .seed = seed++});
    }
  }
}

TEST(ExpertsTest, GatedWidths) {
  uint64_t seed = 100;
  for (const LinearOutput output :
       {LinearOutput::kSiluMul, LinearOutput::kGeluMul, LinearOutput::kClampedSiluMul}) {
    for (const int width : {1, 15, 16, 31, 32}) {
      ExpectOracles({.counts = {3, 20, 0, 7},
                     .k = 65,
                     .widths = {32, width},
                     .output = output,
                     .biased = width % 2 == 1,
                     .seed = seed++});
    }
  }
}

// Blocks of rows, and experts whose parts several workers take.
TEST(ExpertsTest, ManyRows) {
  ExpectOracles({.counts = {0, 1000, 0}, .k = 96, .widths = {64, 64, 40}, .seed = 200});
  ExpectOracles(
      {.dtype = DType::kF32, .counts = {300, 1, 0, 257}, .k = 33, .widths = {64}, .seed = 201});
  // Rows of long K come in blocks of fewer.
  ExpectOracles({.dtype = DType::kF32, .counts = {0, 100}, .k = 6600, .widths = {9}, .seed = 202});
}

TEST(ExpertsTest, ManyExperts) {
  std::vector<int> counts(128);
  for (size_t i = 0; i < counts.size(); ++i) counts[i] = static_cast<int>(i * i % 7);
  ExpectOracles({.counts = counts, .k = 64, .widths = {64, 64}, .seed = 300});
  ExpectOracles({.counts = std::vector<int>(128, 1), .k = 64, .widths = {64, 64}, .seed = 301});
  ExpectOracles({.counts = std::vector<int>(5, 0), .seed = 302});
}

TEST(ExpertsTest, ARowIsThatOfADenseLayer) {
  for (const LinearOutput output : {LinearOutput::kRounded, LinearOutput::kSiluMul}) {
    const Case c{
        .counts = {31, 0, 5, 270}, .k = 130, .widths = {32, 32, 9}, .output = output, .seed = 400};
    const Problem problem(c);
    for (const auto& [set, oracle] : testing::SetsWithOracles()) {
      if (!Solves(set, c)) continue;
      EXPECT_TRUE(problem.Run(set.experts, 2) == problem.RunRowByRow(set.linear)) << set.name;
    }
  }
}

// Codes that experts share are those that each makes.
TEST(ExpertsTest, Int8) {
  uint64_t seed = 600;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const int k : {3, 32, 77, 130}) {
      for (const bool gathered : {true, false}) {
        const Case c{.dtype = dtype,
                     .counts = {1, 0, 5, 2, 70},
                     .k = k,
                     .widths = {32, 32, 9},
                     .output = k % 2 == 0 ? LinearOutput::kSiluMul : LinearOutput::kRounded,
                     .biased = k > 100,
                     .gathered = gathered,
                     .seed = seed++,
                     .int8 = true};
        Problem problem(c);
        const std::vector<std::byte> expected = problem.Run(&ref::Experts, 1);
        for (const auto& [set, oracle] : testing::SetsWithOracles()) {
          EXPECT_TRUE(problem.RunRowByRow(set.linear) == expected) << set.name;
          for (int workers = 1; workers <= kMostWorkers; ++workers) {
            EXPECT_TRUE(problem.Run(set.experts, workers) == expected) << set.name << " K " << k;
            if (!gathered || set.isa == Isa::kRef) continue;
            for (const bool coded : {false, true}) {
              EXPECT_TRUE(problem.RunCoded(set.experts, workers, coded) == expected)
                  << set.name << ", " << workers << " workers, K " << k << " coded " << coded;
            }
          }
        }
      }
    }
  }
}

TEST(ExpertsTest, HeadsAreDenseLayersOfAllRows) {
  uint64_t seed = 500;
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const int rows : {1, 2, 7, 40, 300}) {
      const Case c{.dtype = dtype,
                   .counts = {rows, 1, 0},
                   .k = rows % 2 == 0 ? 48 : 23,
                   .widths = {64, 17},
                   .gathered = false,
                   .seed = seed++};
      const Problem problem(c);
      for (const auto& [set, oracle] : testing::SetsWithOracles()) {
        if (!Solves(set, c)) continue;
        const std::vector<std::byte> expected = problem.RunHeadsRowByRow(set.linear);
        for (int workers = 1; workers <= kMostWorkers; ++workers) {
          EXPECT_TRUE(problem.RunHeads(set.experts, workers) == expected)
              << set.name << ", " << workers << " workers, " << rows << " rows of "
              << tensor::Name(dtype);
        }
        EXPECT_TRUE(problem.RunHeads(oracle.experts, 1) == expected) << set.name << "'s oracle";
      }
    }
  }
}

}  // namespace
}  // namespace forebay::kernels

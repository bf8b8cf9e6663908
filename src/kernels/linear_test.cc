// Every set against ref/ by memcmp: the bytes of y, of the gaps between its rows too.
#include "kernels/linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "kernels/cpu/linear_blocking.h"
#include "kernels/kernel_set.h"
#include "kernels/linear_sets.h"
#include "kernels/testing/pack_rounded.h"
#include "kernels/testing/team.h"
#include "tensor/bf16.h"

namespace forebay::kernels {
namespace {

using tensor::BF16;
using tensor::DType;

struct Set {
  const char* name;
  LinearFunction linear;
  LinearFunction oracle = &ref::Linear;   // the oracle of its numerics class
  TileOrder model = TileOrder::kUnknown;  // the order of model tiles, which are slow

  // Each problem of bf16 is solved on model tiles of one order.
  bool Solves(DType dtype, uint64_t seed) const {
    return model == TileOrder::kUnknown ||
           (dtype == DType::kBF16 && model == kTileOrders[seed % std::size(kTileOrders)]);
  }
};

Set OnModelTiles(const char* name, TileOrder order) {
  return {name, amx::LinearOnModelTiles(order), ref::TileLinear(order), order};
}

// What this machine can run; the others are named once.
const std::vector<Set>& Sets() {
  static const std::vector<Set> sets = [] {
    struct Candidate {
      bool available;
      Set set;
    };
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const Candidate candidates[] = {
        {static_cast<bool>(__builtin_cpu_supports("avx512bf16")) &&
             avx512bf16::DotProductMatchesFma(),
         {"avx512bf16", &avx512bf16::Linear}},
        {__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"),
         {"avx512f", &avx512f::Linear}},
        {avx2, {"avx2", &avx2::Linear}},
        {avx2, OnModelTiles("amx_split on model tiles", TileOrder::kSplit)},
        {avx2, OnModelTiles("amx_even on model tiles", TileOrder::kEvenFirst)},
        {avx2, OnModelTiles("amx_odd on model tiles", TileOrder::kOddFirst)},
        {HardwareTileOrder() != TileOrder::kUnknown,
         {"amx", &amx::Linear, ref::TileLinear(HardwareTileOrder())}},
    };
    std::vector<Set> result;
    for (const Candidate& candidate : candidates) {
      if (candidate.available) {
        result.push_back(candidate.set);
      } else {
        std::printf("skipped: set %s is not for this machine\n", candidate.set.name);
      }
    }
    return result;
  }();
  return sets;
}

struct Case {
  DType dtype = DType::kBF16;
  int rows = 1, k = 64, leaves = 1, workers = 1;
  std::vector<int> widths = {64};  // widths of the panels
  LinearOutput output = LinearOutput::kRounded;
  int leaf_begin = 0, leaf_end = -1;
  bool bias = false;
  float scale = 1;  // scales x and w: small ones give denormal products and sums
  uint64_t seed = 1;

  std::string ToString() const {
    std::string text = fmt::format(
        "{} rows {} K {} leaves {} [{}, {}) workers {} output {} bias {} scale {} widths",
        tensor::Name(dtype), rows, k, leaves, leaf_begin, leaf_end, workers,
        static_cast<int>(output), bias, scale);
    for (const int width : widths) text += fmt::format(" {}", width);
    return text;
  }
};

// Owns what LinearArgs point to; every buffer is of the exact size that the contract allows to be
// read.
class Problem {
 public:
  explicit Problem(const Case& c) : case_(c), rng_(c.seed) {
    leaves_.num_leaves = std::min(c.leaves, c.k);
    for (int i = 0; i <= leaves_.num_leaves; ++i) leaves_.begin[i] = i * c.k / leaves_.num_leaves;
    const int num_panels = static_cast<int>(c.widths.size());
    for (const int width : c.widths) {
      panels_.push_back({n_, width});
      n_ += width;
    }
    for (int leaf = 0; leaf < leaves_.num_leaves; ++leaf) {
      for (int panel = 0; panel < num_panels; ++panel) AddTile(leaf, c.widths[panel]);
    }
    for (auto& tile : tiles_) tile_pointers_.push_back(tile.get());
    if (c.bias) {
      for (int i = 0; i < num_panels * kPanelColumns; ++i) bias_.push_back(Value());
    }
    x_stride_ = c.k + static_cast<int>(rng_() % 5);
    const size_t x_elements = static_cast<size_t>(c.rows - 1) * x_stride_ + c.k;
    x_.reset(new std::byte[x_elements * tensor::SizeOf(c.dtype)]);
    for (size_t i = 0; i < x_elements; ++i) Put(x_.get(), i, Value());
    y_stride_ = n_ + static_cast<int>(rng_() % 5);
    int first[kMaxLeaves], level[kMaxLeaves];
    const int planes =
        c.output != LinearOutput::kPartial
            ? 1
            : PartialPlanes(leaves_.num_leaves, c.leaf_begin, LeafEnd(), first, level);
    y_elements_ = static_cast<size_t>(planes * c.rows - 1) * y_stride_ + n_;
    y_.resize(y_elements_ * (fp32_output() ? sizeof(float) : tensor::SizeOf(c.dtype)));
    for (size_t i = 0; i < y_elements_; ++i) {
      const float value = Value();
      if (fp32_output()) {
        std::memcpy(&y_[i * 4], &value, 4);
      } else {
        Put(y_.data(), i, value);
      }
    }
    workspace_.reset(new (std::align_val_t{64})
                         std::byte[LinearWorkspaceBytes(c.dtype, c.rows, c.k)]);
  }

  bool fp32_output() const {
    return case_.output == LinearOutput::kF32 || case_.output == LinearOutput::kPartial;
  }
  int64_t y_stride() const { return y_stride_; }
  int n() const { return n_; }

  LinearArgs Args(std::byte* y) const {
    LinearArgs args;
    PackedWeight& weight = args.weight;
    weight.dtype = case_.dtype;
    weight.k = case_.k;
    weight.n = n_;
    weight.num_panels = static_cast<int>(panels_.size());
    weight.leaves = leaves_;
    weight.tiles = tile_pointers_.data();
    weight.panels = panels_.data();
    weight.bias = bias_.empty() ? nullptr : bias_.data();
    args.x = x_.get();
    args.y = y;
    args.x_stride = x_stride_;
    args.y_stride = y_stride_;
    args.rows = case_.rows;
    args.output = case_.output;
    args.leaf_begin = case_.leaf_begin;
    args.leaf_end = LeafEnd();
    args.workspace = workspace_.get();
    return args;
  }

  // y after the kernel; before it y holds the same random numbers each time.
  std::vector<std::byte> Run(LinearFunction linear, int workers) const {
    static std::unique_ptr<testing::Team> teams[6];
    if (teams[workers] == nullptr)
      teams[workers] = std::make_unique<testing::Team>(workers, 1 << 20);
    std::vector<std::byte> y = y_;
    const LinearArgs args = Args(y.data());
    teams[workers]->Run([&](const device::WorkerContext& context) { linear(args, context); });
    return y;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  int LeafEnd() const {
    return case_.leaf_end < 0 ? leaves_.num_leaves : std::min(case_.leaf_end, leaves_.num_leaves);
  }

  float Value() {
    const uint32_t draw = static_cast<uint32_t>(rng_());
    const float unit = (static_cast<float>(draw >> 8) * 0x1p-23f - 1.0f) * case_.scale;
    switch (draw % 32) {
      case 0: return 0.0f;
      case 1: return -0.0f;
      case 2: return unit * 1e-38f;  // denormal, mostly
      case 3: return unit * 1e4f;
      default: return unit;
    }
  }
  void Put(std::byte* data, size_t i, float value) {
    if (case_.dtype == DType::kF32) {
      std::memcpy(data + i * 4, &value, 4);
    } else {
      // Denormal bf16 are kept here: kernels must flush them.
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      const uint16_t upper = static_cast<uint16_t>(bits >> 16);
      std::memcpy(data + i * 2, &upper, 2);
    }
  }
  void AddTile(int leaf, int width) {
    const int k_leaf = leaves_.begin[leaf + 1] - leaves_.begin[leaf];
    std::vector<float> values(static_cast<size_t>(width) * k_leaf);
    for (float& value : values) value = Value();
    const float* rows[kPanelColumns] = {};
    for (int c = 0; c < width; ++c) rows[c] = &values[static_cast<size_t>(c) * k_leaf];
    if (IsGated(case_.output)) {  // up rows: any numbers
      for (int c = 0; c < width; ++c) rows[kPanelColumns / 2 + c] = rows[width - 1 - c];
    }
    const size_t bytes =
        static_cast<size_t>((k_leaf + 1) / 2) * kPanelColumns * 2 * tensor::SizeOf(case_.dtype);
    tiles_.emplace_back(new (std::align_val_t{64}) std::byte[bytes]);
    testing::PackRounded(case_.dtype, k_leaf, rows, tiles_.back().get());
  }

  Case case_;
  std::mt19937_64 rng_;
  LeafBorders leaves_;
  int n_ = 0, x_stride_ = 0, y_stride_ = 0;
  size_t y_elements_ = 0;
  std::vector<PanelColumns> panels_;
  std::vector<std::unique_ptr<std::byte, Free>> tiles_;
  std::vector<const std::byte*> tile_pointers_;
  std::vector<float> bias_;
  std::unique_ptr<std::byte[]> x_;
  std::vector<std::byte> y_;
  std::unique_ptr<std::byte, Free> workspace_;
};

void ExpectSetsMatchRef(const Case& c) {
  const Problem problem(c);
  std::map<LinearFunction, std::vector<std::byte>> wanted;
  for (const Set& set : Sets()) {
    if (!set.Solves(c.dtype, c.seed)) continue;
    if (!wanted.contains(set.oracle)) wanted[set.oracle] = problem.Run(set.oracle, 1);
    const std::vector<std::byte>& want = wanted[set.oracle];
    const std::vector<std::byte> got = problem.Run(set.linear, c.workers);
    if (std::memcmp(want.data(), got.data(), want.size()) == 0) continue;
    const size_t at = std::mismatch(want.begin(), want.end(), got.begin()).first - want.begin();
    ADD_FAILURE() << set.name << ": " << c.ToString() << ", first at byte " << at << " of "
                  << want.size();
  }
}

const std::vector<std::vector<int>>& Widths(LinearOutput output) {
  static const std::vector<std::vector<int>> kAny = {{64}, {64, 64, 64},        {16}, {48, 64, 5},
                                                     {1},  {64, 33, 64, 64, 17}};
  static const std::vector<std::vector<int>> kGateUp = {
      {32}, {32, 32, 32}, {16}, {24, 32, 5}, {1}, {32, 17, 32, 32, 31}};
  return IsGated(output) ? kGateUp : kAny;
}

std::vector<int> SweptRows() {
  std::vector<int> rows;
  for (int r = 1; r <= 40; ++r) rows.push_back(r);
  rows.insert(rows.end(), {64, 65, 128, 257, 300});
  return rows;
}

// Every row count with every K; the other dimensions are drawn.
void Sweep(DType dtype, float scale) {
  std::mt19937 rng(static_cast<unsigned>(dtype) * 100 + (scale != 1));
  for (const int rows : SweptRows()) {
    for (const int k : {1, 2, 30, 31, 33, 64, 96, 576, 1000, 1536}) {
      Case c;
      c.dtype = dtype;
      c.rows = rows;
      c.k = k;
      c.scale = scale;
      const int leaves[] = {1, 3, 4, 5, 7, 8};
      c.leaves = leaves[rng() % 6];
      c.output = static_cast<LinearOutput>(rng() % 5);
      const auto& widths = Widths(c.output);
      c.widths = widths[rng() % (rows > 64 ? 3 : widths.size())];
      c.bias = rng() % 2 == 0;
      c.workers = 1 + static_cast<int>(rng() % 3);
      c.seed = rng();
      if (c.output == LinearOutput::kPartial) {
        const int n = std::min(c.leaves, k);
        c.leaf_begin = static_cast<int>(rng() % n);
        c.leaf_end = c.leaf_begin + 1 + static_cast<int>(rng() % (n - c.leaf_begin));
      }
      ExpectSetsMatchRef(c);
    }
  }
}

TEST(LinearTest, MatchesRefBF16) { Sweep(DType::kBF16, 1); }
TEST(LinearTest, MatchesRefF32) { Sweep(DType::kF32, 1); }
// Products around 2^-126: flushing decides the bits.
TEST(LinearTest, MatchesRefAtTheDenormalBorderBF16) { Sweep(DType::kBF16, 1e-19f); }
TEST(LinearTest, MatchesRefAtTheDenormalBorderF32) { Sweep(DType::kF32, 1e-19f); }

// Open units in several pieces, which workers of all shares take.
TEST(LinearTest, MatchesRefWhereOpenUnitsAreTakenInPieces) {
  for (const int workers : {2, 4, 5}) {
    Case c;
    c.rows = 420;
    c.k = 70;
    c.leaves = 2;
    c.widths.assign(20, 16);
    c.output = LinearOutput::kResidual;
    c.workers = workers;
    const Problem problem(c);
    std::vector<std::byte> y(1);
    const LinearSchedule schedule = ScheduleLinear(problem.Args(y.data()), workers);
    EXPECT_GT(schedule.open_pieces, 1);
    const LinearShare share = ShareOf(schedule, 0, workers);
    EXPECT_LT(share.open, share.end);
    ExpectSetsMatchRef(c);
  }
}

// So long a K that it is cut into blocks, with leaf borders inside of the blocks and across them.
TEST(LinearTest, MatchesRefWhereKIsCutIntoBlocks) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    for (const int leaves : {1, 3, 8}) {
      for (const int rows : {1, 7, 50, 130}) {
        Case c;
        c.dtype = dtype;
        c.rows = rows;
        c.k = 14336 + 3;
        c.leaves = leaves;
        c.widths = {20};
        c.bias = true;
        c.workers = 2;
        ExpectSetsMatchRef(c);
        c.output = LinearOutput::kPartial;
        c.leaf_begin = leaves / 3;
        ExpectSetsMatchRef(c);
      }
    }
  }
}

// So much x that tiles take a round of it through several panels; the last unit has one.
TEST(LinearTest, TilesMatchRefWhereXLeavesTheCache) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    GTEST_SKIP() << "model tiles need AVX2";
  Case c;
  c.rows = 33;
  c.k = 16640;
  c.widths.assign(9, 64);
  c.output = LinearOutput::kResidual;
  const Problem problem(c);
  EXPECT_EQ(problem.Run(amx::LinearOnModelTiles(TileOrder::kSplit), 1),
            problem.Run(ref::TileLinear(TileOrder::kSplit), 2));
}

// More panels than a batch: leaf after leaf through those of a worker's own part, then one panel a
// ticket.
TEST(LinearTest, MatchesRefWhereAFewRowsPassBatchesOfPanels) {
  for (const LinearOutput output :
       {LinearOutput::kResidual, LinearOutput::kPartial, LinearOutput::kSiluMul,
        LinearOutput::kGeluMul, LinearOutput::kClampedSiluMul, LinearOutput::kErfGelu,
        LinearOutput::kErfGeluMul, LinearOutput::kReluSquared}) {
    for (const int leaves : {1, 3, 8}) {
      for (int rows = 1; rows <= kTileRows + 1; ++rows) {
        Case c;
        c.rows = rows;
        c.k = 514;
        c.leaves = leaves;
        c.widths = std::vector<int>(5 * kBatchPanels / 2, IsGated(output) ? 32 : 64);
        c.widths.push_back(7);
        c.output = output;
        c.leaf_begin = output == LinearOutput::kPartial ? leaves / 3 : 0;
        c.workers = 1 + rows % 3;
        ExpectSetsMatchRef(c);
      }
    }
  }
}

// The rows of a batch are the rows alone.
TEST(LinearTest, ARowAloneHasTheSameBytes) {
  for (const Set& set : Sets()) {
    Case c;
    c.rows = 300;
    c.k = 256;
    c.leaves = 8;
    c.widths = {64, 64};
    const Problem problem(c);
    const std::vector<std::byte> batch = problem.Run(set.linear, 2);
    for (const int row : {0, 5, 6, 149, 150, 299}) {
      std::vector<std::byte> y(problem.n() * sizeof(BF16));
      LinearArgs args = problem.Args(y.data());
      args.x += row * args.x_stride * sizeof(BF16);
      args.rows = 1;
      testing::Team team(1);
      team.Run([&](const device::WorkerContext& context) { set.linear(args, context); });
      EXPECT_EQ(std::memcmp(y.data(), &batch[row * problem.y_stride() * sizeof(BF16)], y.size()), 0)
          << set.name << row;
    }
  }
}

// What ranks do with their partial sums: planes joined by (first leaf, level), lowest level first,
// give the full sum.
TEST(LinearTest, PartialPlanesJoinToTheFullSum) {
  for (const int leaves : {1, 2, 3, 5, 6, 7, 8}) {
    for (int ranks = 1; ranks <= leaves; ++ranks) {
      Case c;
      c.rows = 3;
      c.k = 640;
      c.leaves = leaves;
      c.widths = {40};
      c.output = LinearOutput::kF32;
      const Problem full(c);
      const std::vector<std::byte> want_bytes = full.Run(&ref::Linear, 1);
      c.output = LinearOutput::kPartial;
      struct Node {
        int first, level;
        std::vector<float> sums;
      };
      std::vector<Node> nodes;
      for (int rank = 0; rank < ranks; ++rank) {
        c.leaf_begin = rank * leaves / ranks;
        c.leaf_end = (rank + 1) * leaves / ranks;
        const Problem part(c);
        const std::vector<std::byte> planes = part.Run(&ref::Linear, 1);
        int first[kMaxLeaves], level[kMaxLeaves];
        const int num_planes = PartialPlanes(leaves, c.leaf_begin, c.leaf_end, first, level);
        for (int plane = 0; plane < num_planes; ++plane) {
          Node node{first[plane], level[plane], std::vector<float>(c.rows * 40)};
          for (int row = 0; row < c.rows; ++row) {
            std::memcpy(&node.sums[row * 40], &planes[(plane * c.rows + row) * part.y_stride() * 4],
                        40 * 4);
          }
          nodes.push_back(std::move(node));
        }
      }
      // Each level: neighbours add, a node without a partner goes up.
      for (int level = 0; (1 << level) < leaves; ++level) {
        for (size_t i = 0; i < nodes.size(); ++i) {
          if (nodes[i].level != level) continue;
          ASSERT_EQ(nodes[i].first % (1 << level), 0);
          ++nodes[i].level;
          if (nodes[i].first % (2 << level) != 0 || nodes[i].first + (1 << level) >= leaves)
            continue;
          ASSERT_EQ(nodes[i + 1].first, nodes[i].first + (1 << level));
          for (size_t j = 0; j < nodes[i].sums.size(); ++j)
            nodes[i].sums[j] += nodes[i + 1].sums[j];
          nodes.erase(nodes.begin() + i + 1);
        }
      }
      ASSERT_EQ(nodes.size(), 1u);
      for (int row = 0; row < c.rows; ++row) {
        EXPECT_EQ(
            std::memcmp(&nodes[0].sums[row * 40], &want_bytes[row * full.y_stride() * 4], 40 * 4),
            0)
            << leaves << " leaves, " << ranks << " ranks";
      }
    }
  }
}

std::vector<std::pair<int, int>> Planes(int leaves, int begin, int end) {
  int first[kMaxLeaves], level[kMaxLeaves];
  std::vector<std::pair<int, int>> planes;
  const int n = PartialPlanes(leaves, begin, end, first, level);
  for (int i = 0; i < n; ++i) planes.emplace_back(first[i], level[i]);
  return planes;
}

TEST(PartialPlanesTest, AreTheMaximalSubtrees) {
  using P = std::vector<std::pair<int, int>>;
  EXPECT_EQ(Planes(8, 0, 8), (P{{0, 3}}));
  EXPECT_EQ(Planes(8, 0, 3), (P{{0, 1}, {2, 0}}));
  EXPECT_EQ(Planes(8, 3, 6), (P{{3, 0}, {4, 1}}));
  EXPECT_EQ(Planes(8, 6, 8), (P{{6, 1}}));
  EXPECT_EQ(Planes(8, 1, 8), (P{{1, 0}, {2, 1}, {4, 2}}));
  EXPECT_EQ(Planes(1, 0, 1), (P{{0, 0}}));
  EXPECT_EQ(Planes(5, 0, 5), (P{{0, 3}}));
  EXPECT_EQ(Planes(5, 4, 5), (P{{4, 2}}));  // a leaf without a partner is its own parent
  EXPECT_EQ(Planes(3, 1, 3), (P{{1, 0}, {2, 1}}));
}

TEST(LinearBlockingTest, CutsRowsToLoadTheWorkers) {
  LinearArgs args;
  args.weight.k = 576;
  args.weight.leaves = LeafBorders::Single(576);
  args.leaf_end = 1;
  args.weight.num_panels = 9;
  args.rows = 256;
  EXPECT_EQ(ScheduleLinear(args, 1).row_blocks, 1);
  EXPECT_EQ(ScheduleLinear(args, 2).row_blocks, 2);  // 9 panels over 2 workers
  args.weight.num_panels = 32;
  EXPECT_EQ(ScheduleLinear(args, 1).row_blocks, 1);
  EXPECT_EQ(ScheduleLinear(args, 2).row_blocks, 2);  // a worker keeps its rows
  args.rows = 600;
  EXPECT_EQ(ScheduleLinear(args, 2).row_blocks, 4);
  args.weight.k = 14336;  // x of 96 rows is long enough
  args.weight.leaves = LeafBorders::Single(14336);
  EXPECT_EQ(ScheduleLinear(args, 1).row_blocks, 7);
  args.rows = 100;
  args.weight.k = 576;
  args.weight.leaves = LeafBorders::Single(576);
  EXPECT_EQ(ScheduleLinear(args, 2).row_blocks, 1);
  args.rows = 1;
  args.weight.num_panels = 1;
  EXPECT_EQ(ScheduleLinear(args, 8).row_blocks, 1);
}

TEST(LinearBlockingTest, SharesHaveEachUnitOnceAndTheTicketHoldsTheirPieces) {
  LinearArgs args;
  args.weight.k = 64;
  args.weight.leaves = LeafBorders::Single(64);
  args.leaf_end = 1;
  for (const int panels : {1, 7, 64, 5000}) {
    for (const int rows : {1, 128, 1000, 100000}) {
      for (const int workers : {1, 2, 3, 6, 48}) {
        args.weight.num_panels = panels;
        args.rows = rows;
        const LinearSchedule schedule = ScheduleLinear(args, workers);
        EXPECT_EQ(workers % schedule.shares, 0);
        int64_t end = 0, open = 0;
        for (int i = 0; i < schedule.shares; ++i) {
          const LinearShare share = ShareOf(schedule, i, workers);
          EXPECT_EQ(share.begin, end);
          EXPECT_LE(share.begin, share.open);
          EXPECT_LT((share.end - share.open) * schedule.open_pieces + workers,
                    int64_t{1} << kShareBits);
          open += share.end - share.open;
          end = share.end;
          // Where a share has rows of its own, it has whole blocks.
          if (rows >= 64 * schedule.shares) {
            EXPECT_EQ(share.begin % panels, 0);
          }
        }
        EXPECT_EQ(end, schedule.units);
        EXPECT_EQ(open, workers == 1 ? 0 : schedule.units / 8);
      }
    }
  }
}

TEST(LinearBlockingTest, ASingleTilePassesWholeLeaves) {
  LinearArgs args;
  args.weight.k = 5632;
  args.weight.num_panels = 32;
  args.weight.leaves = LeafBorders::ForDown(5632);
  args.leaf_end = args.weight.leaves.num_leaves;
  args.rows = kTileRows;
  LinearSchedule schedule = ScheduleLinear(args, 2);
  EXPECT_EQ(schedule.num_groups, 8);
  EXPECT_EQ(schedule.num_segments, 8);
  EXPECT_EQ(schedule.batch_panels, kBatchPanels);
  args.rows = kTileRows + 1;
  schedule = ScheduleLinear(args, 2);
  EXPECT_GT(schedule.num_groups, 8);
  EXPECT_EQ(schedule.batch_panels, 1);
}

TEST(LinearBlockingTest, SegmentsCoverEachLeafOnceInOrder) {
  for (const int k : {1, 31, 576, 4096, 14336, 100000}) {
    for (const int leaves : {1, 3, 5, 8}) {
      LinearArgs args;
      args.rows = 40;
      args.weight.k = k;
      args.weight.num_panels = 4;
      args.weight.leaves.num_leaves = std::min(leaves, k);
      for (int i = 0; i <= args.weight.leaves.num_leaves; ++i) {
        args.weight.leaves.begin[i] = static_cast<int64_t>(k) * i / args.weight.leaves.num_leaves;
      }
      args.leaf_end = args.weight.leaves.num_leaves;
      const LinearSchedule schedule = ScheduleLinear(args, 2);
      int leaf = -1, pair = 0, x_pair = 0, group_pairs = 0;
      for (int i = 0; i < schedule.num_segments; ++i) {
        const LinearSegment& segment = schedule.segments[i];
        if (segment.leaf != leaf) {
          EXPECT_EQ(segment.leaf, ++leaf);
          EXPECT_FALSE(segment.resume);
          pair = 0;
        } else {
          EXPECT_TRUE(segment.resume);
        }
        EXPECT_EQ(segment.pair, pair);
        EXPECT_EQ(segment.x_pair, x_pair);
        EXPECT_GT(segment.num_pairs, 0);
        pair += segment.num_pairs;
        x_pair += segment.num_pairs;
        group_pairs += segment.num_pairs;
        EXPECT_LE(group_pairs, schedule.group_pairs);
        if (segment.group_end) group_pairs = 0;
      }
      EXPECT_EQ(leaf + 1, args.leaf_end);
      EXPECT_EQ(x_pair, schedule.pairs);
      EXPECT_EQ(group_pairs, 0);
      EXPECT_EQ(schedule.segments[schedule.num_segments - 1].plane, 0);
    }
  }
}

}  // namespace
}  // namespace forebay::kernels

#include "weights/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "runtime/real/real_runtime.h"
#include "tensor/bf16.h"
#include "weights/random_reader.h"

namespace forebay::weights {
namespace {

constexpr int64_t kHidden = 96, kHeads = 3, kKvHeads = 1, kHeadDim = 48, kWide = 80;

std::map<std::string, tensor::Shape, std::less<>> Shapes() {
  return {{"q", {kHeads * kHeadDim, kHidden}},
          {"k", {kKvHeads * kHeadDim, kHidden}},
          {"v", {kKvHeads * kHeadDim, kHidden}},
          {"q.bias", {kHeads * kHeadDim}},
          {"gate", {kWide, kHidden}},
          {"up", {kWide, kHidden}},
          {"down", {kHidden, kWide}}};
}

class Loader : public testing::Test {
 protected:
  Loader() : runtime_(runtime::CreateRealRuntime()) {
    device_ = std::move(
        *device::CreateCpuDevice(*runtime_, {.memory_bytes = 64 << 20, .num_workers = 1}));
  }
  // REQUIRES: the plan outlives what is returned.
  PlacedMatrix Load(const MatrixPlan& plan) {
    const device::Region* region = *device_->arena().Allocate("weights", plan.TileBytes());
    const device::Region* tables =
        *device_->arena().Allocate("tables", plan.TableBytes(), device::MemoryUse::kControl);
    device::RegionCutter cutter(*region), table_cutter(*tables);
    const PlacedMatrix matrix{&plan, PlaceMatrix(plan, &table_cutter)};
    ForEachRun(matrix.placed.weight, plan.num_experts,
               [&](const RunPlace& run) { SetRun(matrix.placed, run, cutter.Cut(run.bytes)); });
    EXPECT_LE(cutter.used(), region->bytes);
    EXPECT_LE(table_cutter.used(), tables->bytes);
    const base::Status status = LoadMatrices(reader_, std::span(&matrix, 1), 2);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return matrix;
  }
  std::vector<float> Rows(const std::string& name) {
    const tensor::Shape shape = *reader_.ShapeOf(name);
    std::vector<float> rows(shape.elements());
    EXPECT_TRUE(reader_.ReadRows(name, 0, shape.rank() == 1 ? 1 : shape[0], rows.data()).ok());
    return rows;
  }
  // Element (column, k) of a leaf's tile.
  static float At(const PlacedMatrix& matrix, int leaf, int panel, int64_t k, int column) {
    const auto* tile = reinterpret_cast<const tensor::BF16*>(
        matrix.placed.weight.tiles[leaf * matrix.placed.weight.num_panels + panel]);
    return tensor::ToFloat(tile[(k / 2 * kernels::kPanelColumns + column) * 2 + k % 2]);
  }
  static float Rounded(float x) { return tensor::ToFloat(tensor::ToBF16(x)); }

  RandomReader reader_{7, Shapes()};
  std::unique_ptr<runtime::Runtime> runtime_;
  std::unique_ptr<device::Device> device_;
};

// Halves of what rope turns: first the first elements of the stored pairs, then the second ones.
TEST_F(Loader, PairsOfNeighboursBecomeHalves) {
  const int64_t plain = kHeadDim - 8;
  const MatrixPlan plan = PlanHeads(
      "heads", tensor::DType::kBF16, "q",
      {.heads = kHeads, .head_rows = kHeadDim, .rows = kHeadDim, .interleaved = 8}, kHidden);
  ASSERT_EQ(plan.panels().size(), 3u);
  EXPECT_EQ(plan.n, kHeads * kHeadDim);
  EXPECT_EQ(plan.panels()[2].columns.column, 2 * kHeadDim);
  const PlacedMatrix matrix = Load(plan);
  const std::vector<float> q = Rows("q");
  const auto stored = [&](int64_t row, int64_t k) { return Rounded(q[row * kHidden + k]); };
  for (int head = 0; head < kHeads; ++head) {
    const int64_t first = head * kHeadDim;
    EXPECT_EQ(At(matrix, 0, head, 11, static_cast<int>(plain) - 1), stored(first + plain - 1, 11));
    for (int i = 0; i < 4; ++i) {
      const int column = static_cast<int>(plain) + i;
      EXPECT_EQ(At(matrix, 0, head, 11, column), stored(first + plain + 2 * i, 11));
      EXPECT_EQ(At(matrix, 0, head, 11, column + 4), stored(first + plain + 2 * i + 1, 11));
    }
  }
  const MatrixPlan qkv =
      PlanQkv("qkv", tensor::DType::kBF16, {"q", "k", "v", "", "", ""},
              {kHeads, kKvHeads, {0, 1, 2}, {0}, {kHeadDim, kHeadDim, true}}, kHidden);
  const PlacedMatrix turned = Load(qkv);
  const std::vector<float> v = Rows("v");
  EXPECT_EQ(At(turned, 0, 1, 3, 1), stored(kHeadDim + 2, 3));
  EXPECT_EQ(At(turned, 0, 1, 3, kHeadDim / 2), stored(kHeadDim + 1, 3));
  EXPECT_EQ(At(turned, 0, 4, 3, 1), Rounded(v[1 * kHidden + 3]));  // values are not turned
}

// Some rows of each head, as they are and transposed.
TEST_F(Loader, PartsOfHeads) {
  const HeadRows rows{.heads = kHeads, .head_rows = kHeadDim, .first = 7, .rows = 20};
  const MatrixPlan plan = PlanHeads("heads", tensor::DType::kBF16, "q", rows, kHidden),
                   turned = PlanTransposedHeads("turned", tensor::DType::kBF16, "q", rows, kHidden);
  EXPECT_EQ(turned.k, 20);
  EXPECT_EQ(turned.n, kHeads * kHidden);
  ASSERT_EQ(turned.panels().size(), 2u * kHeads);  // 96 columns: 64 and 32
  const PlacedMatrix matrix = Load(plan), transposed = Load(turned);
  const std::vector<float> q = Rows("q");
  for (int head = 0; head < kHeads; ++head) {
    for (int row = 0; row < 20; ++row) {
      for (const int64_t k : {0, 1, 63, 64, 95}) {
        const float stored = Rounded(q[(head * kHeadDim + 7 + row) * kHidden + k]);
        EXPECT_EQ(At(matrix, 0, head, k, row), stored);
        EXPECT_EQ(
            At(transposed, 0, 2 * head + static_cast<int>(k / 64), row, static_cast<int>(k % 64)),
            stored);
      }
    }
  }
}

// A part of a head is turned: pairs come first, what rope leaves alone fills both halves.
TEST(HeadOrder, TurnedElementsPairAcrossHalves) {
  const auto order = [](const HeadOrder& head) {
    std::vector<int64_t> stored;
    for (int64_t i = 0; i < head.head_dim; ++i) stored.push_back(head.Stored(i));
    return stored;
  };
  using Order = std::vector<int64_t>;
  EXPECT_EQ(order({8, 8, false}), (Order{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(order({8, 8, true}), (Order{0, 2, 4, 6, 1, 3, 5, 7}));
  EXPECT_EQ(order({8, 4, false}), (Order{0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(order({8, 4, true}), (Order{0, 2, 4, 5, 1, 3, 6, 7}));
}

TEST_F(Loader, QkvIsPackedHeadByHead) {
  const MatrixPlan plan = PlanQkv("qkv", tensor::DType::kBF16, {"q", "k", "v", "q.bias", "", ""},
                                  {kHeads, kKvHeads, {0, 1, 2}, {0}, {kHeadDim}}, kHidden);
  ASSERT_EQ(plan.panels().size(), 5u);  // a panel of 48 columns for each head
  EXPECT_EQ(plan.panels()[3].columns.column, 3 * kHeadDim);
  EXPECT_EQ(plan.panels()[3].columns.width, kHeadDim);
  const PlacedMatrix matrix = Load(plan);
  const std::vector<float> q = Rows("q"), v = Rows("v"), bias = Rows("q.bias");
  EXPECT_EQ(At(matrix, 0, 2, 17, 5), Rounded(q[(2 * kHeadDim + 5) * kHidden + 17]));
  EXPECT_EQ(At(matrix, 0, 4, 95, 47), Rounded(v[47 * kHidden + 95]));
  EXPECT_EQ(At(matrix, 0, 4, 95, 48), 0.0f);
  EXPECT_EQ(matrix.placed.weight.bias[2 * kernels::kPanelColumns + 5],
            Rounded(bias[2 * kHeadDim + 5]));
  EXPECT_EQ(matrix.placed.weight.bias[3 * kernels::kPanelColumns + 5], 0.0f);
}

TEST_F(Loader, ARankPacksItsOwnHeadsInTheOrderOfTheirSlots) {
  const MatrixPlan plan = PlanQkv("qkv", tensor::DType::kBF16, {"q", "k", "v", "", "", ""},
                                  {kHeads, kKvHeads, {2, 0}, {0}, {kHeadDim}}, kHidden);
  EXPECT_EQ(plan.n, 4 * kHeadDim);
  const PlacedMatrix matrix = Load(plan);
  const std::vector<float> q = Rows("q");
  EXPECT_EQ(At(matrix, 0, 0, 9, 5), Rounded(q[(2 * kHeadDim + 5) * kHidden + 9]));
  EXPECT_EQ(At(matrix, 0, 1, 9, 5), Rounded(q[5 * kHidden + 9]));
}

// Heads of 48 rows fill panels of 64 columns, those of q, of k and of v for themselves.
TEST_F(Loader, HeadsMaySharePanels) {
  QkvHeads heads{kHeads, kKvHeads, {2, 0, 1}, {0}, {kHeadDim}};
  heads.share_panels = true;
  const MatrixPlan plan =
      PlanQkv("qkv", tensor::DType::kBF16, {"q", "k", "v", "q.bias", "", ""}, heads, kHidden);
  ASSERT_EQ(plan.panels().size(), 5u);  // 64, 64 and 16 columns of q, 48 of k and of v
  EXPECT_EQ(plan.panels()[2].columns.column, 128);
  EXPECT_EQ(plan.panels()[2].columns.width, 16);
  EXPECT_EQ(plan.panels()[3].columns.column, 3 * kHeadDim);
  EXPECT_EQ(plan.n, 5 * kHeadDim);
  const PlacedMatrix matrix = Load(plan);
  const std::vector<float> q = Rows("q"), v = Rows("v"), bias = Rows("q.bias");
  EXPECT_EQ(At(matrix, 0, 0, 9, 47), Rounded(q[(2 * kHeadDim + 47) * kHidden + 9]));
  EXPECT_EQ(At(matrix, 0, 0, 9, 48), Rounded(q[9]));
  EXPECT_EQ(At(matrix, 0, 1, 9, 0), Rounded(q[16 * kHidden + 9]));
  EXPECT_EQ(At(matrix, 0, 2, 9, 15), Rounded(q[(2 * kHeadDim - 1) * kHidden + 9]));
  EXPECT_EQ(At(matrix, 0, 4, 95, 47), Rounded(v[47 * kHidden + 95]));
  EXPECT_EQ(matrix.placed.weight.bias[1 * kernels::kPanelColumns], Rounded(bias[16]));
}

TEST_F(Loader, GateAndUpShareAPanel) {
  const MatrixPlan plan =
      PlanGateUp("gate_up", tensor::DType::kBF16, "gate", "up", "", "", kWide, kHidden);
  const PlacedMatrix matrix = Load(plan);
  ASSERT_EQ(matrix.placed.weight.num_panels, 3);  // 32 + 32 + 16 pairs of columns
  const std::vector<float> gate = Rows("gate"), up = Rows("up");
  EXPECT_EQ(At(matrix, 0, 1, 3, 2), Rounded(gate[34 * kHidden + 3]));
  EXPECT_EQ(At(matrix, 0, 1, 3, 32 + 2), Rounded(up[34 * kHidden + 3]));
  EXPECT_EQ(plan.panels()[2].columns.width, 16);
  EXPECT_EQ(At(matrix, 0, 2, 3, 16), 0.0f);
}

TEST_F(Loader, LeavesAreCutAlongK) {
  const auto leaves = kernels::LeafBorders::ForDown(kWide);
  ASSERT_EQ(leaves.num_leaves, 2);
  const MatrixPlan plan =
      PlanMatrix("down", tensor::DType::kBF16, "down", "", kHidden, kWide, leaves);
  const PlacedMatrix matrix = Load(plan);
  const std::vector<float> down = Rows("down");
  EXPECT_EQ(At(matrix, 1, 1, 1, 4), Rounded(down[(64 + 4) * kWide + leaves.begin[1] + 1]));
}

// Q4_0 by its definition, in double; and codes that expand to what they were made of.
TEST(QuantiseRow, Q4_0) {
  constexpr auto kForm = kernels::TileForm::kQ4_0;
  constexpr int64_t kSize = 3 * 32 + 6;
  const RandomReader reader(5, {{"m", {1, kSize}}});
  std::vector<float> values(kSize), expanded(kSize);
  ASSERT_TRUE(reader.ReadRows("m", 0, 1, values.data()).ok());
  std::fill_n(values.begin() + 32, 32, 0.0f);
  for (int64_t i = 64; i < 96; ++i) values[i] *= 1e-4f;  // a scale that is a denormal fp16
  StoredRowMemory row, again;
  QuantiseRow(kForm, values.data(), kSize, &row);
  EXPECT_EQ(FindBadGroup(kForm, row, kSize), -1);
  kernels::ExpandRow(kForm, row.view(), 0, kSize, expanded.data());
  for (int64_t group = 0; group < 4; ++group) {
    const auto begin = values.begin() + group * 32, end = std::min(begin + 32, values.end());
    const double extreme =
        *std::max_element(begin, end, [](float a, float b) { return std::abs(a) < std::abs(b); });
    const double step = extreme / -8;
    for (auto value = begin; value < end; ++value) {
      const int64_t i = value - values.begin();
      const double code = extreme == 0 ? 8 : std::min(15.0, std::floor(*value / step + 8.5));
      EXPECT_EQ(row.codes[i], code) << i;
      // Half a unit of fp16: of its denormals 2^-25.
      EXPECT_NEAR(expanded[i], (code - 8) * step, 8 * std::max(std::abs(step) * 0x1p-11, 0x1p-25));
    }
  }
  EXPECT_EQ(expanded[40], 0.0f);
  QuantiseRow(kForm, expanded.data(), kSize, &again);
  EXPECT_EQ(again.codes, row.codes);
  EXPECT_EQ(again.scales, row.scales);
  values[70] = 1e6f;
  QuantiseRow(kForm, values.data(), kSize, &row);
  EXPECT_EQ(FindBadGroup(kForm, row, kSize), 2);
}

TEST_F(Loader, WrongShapesAndMissingTensorsNameTheTensor) {
  MatrixPlan plan = PlanMatrix("m", tensor::DType::kBF16, "down", "", kHidden + 1, kWide,
                               kernels::LeafBorders::Single(kWide));
  PlacedMatrix placed{&plan, {.weight = plan.Geometry()}};
  base::Status status = LoadMatrices(reader_, std::span(&placed, 1), 1);
  EXPECT_EQ(status.code(), kTensorShape);
  EXPECT_NE(status.message().find("down"), std::string::npos);
  plan.tensors = {"nothing"};
  EXPECT_EQ(LoadMatrices(reader_, std::span(&placed, 1), 1).code(), kTensorMissing);
}

TEST(RandomReader, RowsDoNotDependOnHowTheyAreRead) {
  const RandomReader reader(3, {{"m", {10, 7}}, {"a.norm.weight", {5}}});
  std::vector<float> all(70), some(21), norm(5);
  ASSERT_TRUE(reader.ReadRows("m", 0, 10, all.data()).ok());
  ASSERT_TRUE(reader.ReadRows("m", 4, 7, some.data()).ok());
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 28));
  ASSERT_TRUE(reader.ReadRows("a.norm.weight", 0, 1, norm.data()).ok());
  EXPECT_EQ(norm, std::vector<float>(5, 1.0f));
}

}  // namespace
}  // namespace forebay::weights

// Matrices of experts and heads in class mma_k16f25, through the set, against ref/ by memcmp: all
// bytes of the output, gaps too, in each of the launcher's schedules.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "base/units.h"
#include "kernels/cuda/launch/experts.h"
#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/cuda/testing/watched_context.h"
#include "kernels/kernel_set.h"
#include "kernels/testing/team.h"
#include "tensor/bf16.h"

namespace forebay::kernels::cuda {
namespace {

using kernels::testing::Team;
using tensor::BF16;
using testing::TheLauncher;
using testing::WatchedContext;

struct ExpertsCase {
  const char* kernel;       // that shall run
  std::vector<int> counts;  // rows of each expert, or, all alike, of each head
  int k = 64;
  std::vector<int> widths = {64};  // of panels
  LinearOutput output = LinearOutput::kRounded;
  bool biased = false;
  bool gathered = true;
  bool heads = false;
  int others = 0;  // rows of the grouped order before these experts'
  int spare = 5;   // rows that there may be besides
};

// Owns what ExpertsArgs point to. Runs lie in memory from the last expert's on.
class ExpertsProblem {
 public:
  ExpertsProblem(const ExpertsCase& c, int seed) : case_(c), rng_(static_cast<uint64_t>(seed)) {
    const int experts = static_cast<int>(c.counts.size());
    args_.weight.k = c.k;
    args_.weight.leaves = LeafBorders::Single(c.k);
    args_.weight.num_panels = static_cast<int32_t>(c.widths.size());
    for (const int width : c.widths) {
      panels_.push_back({args_.weight.n, width});
      args_.weight.n += width;
    }
    args_.weight.panels = panels_.data();
    w_ = Random(int64_t{experts} * args_.weight.num_panels * kPanelColumns * c.k);
    if (c.biased) {
      for (int i = 0; i < experts * args_.weight.num_panels * kPanelColumns; ++i)
        bias_.push_back(static_cast<float>(rng_.Uniform() * 2 - 1));
      args_.weight.bias = bias_.data();
    }
    offsets_.push_back(c.others);
    for (const int count : c.counts) offsets_.push_back(offsets_.back() + count);
    const int rows = c.heads ? c.counts[0] : offsets_.back();
    const int of_x = c.gathered ? rows / 2 + 1 : rows;
    for (int i = 0; c.gathered && i < rows; ++i)
      x_rows_.push_back(static_cast<int32_t>(rng_.Below(static_cast<uint64_t>(of_x))));
    args_.x_stride = (c.heads ? experts * c.k : c.k) + 8;
    args_.y_stride = (c.heads ? experts * args_.weight.n : args_.weight.n) + 6;
    args_.x_step = c.heads ? c.k : 0;
    args_.y_step = c.heads ? args_.weight.n : 0;
    x_ = Random(of_x * args_.x_stride + 8);
    auto* const x = reinterpret_cast<const std::byte*>(x_.data());
    args_.x = x + (16 - reinterpret_cast<uintptr_t>(x) % 16) % 16;
    args_.x_rows = c.gathered ? x_rows_.data() : nullptr;
    args_.x_count = c.gathered ? of_x : 0;
    args_.offsets = c.heads ? nullptr : offsets_.data();
    args_.num_experts = experts;
    args_.max_rows = c.heads ? rows : rows + c.spare;
    args_.output = c.output;
    y_.resize(static_cast<size_t>(rows * args_.y_stride) * sizeof(BF16));
  }

  // Every byte that is not written stays 0xFF.
  std::vector<std::byte>& Run(PackedForm form,
                              const std::function<void(const ExpertsArgs&)>& experts) {
    if (memory_.empty() || form != args_.weight.packed) Pack(form);
    std::ranges::fill(y_, std::byte{0xFF});
    args_.y = y_.data();
    experts(args_);
    return y_;
  }

 private:
  std::vector<BF16> Random(int64_t count) {
    std::vector<BF16> values(static_cast<size_t>(count));
    for (BF16& value : values) value = tensor::ToBF16(static_cast<float>(rng_.Uniform() * 2 - 1));
    return values;
  }

  void Pack(PackedForm form) {
    PackedWeight& weight = args_.weight;
    weight.packed = form;
    const auto bytes = static_cast<size_t>(weight.bytes()), stride = bytes + 1024;
    memory_.assign(static_cast<size_t>(args_.num_experts) * stride + 1024, std::byte{0xFF});
    auto* const base = reinterpret_cast<std::byte*>(
        base::RoundUp(reinterpret_cast<uintptr_t>(memory_.data()), 1024));
    runs_.clear();
    tiles_.clear();
    for (int expert = 0; expert < args_.num_experts; ++expert) {
      std::byte* const run = base + static_cast<size_t>(args_.num_experts - 1 - expert) * stride;
      runs_.push_back(run);
      for (int panel = 0; panel < weight.num_panels; ++panel) {
        const int half = IsGated(case_.output) ? kPanelColumns / 2 : kPanelColumns;
        const BF16* columns[kPanelColumns] = {};
        for (int c = 0; c < kPanelColumns; ++c) {
          const int64_t row = (int64_t{expert} * weight.num_panels + panel) * kPanelColumns + c;
          if (c % half < panels_[static_cast<size_t>(panel)].width)
            columns[c] = w_.data() + row * case_.k;
        }
        std::byte* const tile = run + panel * weight.TileBytes(0, 0);
        PackTile(form, case_.k, columns, tile);
        tiles_.push_back(tile);
      }
    }
    args_.runs = case_.heads ? nullptr : runs_.data();
    weight.tiles = case_.heads ? tiles_.data() : nullptr;
  }

  const ExpertsCase case_;
  base::Rng rng_;
  ExpertsArgs args_;
  std::vector<PanelColumns> panels_;
  std::vector<BF16> w_, x_;
  std::vector<float> bias_;
  std::vector<int32_t> offsets_, x_rows_;
  std::vector<std::byte> memory_, y_;
  std::vector<const std::byte*> runs_, tiles_;
};

void TryExperts(const ExpertsCase& c) {
  static Team oracle(TheLauncher().fast() ? 16 : 1);
  ExpertsProblem problem(c, c.k + static_cast<int>(c.widths.size()));
  const std::vector<std::byte> expected =
      problem.Run(PackedForm::kPairs, [&](const ExpertsArgs& args) {
        oracle.Run([&](const device::WorkerContext& context) {
          RefKernels(MmaOrder::kK16F25).experts(args, context);
        });
      });
  for (int launch = 0; launch < TheLauncher().launches(); ++launch) {
    base::Status status;
    std::string_view name;
    const std::vector<std::byte>& y = problem.Run(PackedForm::kCuda, [&](const ExpertsArgs& args) {
      status = TheLauncher().Run(launch, [&](const device::LaunchContext& context) {
        MmaKernels().experts(args, WatchedContext(context, &name));
      });
    });
    ASSERT_TRUE(status.ok()) << "launch " << launch << ": " << status.ToString();
    ASSERT_TRUE(name.starts_with(c.kernel)) << name << ", expected " << c.kernel;
    const auto [ours, theirs] = std::ranges::mismatch(expected, y);
    ASSERT_EQ(ours - expected.begin(), std::ssize(expected))
        << name << ", K " << c.k << ", " << c.counts.size() << " experts, launch " << launch
        << ": the first byte that differs";
  }
}

constexpr LinearOutput kGates[] = {LinearOutput::kSiluMul, LinearOutput::kGeluMul,
                                   LinearOutput::kClampedSiluMul};

// Experts without rows, with more than a tile has, K that ends within a chunk.
TEST(MmaExperts, OfFewRows) {
  TryExperts({.kernel = "mma_experts_small_1", .counts = {3, 0, 1, 8, 0}, .k = 72});
  TryExperts({.kernel = "mma_experts_small_2",
              .counts = {0, 1, 18},
              .k = 200,
              .widths = {64, 40},
              .biased = true,
              .others = 2,
              .spare = 0});
  TryExperts({.kernel = "mma_experts_small_4",
              .counts = {40, 1, 3},
              .k = 128,
              .widths = {64, 64, 64, 64, 17},
              .gathered = false,
              .spare = 3});
  for (const LinearOutput output : kGates)
    TryExperts({.kernel = "mma_experts_small",
                .counts = {2, 9},
                .k = 80,
                .widths = {32, 21},
                .output = output,
                .biased = true});
  if (!TheLauncher().fast()) return;
  TryExperts({.kernel = "mma_experts_small_1",
              .counts = {1, 0, 3, 0, 0, 2, 1, 1, 0, 0, 4, 20, 0, 0, 1, 1},
              .k = 2048,
              .widths = std::vector<int>(12, 32),
              .output = LinearOutput::kSiluMul});
  TryExperts({.kernel = "mma_experts_small_4",
              .counts = {16, 7, 33, 4, 12, 12},
              .k = 768,
              .widths = std::vector<int>(32, 64),
              .gathered = false});
}

TEST(MmaExperts, OfManyRows) {
  TryExperts({.kernel = "mma_experts_256", .counts = {50, 0, 3}, .k = 72});
  TryExperts({.kernel = "mma_experts_256",
              .counts = {0, 130, 65},
              .k = 136,
              .widths = {64, 64, 64, 64, 9},
              .biased = true,
              .others = 7});
  TryExperts(
      {.kernel = "mma_experts_256", .counts = {128, 64}, .k = 320, .gathered = false, .spare = 0});
  for (const LinearOutput output : kGates)
    TryExperts({.kernel = "mma_experts_256",
                .counts = {70, 5},
                .k = 64,
                .widths = {32, 21},
                .output = output,
                .biased = true});
  if (!TheLauncher().fast()) return;
  TryExperts({.kernel = "mma_experts_256",
              .counts = {70, 0, 300, 128, 1, 129, 256, 90},
              .k = 2048,
              .widths = std::vector<int>(12, 32),
              .output = LinearOutput::kSiluMul});
  TryExperts({.kernel = "mma_experts_256",
              .counts = {17, 18, 33, 4, 40, 12},
              .k = 768,
              .widths = std::vector<int>(32, 64),
              .gathered = false});
}

TEST(MmaExperts, Heads) {
  const std::vector<int> widths = {64, 30};
  TryExperts({.kernel = "mma_experts_small_1",
              .counts = {3, 3, 3},
              .k = 40,
              .widths = widths,
              .gathered = false,
              .heads = true});
  TryExperts({.kernel = "mma_experts_small_2",
              .counts = {16, 16},
              .k = 128,
              .gathered = false,
              .heads = true});
  TryExperts({.kernel = "mma_experts_256",
              .counts = {70, 70},
              .k = 128,
              .widths = widths,
              .gathered = false,
              .heads = true});
}

// Rows that do not begin at 16 bytes.
TEST(MmaExperts, OfAnyOtherShape) {
  TryExperts({.kernel = "mma_linear_plain", .counts = {2, 9, 40}, .k = 37, .widths = {64, 5}});
}

}  // namespace
}  // namespace forebay::kernels::cuda

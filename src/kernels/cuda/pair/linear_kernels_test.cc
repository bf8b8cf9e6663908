// Linear layers, experts and heads of class `pair`, and the sums of planes, against ref/.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/cuda/launch/kernel_sets.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/cuda/testing/ref_bytes.h"
#include "kernels/reduce.h"
#include "kernels/sets.h"

namespace forebay::kernels::cuda {
namespace {

using tensor::DType;
using testing::Bytes;
using testing::ExpectRefBytes;
using testing::KeepingStream;
using testing::kTypes;
using testing::Of;
using testing::Poison;
using testing::Source;
using testing::TheLauncher;
using testing::Weight;

void TryLinear(DType dtype, LinearOutput output, int rows, int k, int leaves, float scale,
               uint64_t seed) {
  Source source(seed);
  const bool gated = IsGated(output), partial = output == LinearOutput::kPartial;
  std::vector<int> borders, widths;
  for (int i = 0; i <= leaves; ++i) borders.push_back(i * k / leaves);
  for (int i = 0; i < 1 + source.Below(3); ++i)
    widths.push_back(1 + source.Below(gated ? kPanelColumns / 2 : kPanelColumns));
  const Weight weight(source, dtype, borders, widths, gated, !gated && source.Below(2) == 0, scale);
  LinearArgs args;
  args.weight = weight.weight;
  args.output = output;
  args.rows = rows;
  args.leaf_end = leaves;
  if (partial) {
    args.leaf_begin = source.Below(leaves);
    args.leaf_end = args.leaf_begin + 1 + source.Below(leaves - args.leaf_begin);
    args.weight.bias = nullptr;
  }
  args.x_stride = k + source.Below(5);
  args.y_stride = args.weight.n + source.Below(5);
  const Bytes x = source.Elements(dtype, static_cast<size_t>((rows + 2) * args.x_stride), scale);
  args.x = x.data();
  std::vector<int32_t> x_rows;
  for (int i = 0; i < rows; ++i) x_rows.push_back(source.Below(rows + 2));
  if (source.Below(2) == 0) args.x_rows = x_rows.data();
  const bool fp32 = partial || output == LinearOutput::kF32;
  Bytes y = source.Elements(fp32 ? DType::kF32 : dtype,
                            static_cast<size_t>((partial ? kMaxLeaves : 1) * rows * args.y_stride));
  args.y = y.data();
  ExpectRefBytes(fmt::format("{} output {} rows {} K {} leaves {}", tensor::Name(dtype),
                             static_cast<int>(output), rows, k, leaves),
                 RefKernels().linear, PairKernels().linear, args, {Of(y)});
}

// A set of functions and a table of kernels that know each other.
TEST(PairKernels, AreDeclaredForEveryGpuThatIsServed) {
  const auto kernels = Kernels();
  ASSERT_FALSE(kernels.empty());
  for (const device::CudaKernel& kernel : kernels) {
    EXPECT_GE(kernel.least_architecture, 80) << kernel.name;
    EXPECT_EQ(kernel.image.empty(), !HasImages()) << kernel.name;
    EXPECT_EQ(&KernelNamed(kernel.name), &kernel);
  }
}

TEST(PairKernels, Linear) {
  uint64_t seed = 0;
  for (const DType dtype : kTypes) {
    for (const LinearOutput output :
         {LinearOutput::kF32, LinearOutput::kRounded, LinearOutput::kResidual,
          LinearOutput::kSiluMul, LinearOutput::kErfGelu, LinearOutput::kErfGeluMul,
          LinearOutput::kReluSquared, LinearOutput::kPartial}) {
      for (const int rows : {1, 3, 8, 13}) {
        const int k = rows == 3 ? 37 : rows == 13 ? 200 : 64;
        TryLinear(dtype, output, rows, k, 1 + static_cast<int>(seed % 8), 1, seed);
        ++seed;
      }
      // Products and sums that are denormal.
      TryLinear(dtype, output, 2, 96, 3, 1e-19f, seed++);
    }
  }
  for (int rows = 1; TheLauncher().fast() && rows <= 40; ++rows)
    TryLinear(DType::kBF16, LinearOutput::kResidual, rows, 1000 + rows, 8, 1, seed++);
}

void TryExperts(DType dtype, const std::vector<int>& counts, LinearOutput output, bool gathered,
                uint64_t seed) {
  Source source(seed);
  const int k = 48 + source.Below(3);
  const bool gated = output == LinearOutput::kSiluMul;
  const std::vector<int> widths = {gated ? 32 : 64, 20};
  std::vector<Bytes> runs;
  std::vector<const std::byte*> pointers;
  const Weight weight(source, dtype, {0, k}, widths, gated, false);
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    Bytes& run = runs.emplace_back();
    for (const int width : widths) {
      const Bytes tile = source.Tile(dtype, k, width, gated, 1);
      run.insert(run.end(), tile.begin(), tile.end());
    }
  }
  for (const Bytes& run : runs) pointers.push_back(run.data());
  std::vector<int32_t> offsets = {2};  // the first rows are others'
  for (const int count : counts) offsets.push_back(offsets.back() + count);
  ExpertsArgs args;
  args.weight = weight.weight;
  args.weight.tiles = nullptr;
  args.runs = pointers.data();
  args.offsets = offsets.data();
  args.num_experts = static_cast<int32_t>(counts.size());
  args.max_rows = offsets.back() + 3;
  args.x_count = args.max_rows;
  args.x_stride = k + 1;
  args.y_stride = args.weight.n + 2;
  args.output = output;
  const Bytes x = source.Elements(dtype, static_cast<size_t>(args.max_rows * args.x_stride));
  std::vector<int32_t> x_rows;
  for (int i = 0; i < args.max_rows; ++i) x_rows.push_back(source.Below(args.max_rows));
  args.x = x.data();
  args.x_rows = gathered ? x_rows.data() : nullptr;
  Bytes y = Poison(static_cast<size_t>(args.max_rows * args.y_stride) * tensor::SizeOf(dtype));
  args.y = y.data();
  ExpectRefBytes(fmt::format("{} experts", counts.size()), RefKernels().experts,
                 PairKernels().experts, args, {Of(y)});
}

TEST(PairKernels, Experts) {
  uint64_t seed = 100;
  for (const DType dtype : kTypes) {
    for (const bool gathered : {false, true}) {
      TryExperts(dtype, {3, 0, 9, 1, 0}, LinearOutput::kRounded, gathered, seed++);
      TryExperts(dtype, {0, 17}, LinearOutput::kSiluMul, gathered, seed++);
      TryExperts(dtype, {0, 0, 0}, LinearOutput::kRounded, gathered, seed++);
    }
  }
}

TEST(PairKernels, Heads) {
  Source source(200);
  for (const DType dtype : kTypes) {
    constexpr int kHeads = 3, kRows = 9, kK = 24;
    std::vector<Weight> weights;
    weights.reserve(kHeads);
    std::vector<const std::byte*> tiles;
    for (int head = 0; head < kHeads; ++head) {
      weights.emplace_back(source, dtype, std::vector{0, kK}, std::vector{64, 16}, false, false);
      for (const std::byte* tile : weights.back().pointers) tiles.push_back(tile);
    }
    ExpertsArgs args;
    args.weight = weights[0].weight;
    args.weight.tiles = tiles.data();
    args.num_experts = kHeads;
    args.max_rows = kRows;
    args.x_stride = kHeads * kK;
    args.x_step = kK;
    args.y_stride = kHeads * args.weight.n;
    args.y_step = args.weight.n;
    const Bytes x = source.Elements(dtype, kRows * kHeads * kK);
    args.x = x.data();
    Bytes y = Poison(static_cast<size_t>(kRows * args.y_stride) * tensor::SizeOf(dtype));
    args.y = y.data();
    ExpectRefBytes("heads", RefKernels().experts, PairKernels().experts, args, {Of(y)});
  }
}

// Heads of latent attention in a step of 16,384 rows have more tiles of rows than a grid has blocks
// along y.
TEST(PairKernels, ManyRowsOfManyHeadsFitAGrid) {
  class ShapeContext final : public device::LaunchContext {
   public:
    void LaunchBytes(const device::CudaKernel&, const device::LaunchShape& launched, const void*,
                     size_t) const override {
      shape = launched;
    }
    void RunOnHost(device::Operation::RunFn, const void*, size_t) const override {}
    mutable device::LaunchShape shape;
  };
  constexpr int kPanels = 2;
  ExpertsArgs args;
  args.weight.k = 128;
  args.weight.n = kPanels * kPanelColumns;
  args.weight.num_panels = kPanels;
  args.weight.leaves = LeafBorders::Single(args.weight.k);
  args.num_experts = 128;
  args.max_rows = 16384;
  ASSERT_TRUE(args.heads());
  for (const PackedForm form : {PackedForm::kPairs, PackedForm::kCuda}) {
    args.weight.packed = form;
    const ShapeContext context;
    PairKernels().experts(args, context);
    const auto [x, y, z] = context.shape.blocks;
    EXPECT_GE(int64_t{x} * y * z, int64_t{kPanels} * args.num_experts * args.max_rows / 32);
    EXPECT_LE(std::max(y, z), device::kMostBlocksAlongYZ);
  }
}

TEST(PairKernels, Reduce) {
  Source source(1000);
  constexpr int kRows = 3, kN = 300;
  for (const DType dtype : kTypes) {
    for (const int num_leaves : {1, 3, 5, 8}) {
      for (const LinearOutput output :
           {LinearOutput::kF32, LinearOutput::kRounded, LinearOutput::kResidual}) {
        const std::vector<float> planes = source.Floats(8 * kRows * kN), bias = source.Floats(kN);
        ReduceArgs args{.dtype = dtype, .output = output, .num_leaves = num_leaves};
        args.rows = kRows;
        args.n = kN;
        args.stride = kN;
        args.y_stride = kN + 1;
        // Ranks that own a leaf, then two, then the rest.
        const float* sums = planes.data();
        for (int begin = 0, owned = 1; begin < num_leaves; begin += owned, ++owned) {
          const int end = std::min(num_leaves, begin + owned);
          AddPlanes(begin, end, sums, &args);
          sums += NumPlanes(num_leaves, begin, end) * kRows * kN;
        }
        if (num_leaves == 5) args.bias = bias.data();
        Bytes y =
            source.Elements(output == LinearOutput::kF32 ? DType::kF32 : dtype, kRows * (kN + 1));
        const Bytes residual = source.Elements(dtype, kRows * (kN + 1));
        if (num_leaves == 3) args.residual = residual.data();
        args.y = y.data();
        KeepingStream stream;
        ReducePlanes(stream, RefKernels(), "reduce", args);
        ReduceArgs whole;
        std::memcpy(&whole, stream.kept.args.data(), sizeof whole);
        ExpectRefBytes<ReduceArgs>(fmt::format("{} leaves", num_leaves), RefKernels().reduce,
                                   PairKernels().reduce, whole, {Of(y)});
      }
    }
  }
}

}  // namespace
}  // namespace forebay::kernels::cuda

// What the GPU computes with, against the CPU and the published order of the tensor cores: on the
// emulation a test of the trials, on a GPU of the GPU.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <bit>
#include <cmath>
#include <vector>

#include "base/rng.h"
#include "kernels/cuda/emulation/tensor_core.h"
#include "kernels/cuda/registry.h"
#include "kernels/cuda/testing/launcher.h"
#include "kernels/cuda/trial/adversary.h"
#include "kernels/cuda/trial/params.h"
#include "kernels/exp.h"
#include "tensor/bf16.h"

namespace forebay::kernels::cuda {
namespace {

using testing::TheLauncher;

template <typename Params>
void Launch(const char* name, const device::LaunchShape& shape, const Params& params) {
  const base::Status status = TheLauncher().Run(1, [&](const device::LaunchContext& context) {
    context.Launch(KernelNamed(name), shape, params);
  });
  ASSERT_TRUE(status.ok()) << status.ToString();
}

void TrySteps(const char* kernel, int rows, int columns, int threads, int shared_bytes) {
  const int blocks = TheLauncher().fast() ? 98304 / (rows * columns) : 512 / (rows * columns) + 4;
  constexpr int kDepth = 16;
  Adversary adversary(11);
  std::vector<uint16_t> a, b;
  std::vector<float> c, d;
  for (int block = 0; block < blocks; ++block) {
    const int spread = 1 + block % 4 * 10;
    for (int i = 0; i < rows * kDepth; ++i) a.push_back(adversary.BF16(spread));
    for (int i = 0; i < columns * kDepth; ++i) b.push_back(adversary.BF16(spread));
    for (int i = 0; i < rows * columns; ++i) c.push_back(adversary.Sum(spread));
  }
  d.assign(c.size(), -1.0f);
  Launch(kernel, {.blocks = {blocks, 1, 1}, .threads = threads, .shared_bytes = shared_bytes},
         StepTrialParams{a.data(), b.data(), c.data(), d.data()});
  size_t differ = 0;
  for (size_t i = 0; i < d.size(); ++i) {
    const size_t block = i / static_cast<size_t>(rows * columns),
                 row = i / static_cast<size_t>(columns) % static_cast<size_t>(rows),
                 column = i % static_cast<size_t>(columns);
    const float expected = gpu::emulation::TensorCoreStep(
        &a[(block * static_cast<size_t>(rows) + row) * kDepth],
        &b[(block * static_cast<size_t>(columns) + column) * kDepth], c[i]);
    differ += std::bit_cast<uint32_t>(expected) != std::bit_cast<uint32_t>(d[i]);
  }
  EXPECT_EQ(differ, 0u) << "of " << d.size();
}

TEST(Trial, MmaSumsInThePublishedOrder) {
  TrySteps("trial_mma", kMmaTrialRows, kMmaTrialColumns, 32, 0);
}
TEST(Trial, WgmmaSumsInThePublishedOrder) {
  TrySteps("trial_wgmma", kWgmmaTrialRows, kWgmmaTrialColumns, 128, 2 * 8192);
}

float OnTheCpu(Arithmetic which, float a, float b, float c) {
  switch (which) {
    case Arithmetic::kFma: return std::fma(a, b, c);
    case Arithmetic::kAdd: return a + b;
    case Arithmetic::kMultiply: return a * b;
    case Arithmetic::kDivide: return a / b;
    case Arithmetic::kRoot: return std::sqrt(a);
    case Arithmetic::kExp: return Exp(a);
    case Arithmetic::kRoundToBF16: return tensor::ToFloat(tensor::ToBF16(a));
  }
  return 0;
}

// Any bits, and many whose results lie at the border of denormals.
uint32_t Operand(base::Rng& rng, int i) {
  const auto bits = static_cast<uint32_t>(rng.Next() >> 20);
  if (i % 3 == 0) return bits;
  const uint32_t exponent = i % 3 == 1 ? 60 + bits / 7 % 8 : 100 + bits / 7 % 60;
  return (bits & 0x807FFFFFu) | exponent << 23;
}

TEST(Trial, ArithmeticRoundsAsTheCpuDoes) {
  constexpr int kThreads = 256;
  const int count = TheLauncher().fast() ? 1 << 20 : 1 << 13;
  base::Rng rng(3);
  std::vector<uint32_t> a, b, c, d;
  for (int i = 0; i < count; ++i) {
    a.push_back(Operand(rng, i));
    b.push_back(Operand(rng, i));
    c.push_back(Operand(rng, i / 3));
  }
  for (int which = 0; which <= static_cast<int>(Arithmetic::kRoundToBF16); ++which) {
    const auto operation = static_cast<Arithmetic>(which);
    d.assign(a.size(), 1);
    Launch("trial_arithmetic", {.blocks = {count / kThreads, 1, 1}, .threads = kThreads},
           ArithmeticTrialParams{operation, a.data(), b.data(), c.data(), d.data(), count});
    const unsigned saved = _mm_getcsr();
    _mm_setcsr(saved | 0x8040u);  // FTZ, DAZ
    int differ = 0, first = -1;
    for (size_t i = 0; i < d.size(); ++i) {
      const auto expected =
          std::bit_cast<uint32_t>(OnTheCpu(operation, std::bit_cast<float>(a[i]),
                                           std::bit_cast<float>(b[i]), std::bit_cast<float>(c[i])));
      // One NaN is as good as another.
      const auto nan = [](uint32_t bits) { return (bits & 0x7FFFFFFFu) > 0x7F800000u; };
      if (expected == d[i] || (nan(expected) && nan(d[i]))) continue;
      if (differ++ == 0) first = static_cast<int>(i);
    }
    _mm_setcsr(saved);
    EXPECT_EQ(differ, 0) << "operation " << which << " of " << count << ": the first operands are "
                         << std::hex << a[static_cast<size_t>(std::max(first, 0))] << " "
                         << b[static_cast<size_t>(std::max(first, 0))] << " "
                         << c[static_cast<size_t>(std::max(first, 0))] << ", the result "
                         << d[static_cast<size_t>(std::max(first, 0))];
  }
}

}  // namespace
}  // namespace forebay::kernels::cuda

// Classes `mma_*`: the step against its definition, the exponential against its bound, attention
// against sums in double and against itself however rows are cut.
#include <gtest/gtest.h>
#include <xmmintrin.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/kernel_set.h"
#include "kernels/mma_attention.h"
#include "kernels/ref/mma.h"
#include "kernels/testing/attention_problem.h"
#include "kernels/testing/team.h"

namespace forebay::kernels {
namespace {

using kernels::testing::AttentionProblem;
using kernels::testing::AttentionShape;
using kernels::testing::SequenceSpec;
using kernels::testing::Team;
using tensor::BF16;

struct Depth {
  int products, bits;
};
Depth DepthOf(MmaOrder order) { return order == MmaOrder::kK16F25 ? Depth{16, 25} : Depth{8, 24}; }

// A step as mma_order.h says it, value by value in 128 bits. Operands are finite.
float StepByDefinition(const BF16* a, const BF16* b, float sum, Depth depth) {
  struct Term {
    __int128 significand;
    int exponent;  // of the unit
  };
  std::vector<Term> terms;
  const auto parts = [](uint32_t bits, int mantissa_bits) {
    const int field = static_cast<int>(bits >> mantissa_bits & 255);
    const auto fraction = static_cast<int64_t>(bits & ((1u << mantissa_bits) - 1));
    const int64_t magnitude = fraction | (field != 0 ? int64_t{1} << mantissa_bits : 0);
    const bool negative = bits >> (mantissa_bits + 8) & 1;
    return std::pair<int64_t, int>(negative ? -magnitude : magnitude, std::max(field, 1) - 127);
  };
  int greatest = -126;
  const auto add = [&](int64_t significand, int exponent, int fraction_bits) {
    if (significand == 0) return;
    greatest = std::max(greatest, exponent);
    terms.push_back({significand, exponent - fraction_bits});
  };
  for (int k = 0; k < depth.products; ++k) {
    const auto [x, x_exponent] = parts(a[k].bits, 7);
    const auto [w, w_exponent] = parts(b[k].bits, 7);
    add(x * w, x_exponent + w_exponent, 14);
  }
  const auto [c, c_exponent] = parts(std::bit_cast<uint32_t>(sum), 23);
  add(c, c_exponent, 23);
  __int128 exact = 0;  // in units of 2^(greatest - bits)
  for (const Term& term : terms) {
    const int up = term.exponent - (greatest - depth.bits);
    __int128 magnitude = term.significand < 0 ? -term.significand : term.significand;
    magnitude = up >= 0 ? magnitude << up : up > -100 ? magnitude >> -up : 0;
    exact += term.significand < 0 ? -magnitude : magnitude;
  }
  if (exact == 0) return 0.0f;
  // Towards zero: 24 bits, fewer below the least normal number.
  __int128 magnitude = exact < 0 ? -exact : exact;
  int unit = greatest - depth.bits;
  while (magnitude >= 1 << 24 || unit < -149) magnitude >>= 1, ++unit;
  const double value = std::ldexp(static_cast<double>(magnitude), unit);
  if (value >= 0x1p128) return exact < 0 ? -INFINITY : INFINITY;
  uint32_t bits;
  if (value >= 0x1p-126) {
    bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  } else {
    bits = static_cast<uint32_t>(std::ldexp(value, 149));
  }
  return std::bit_cast<float>(bits | (exact < 0 ? 0x80000000u : 0));
}

// Random operands of a kind: how exponents spread, cancellation, zeros, both ends of the range.
class Operands {
 public:
  static constexpr int kKinds = 9;

  explicit Operands(int kind) : kind_(kind), random_(17 + kind) {}

  BF16 Next() {
    constexpr int kSpread[kKinds] = {0, 2, 5, 12, 60, 3, 3, 3, 127};
    constexpr int kMiddle[kKinds] = {0, 0, 0, 0, 0, -65, 62, 0, 0};
    const int spread = kSpread[kind_];
    if (kind_ == 7 && Below(3) == 0) return {static_cast<uint16_t>(Below(2) << 15)};
    const int exponent =
        std::clamp(127 + kMiddle[kind_] + static_cast<int>(Below(2 * spread + 1)) - spread, 0, 254);
    return {static_cast<uint16_t>(Below(2) << 15 | exponent << 7 | Below(128))};
  }
  float Sum() {
    const BF16 near = Next(), other = Next();
    const float product = tensor::ToFloat(near) * tensor::ToFloat(other);
    if (!std::isfinite(product) || Below(5) == 0) return Below(2) ? 0.0f : -0.0f;
    return product * (1 + static_cast<float>(Below(1 << 20)) * 0x1p-20f);
  }
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

 private:
  const int kind_;
  std::mt19937_64 random_;
};

// Runs with FTZ and DAZ, as kernels do.
void Flushed(const std::function<void()>& run) {
  const unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040u);
  run();
  _mm_setcsr(saved);
}

TEST(MmaTest, StepsAreTheirDefinition) {
  constexpr int kK = 48, kColumns = 37;  // whole steps of both orders; columns with a rest
  int64_t denormals = 0, infinities = 0, zeros = 0;
  for (const MmaOrder order : kMmaOrders) {
    const Depth depth = DepthOf(order);
    for (int kind = 0; kind < Operands::kKinds; ++kind) {
      Operands operands(kind);
      for (int round = 0; round < 60; ++round) {
        std::vector<BF16> x(kK), w(kK * kColumns);
        for (BF16& value : x) value = operands.Next();
        for (BF16& value : w) value = operands.Next();
        const bool cancels = round % 3 == 0;  // pairs of opposite sign
        std::vector<float> found(kColumns), expected;
        for (float& sum : found) sum = cancels && operands.Below(2) ? 0 : operands.Sum();
        for (int k = 1; cancels && k < kK; k += 2) x[k] = x[k - 1];
        for (int c = 0; c < kColumns; ++c) {
          std::vector<BF16> column(kK);
          for (int k = 0; k < kK; ++k) {
            BF16& value = w[(k / 2 * kColumns + c) * 2 + k % 2];
            if (cancels && k % 2 == 1 && operands.Below(8) > 0)
              value.bits = column[k - 1].bits ^ 0x8000;
            column[k] = value;
          }
          float sum = found[c];
          for (int k = 0; k < kK && std::isfinite(sum); k += depth.products)
            sum = StepByDefinition(x.data() + k, column.data() + k, sum, depth);
          expected.push_back(sum);
        }
        Flushed(
            [&] { ref::AddMmaSteps(order, x.data(), 0, kK, w.data(), kColumns, found.data()); });
        for (int c = 0; c < kColumns; ++c) {
          if (std::isinf(expected[c])) {  // goes on as IEEE has it
            ++infinities;
            ASSERT_FALSE(std::isfinite(found[c]));
            continue;
          }
          denormals += std::fpclassify(expected[c]) == FP_SUBNORMAL;
          zeros += expected[c] == 0;
          ASSERT_EQ(std::bit_cast<uint32_t>(found[c]), std::bit_cast<uint32_t>(expected[c]))
              << NumericsClassOf(order) << " kind " << kind << " column " << c;
        }
      }
    }
  }
  EXPECT_GT(denormals, 100);
  EXPECT_GT(infinities, 100);
  EXPECT_GT(zeros, 100);
}

// 1 + 2^-24 of one product and of four: what lies below the 25th bit is cut one by one, what is
// added above it is cut when it becomes an fp32.
TEST(MmaTest, WhatIsCut) {
  const auto sum = [](MmaOrder order, int count, float product, float start) {
    BF16 x[16] = {}, w[16] = {};
    for (int k = 0; k < count; ++k) x[k] = tensor::ToBF16(product), w[k] = tensor::ToBF16(1);
    Flushed([&] { ref::AddMmaSteps(order, x, 0, 16, w, 1, &start); });
    return start;
  };
  const float next = std::nextafter(1.0f, 2.0f);
  EXPECT_EQ(sum(MmaOrder::kK16F25, 1, 0x1p-24f, 1), 1);
  EXPECT_EQ(sum(MmaOrder::kK16F25, 2, 0x1p-24f, 1), next);
  EXPECT_EQ(sum(MmaOrder::kK16F25, 4, 0x1p-25f, 1), next);
  EXPECT_EQ(sum(MmaOrder::kK16F25, 8, 0x1p-26f, 1), 1);
  EXPECT_EQ(sum(MmaOrder::kK8F24, 4, 0x1p-25f, 1), 1);
  EXPECT_EQ(sum(MmaOrder::kK16F25, 1, -0x1p-25f, 1), std::nextafter(1.0f, 0.0f));
}

TEST(MmaTest, WhatIsNotThereOrNotFinite) {
  for (const MmaOrder order : kMmaOrders) {
    // Only k in [3, 9) is there, and nothing else counts.
    std::vector<BF16> x(16, tensor::ToBF16(NAN)), w(32, tensor::ToBF16(NAN));
    for (int k = 3; k < 9; ++k) {
      x[k] = tensor::ToBF16(static_cast<float>(k));
      for (int c = 0; c < 2; ++c) w[(k / 2 * 2 + c) * 2 + k % 2] = tensor::ToBF16(c ? 1 : -1);
    }
    float sums[] = {1, 2};
    ref::AddMmaSteps(order, x.data(), 3, 9, w.data(), 2, sums);
    EXPECT_EQ(sums[0], 1 - 33);
    EXPECT_EQ(sums[1], 2 + 33);
    // A column's infinity and NaN are its own.
    w[(4 / 2 * 2 + 0) * 2] = tensor::ToBF16(INFINITY);
    ref::AddMmaSteps(order, x.data(), 3, 9, w.data(), 2, sums);
    EXPECT_EQ(sums[0], INFINITY);
    EXPECT_EQ(sums[1], 2 + 66);
    w[(4 / 2 * 2 + 0) * 2] = tensor::ToBF16(-INFINITY);
    ref::AddMmaSteps(order, x.data(), 3, 9, w.data(), 2, sums);
    EXPECT_EQ(std::bit_cast<uint32_t>(sums[0]), 0x7FFFFFFFu);
    EXPECT_EQ(sums[1], 2 + 99);
  }
}

// All z in [1/2, 1], where probabilities above 2^-63 are made, and some of each binade below.
TEST(MmaTest, ProbabilitiesAreCloserThanTheirRounding) {
  double worst = 0;
  const auto look = [&worst](float z) {
    const double exact = std::exp2(128.0 * z - 127);
    worst = std::max(worst, std::abs(MmaPowerOf(z) - exact) / exact);
  };
  for (uint32_t bits = 0x3F000000u; bits <= 0x3F800000u; ++bits) look(std::bit_cast<float>(bits));
  for (uint32_t bits = 0x3C800000u; bits < 0x3F000000u; bits += 1009)  // from z = 1 / 64 on
    look(std::bit_cast<float>(bits));
  EXPECT_LT(worst, 0x1p-12 / 2);  // bf16 rounds by up to 2^-9 of p
  EXPECT_GT(worst, 0x1p-14);      // a degree more would be wasted
}

TEST(MmaTest, ProbabilitiesAtTheEnds) {
  const float c128 = MmaScale(0.125f) / 128;
  EXPECT_EQ(std::bit_cast<uint32_t>(MmaProbability(-INFINITY, c128, MmaBias(3))), 0u);
  EXPECT_EQ(std::bit_cast<uint32_t>(MmaProbability(-1e30f, c128, MmaBias(3))), 0u);
  EXPECT_EQ(std::bit_cast<uint32_t>(MmaProbability(NAN, c128, MmaBias(3))), 0u);
  // Nothing seen yet: M is -infinity.
  EXPECT_EQ(std::bit_cast<uint32_t>(MmaProbability(-INFINITY, c128, MmaBias(-INFINITY))), 0u);
  EXPECT_EQ(MmaPowerOf(1), 2);
  EXPECT_EQ(MmaPowerOf(127.0f / 128), 1);
  for (const float score : {-3.25f, 0.0f, 100.0f, 12345.0f}) {  // the greatest one: in (1, 2]
    const float whole = MmaWhole(score, 128 * c128);
    const float p = MmaProbability(score, c128, MmaBias(whole));
    EXPECT_GT(p, 0.999f) << score;
    EXPECT_LE(p, 2) << score;
  }
  EXPECT_EQ(MmaFactor(0), 1);
  EXPECT_EQ(MmaFactor(-126), 0x1p-126f);
  EXPECT_EQ(MmaFactor(-127), 0);
  EXPECT_EQ(MmaFactor(-INFINITY), 0);
  EXPECT_EQ(MmaFactor(NAN), 0);
}

// Against softmax in double; and the same bytes in one piece, in chunks, and row by row, with other
// blocks, while unseen positions are NaN.
TEST(MmaTest, AttentionIsTheSameHoweverRowsAreCut) {
  Team team(2);
  const AttentionShape shapes[] = {
      {.heads = 4, .kv_heads = 2, .head_dim = 64},
      {.heads = 3, .kv_heads = 1, .head_dim = 24, .window = 150},
      {.heads = 2, .kv_heads = 2, .head_dim = 16, .chunk = 256},
      {.heads = 2, .kv_heads = 1, .head_dim = 48, .value_dim = 32, .values_in_keys = true},
      {.heads = 2, .kv_heads = 1, .head_dim = 16, .codes = KvCodes::kInt8},
      {.heads = 2, .kv_heads = 1, .head_dim = 16, .codes = KvCodes::kFP8}};
  for (const MmaOrder order : kMmaOrders) {
    const KernelSet& kernels = RefKernels(order);
    for (const AttentionShape& shape : shapes) {
      const std::vector<SequenceSpec> sequences = {{0, 1}, {100, 140}, {1015, 1032}, {2040, 2055}};
      AttentionProblem<BF16> problem(shape, sequences, 5);
      const auto whole = problem.Run(kernels, team);
      for (size_t s = 0; s < sequences.size(); ++s) {
        const std::vector<double> exact = problem.Naive(s);
        ASSERT_EQ(exact.size(), whole[s].size());
        double difference = 0, norm = 0;
        for (size_t i = 0; i < exact.size(); ++i) {
          const double d = tensor::ToFloat(whole[s][i]) - exact[i];
          difference += d * d;
          norm += exact[i] * exact[i];
        }
        EXPECT_LT(std::sqrt(difference / norm), 5e-3);  // roundings of p and of the result
      }
      for (const int32_t chunk : {1, 7}) {
        problem.Permute(static_cast<uint64_t>(chunk));
        const auto cut = problem.Run(kernels, team, chunk);
        for (size_t s = 0; s < sequences.size(); ++s) {
          ASSERT_EQ(std::memcmp(cut[s].data(), whole[s].data(), whole[s].size() * sizeof(BF16)), 0)
              << "sequence " << s << " in chunks of " << chunk;
        }
      }
    }
  }
}

TEST(MmaTest, SetsAreChosenByClass) {
  for (const MmaOrder order : kMmaOrders) {
    for (const char* name : {"ref", "auto"}) {
      const auto set = ChooseKernels(name, NumericsClassOf(order));
      ASSERT_TRUE(set.ok()) << set.status().ToString();
      EXPECT_EQ(*set, &RefKernels(order));
    }
  }
  EXPECT_EQ(*ChooseKernels("ref", "pair"), &RefKernels());
  EXPECT_EQ(ChooseKernels("ref", "mma").status().code(), kNumericsUnavailable);
  EXPECT_EQ(ChooseKernels("vax", "pair").status().code(), kIsaUnavailable);
}

}  // namespace
}  // namespace forebay::kernels

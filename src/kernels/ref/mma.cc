#include "kernels/ref/mma.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace forebay::kernels::ref {
namespace {

using tensor::BF16;

constexpr int kColumns = 16;  // at a time
constexpr int kDeepest = 16;
// The exponent of zero: below all others, also in a product.
constexpr int32_t kNone = -4096;
constexpr int32_t kDown = 60;  // shifted so far, nothing is left

// An operand is significand * 2^(exponent - 134).
struct Operand {
  float significand = 0;
  int32_t exponent = kNone;
};
inline Operand Decode(uint32_t bits) {
  const uint32_t field = bits >> 7 & 255;
  const int32_t magnitude = static_cast<int32_t>((bits & 127) | (field != 0 ? 128 : 0));
  return {static_cast<float>(bits >> 15 & 1 ? -magnitude : magnitude),
          magnitude != 0 ? std::max(static_cast<int32_t>(field), 1) : kNone};
}
inline bool Finite(uint32_t bits) { return (bits >> 7 & 255) != 255; }

// The operands of a step: those of x, and those of w for all columns.
struct StepOperands {
  uint32_t x_bits[kDeepest], w_bits[kDeepest][kColumns];
  float x[kDeepest], w[kDeepest][kColumns];
  int32_t x_exponent[kDeepest], w_exponent[kDeepest][kColumns];
  bool finite = true;
};

// The IEEE sum: not finite where an operand is not.
double PlainSum(const StepOperands& step, int depth, int column, float sum) {
  double all = sum;
  for (int k = 0; k < depth; ++k) {
    all += static_cast<double>(tensor::ToFloat(BF16{static_cast<uint16_t>(step.x_bits[k])})) *
           tensor::ToFloat(BF16{static_cast<uint16_t>(step.w_bits[k][column])});
  }
  return all;
}

// A double of at most 24 significant bits as an fp32, cut where that is a denormal.
float CutToFloat(double value) {
  if (std::abs(value) >= std::numeric_limits<float>::min() || value == 0)
    return static_cast<float>(value);
  const auto magnitude = static_cast<uint32_t>(std::abs(value) * 0x1p149);
  return std::bit_cast<float>(magnitude | (value < 0 ? 0x80000000u : 0));
}

template <int kDepth, int kBits>
void Step(const StepOperands& step, float sums[kColumns]) {
  int32_t sum[kColumns], sum_exponent[kColumns], top[kColumns];
  bool finite = step.finite;
  for (int c = 0; c < kColumns; ++c) {
    const uint32_t bits = std::bit_cast<uint32_t>(sums[c]), field = bits >> 23 & 255;
    const int32_t magnitude = static_cast<int32_t>((bits & 0x7FFFFF) | (field != 0 ? 1u << 23 : 0));
    sum[c] = bits >> 31 ? -magnitude : magnitude;
    sum_exponent[c] = std::max(static_cast<int32_t>(field), 1) + 127;  // as of a product
    top[c] = std::max(magnitude != 0 ? sum_exponent[c] : kNone, 254 - 126);
    finite &= field != 255;
  }
  for (int k = 0; k < kDepth; ++k) {
    for (int c = 0; c < kColumns; ++c)
      top[c] = std::max(top[c], step.x_exponent[k] + step.w_exponent[k][c]);
  }
  // 2^(up - (top - exponent)): what aligns a significand. A conversion to an integer cuts.
  const auto scale = [&top](int c, int32_t exponent, int up) {
    const int32_t down = std::min(top[c] - exponent, kDown);
    return std::bit_cast<float>(static_cast<uint32_t>(127 + up - down) << 23);
  };
  int32_t half[2][kColumns] = {};  // of the products; all of them need a bit more than 32
  for (int k = 0; k < kDepth; ++k) {
    int32_t* const to = half[k * 2 / kDepth];
    for (int c = 0; c < kColumns; ++c) {
      const float aligned = step.x[k] * step.w[k][c] *
                            scale(c, step.x_exponent[k] + step.w_exponent[k][c], kBits - 14);
      to[c] += static_cast<int32_t>(aligned);
    }
  }
  for (int c = 0; c < kColumns; ++c) {
    const auto aligned =
        static_cast<int32_t>(static_cast<float>(sum[c]) * scale(c, sum_exponent[c], kBits - 23));
    const double exact = static_cast<double>(half[0][c]) + half[1][c] + aligned;
    constexpr uint64_t kKept = ~uint64_t{0} << (53 - 24);
    const double cut = std::bit_cast<double>(std::bit_cast<uint64_t>(exact) & kKept);
    const double unit =
        std::bit_cast<double>(static_cast<uint64_t>(top[c] - 254 - kBits + 1023) << 52);
    const double plain = finite ? 0 : PlainSum(step, kDepth, c, sums[c]);
    sums[c] = std::isnan(plain)   ? std::bit_cast<float>(0x7FFFFFFFu)
              : std::isinf(plain) ? static_cast<float>(plain)
                                  : CutToFloat(cut * unit);
  }
}

template <int kDepth, int kBits>
void AddSteps(const BF16* x, int first, int last, const BF16* w, int columns, float* sums) {
  for (int column = 0; column < columns; column += kColumns) {
    const int count = std::min(kColumns, columns - column);
    float some[kColumns] = {};
    std::copy_n(sums + column, count, some);
    for (int begin = first / kDepth * kDepth; begin < last; begin += kDepth) {
      StepOperands step;
      for (int k = 0; k < kDepth; ++k) {
        const int at = begin + k;
        const bool present = at >= first && at < last;
        uint32_t pairs[kColumns] = {};
        if (present)
          std::memcpy(pairs, w + (int64_t{at / 2} * columns + column) * 2, sizeof(*pairs) * count);
        step.x_bits[k] = present ? x[at].bits : 0;
        const Operand operand = Decode(step.x_bits[k]);
        step.x[k] = operand.significand;
        step.x_exponent[k] = operand.exponent;
        step.finite &= Finite(step.x_bits[k]);
        for (int c = 0; c < kColumns; ++c) {
          const uint32_t bits = at % 2 != 0 ? pairs[c] >> 16 : pairs[c] & 0xFFFF;
          step.w_bits[k][c] = bits;
          const Operand weight = Decode(bits);
          step.w[k][c] = weight.significand;
          step.w_exponent[k][c] = weight.exponent;
          step.finite &= Finite(bits);
        }
      }
      Step<kDepth, kBits>(step, some);
    }
    std::copy_n(some, count, sums + column);
  }
}

}  // namespace

void AddMmaSteps(MmaOrder order, const BF16* x, int first, int last, const BF16* w, int columns,
                 float* sums) {
  order == MmaOrder::kK16F25 ? AddSteps<16, 25>(x, first, last, w, columns, sums)
                             : AddSteps<8, 24>(x, first, last, w, columns, sums);
}

}  // namespace forebay::kernels::ref

// Exponentials and sums over a row of logits, the same bits on every machine: basic double
// operations in a fixed order, none of them contracted, nothing from libm.
//
// A row's sum is taken over chunks of 1,024 tokens. Inside a chunk token i adds to lane i % 16, the
// lanes are added as a binary tree (i and i + 8, then i + 4, ..); the chunks' sums are added in
// ascending order.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace forebay::sample {

inline constexpr int kChunkTokens = 1024;
inline constexpr int kLanes = 16;
// The logit of a token that cannot be drawn.
inline constexpr float kNone = -std::numeric_limits<float>::infinity();

// e^x to 3e-10 relative, which is far inside the rounding of float logits; exactly 1 at 0. Below
// -708 (the border of the normal doubles), and for NaN, 0. `Double` is double or a vector of
// doubles, `Bits` the like of uint64_t. REQUIRES: x <= 0 or NaN.
template <typename Double = double, typename Bits = uint64_t>
[[gnu::always_inline]] inline Double Exp(Double x) {
  // 2^n e^r: adding 1.5 * 2^52 leaves n = round(x / ln 2) in the low bits; |r| <= ln(2) / 2, Taylor
  // to degree 8.
  const Double t = x * 0x1.71547652b82fep+0 + 0x1.8p+52;
  const Double n = t - 0x1.8p+52;
  const Double r = x - n * 0x1.62e42fefa39efp-1;
  Double p = r * (1.0 / 40320) + 1.0 / 5040;
  p = p * r + 1.0 / 720;
  p = p * r + 1.0 / 120;
  p = p * r + 1.0 / 24;
  p = p * r + 1.0 / 6;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  const Double value =
      std::bit_cast<Double>(std::bit_cast<Bits>(p) + (std::bit_cast<Bits>(t) << 52));
  return x >= -708.0 ? value : Double{};
}

// The natural logarithm to 1e-15. REQUIRES: x is a positive normal number.
double Log(double x);

// Whether the row is all NaN: from NaN weights (kernels/route.h) or infinities that
// cancel.
bool AllNan(std::span<const float> row);
// The greatest logit; NaN counts as -inf.
float RowMax(std::span<const float> row);
// Its lowest index; 0 if all are -inf.
int32_t ArgMax(std::span<const float> row);

// Logits of a row, or of a piece of one, and what weighs them: e^((x - max) * scale).
struct Weighing {
  std::span<const float> row;
  double max, scale;
};

inline constexpr int kBorders = 4;

// Loops over a row for one width of vectors. All widths give the same bits, but for `sums_up_to`,
// whose order of sums is not promised.
struct RowLoops {
  // The sum of the weights of a chunk.
  double (*chunk_sum)(const Weighing& chunk);
  // The same; weights[i] becomes that of token i.
  double (*weigh_chunk)(const Weighing& chunk, double* weights);
  // sums[b] of the weights of logits that are at most borders[b].
  void (*sums_up_to)(std::span<const float> row, const double* weights, const double* borders,
                     double* sums);
  // Clears the weights of logits below a border.
  void (*clear_below)(std::span<const float> row, double border, double* weights);
};
// The loops that this machine can run, the fastest first.
std::span<const RowLoops> AllRowLoops();

// e^((x - max) * scale) over a row's chunks: `chunk_sums` is resized to one sum a chunk, `weights`
// to one a token where it is not null. Returns their sum.
double SumExp(std::span<const float> row, float max, double scale, std::vector<double>* chunk_sums,
              std::vector<double>* weights = nullptr);

}  // namespace forebay::sample

// Exponentials and sums over a row of logits, the same bits on every machine: basic double
// operations in a fixed order, none of them contracted, nothing from libm.
//
// A row's sum is taken over chunks of 1,024 tokens. Inside a chunk token i adds to lane i % 16, the
// lanes are added as a binary tree (i and i + 8, then i + 4, ..); the chunks' sums are added in
// ascending order.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/exp.h"

namespace forebay::sample {

inline constexpr int kChunkTokens = 1024;
inline constexpr int kLanes = 16;
// The logit of a token that cannot be drawn.
inline constexpr float kNone = -std::numeric_limits<float>::infinity();

using base::Exp;
using base::Log;

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

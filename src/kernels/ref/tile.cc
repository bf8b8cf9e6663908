// A step of class `amx`, as the documents write it. std::fma is the hardware's, whose denormals the
// caller's FTZ and DAZ flags flush (this file is compiled with FMA instructions).
#include "kernels/ref/tile.h"

#include <algorithm>
#include <cmath>

#include "kernels/kv_layout.h"

namespace forebay::kernels::ref {
namespace {

using tensor::BF16;
using tensor::ToFloat;

constexpr int kPairs = kTileDepth / 2;

// Even elements in one chain, odd ones in another.
template <int kColumns>
void AddSplit(const BF16* x, const BF16* w, int columns, float* sums) {
  float even[kColumns] = {}, odd[kColumns] = {};
  for (int pair = 0; pair < kPairs; ++pair, x += 2, w += 2 * columns) {
    for (int c = 0; c < kColumns; ++c) {
      even[c] = std::fma(ToFloat(x[0]), ToFloat(w[2 * c]), even[c]);
      odd[c] = std::fma(ToFloat(x[1]), ToFloat(w[2 * c + 1]), odd[c]);
    }
  }
  for (int c = 0; c < kColumns; ++c) sums[c] += even[c] + odd[c];
}

// One chain; element kFirst of each pair comes first.
template <int kColumns, int kFirst>
void AddInTurn(const BF16* x, const BF16* w, int columns, float* sums) {
  constexpr int kSecond = 1 - kFirst;
  float chains[kColumns];
  std::copy_n(sums, kColumns, chains);
  for (int pair = 0; pair < kPairs; ++pair, x += 2, w += 2 * columns) {
    for (int c = 0; c < kColumns; ++c) {
      chains[c] = std::fma(ToFloat(x[kFirst]), ToFloat(w[2 * c + kFirst]), chains[c]);
      chains[c] = std::fma(ToFloat(x[kSecond]), ToFloat(w[2 * c + kSecond]), chains[c]);
    }
  }
  std::copy_n(chains, kColumns, sums);
}

template <int kColumns>
void AddColumns(TileOrder order, const BF16* x, const BF16* w, int columns, float* sums) {
  order == TileOrder::kSplit       ? AddSplit<kColumns>(x, w, columns, sums)
  : order == TileOrder::kEvenFirst ? AddInTurn<kColumns, 0>(x, w, columns, sums)
                                   : AddInTurn<kColumns, 1>(x, w, columns, sums);
}

}  // namespace

void AddTileStep(TileOrder order, const BF16* x, const BF16* w, int columns, float* sums) {
  constexpr int kColumns = 16;  // at a time
  int c = 0;
  for (; c + kColumns <= columns; c += kColumns)
    AddColumns<kColumns>(order, x, w + 2 * c, columns, sums + c);
  for (; c < columns; ++c) AddColumns<1>(order, x, w + 2 * c, columns, sums + c);
}

void AddTileSteps(TileOrder order, const BF16* x, int first, int last, const BF16* w, int columns,
                  float* sums) {
  for (int k = first / kTileDepth * kTileDepth; k < last; k += kTileDepth) {
    const int begin = std::max(first - k, 0), end = std::min(last - k, kTileDepth);
    const BF16* const of_step = w + int64_t{k} * columns;
    if (end - begin == kTileDepth) {
      AddTileStep(order, x + k, of_step, columns, sums);
      continue;
    }
    BF16 step_x[kTileDepth] = {}, step_w[kTileDepth * kMaxValueDim];
    std::copy(x + k + begin, x + k + end, step_x + begin);
    std::fill_n(step_w, kTileDepth * columns, BF16{});
    for (int i = begin; i < end; ++i) {
      const int at = i / 2 * columns * 2 + i % 2;
      for (int c = 0; c < columns; ++c) step_w[at + 2 * c] = of_step[at + 2 * c];
    }
    AddTileStep(order, step_x, step_w, columns, sums);
  }
}

float TileStep(TileOrder order, const BF16* x, const BF16* w, float sum) {
  AddTileStep(order, x, w, 1, &sum);
  return sum;
}

}  // namespace forebay::kernels::ref

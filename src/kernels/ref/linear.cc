// The oracle: plain loops in the order of the contract. std::fma is the hardware's, whose denormals
// the caller's FTZ and DAZ flags flush (this file is compiled with FMA instructions).
#include <cmath>

#include "kernels/exp.h"
#include "kernels/linear_sets.h"
#include "kernels/tile_order.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {
namespace {

using tensor::BF16;

// The sum of a leaf for one output: x [k_leaf], w its column, pairs kPanelColumns pairs apart.
//
// Class `pair`: one chain over the pairs, the odd element of each first; K is padded with +0 to
// whole pairs.
template <typename T>
float PairChain(const T* x, const T* w, int32_t k_leaf) {
  float sum = 0;
  for (int32_t k = 0; k < k_leaf; k += 2, w += 2 * kPanelColumns) {
    const T odd = k + 1 < k_leaf ? x[k + 1] : T{};
    sum = std::fma(tensor::ToFloat(odd), tensor::ToFloat(w[1]), sum);
    sum = std::fma(tensor::ToFloat(x[k]), tensor::ToFloat(w[0]), sum);
  }
  return sum;
}

// Class `amx`: a chain of steps; K is padded with +0 to whole steps.
template <TileOrder kOrder>
float StepChain(const BF16* x, const BF16* w, int32_t k_leaf) {
  float sum = 0;
  for (int32_t k = 0; k < k_leaf; k += kTileDepth) {
    BF16 step_x[kTileDepth] = {}, step_w[kTileDepth] = {};
    for (int32_t i = 0; i < kTileDepth && k + i < k_leaf; ++i) {
      step_x[i] = x[k + i];
      step_w[i] = w[(k + i) / 2 * 2 * kPanelColumns + (k + i) % 2];
    }
    sum = TileStep(kOrder, step_x, step_w, sum);
  }
  return sum;
}

template <typename T, float (*kChain)(const T* x, const T* w, int32_t k_leaf) = PairChain<T>>
struct RefLinear {
  const LinearArgs& args;
  const PackedWeight& weight = args.weight;

  float LeafSum(int64_t row, int panel, int column, int leaf) const {
    const int32_t begin = weight.leaves.begin[leaf], k_leaf = weight.leaves.begin[leaf + 1] - begin;
    const int64_t x_row = args.x_rows == nullptr ? row : args.x_rows[row];
    const T* x = reinterpret_cast<const T*>(args.x) + x_row * args.x_stride + begin;
    const T* w =
        reinterpret_cast<const T*>(weight.tiles[leaf * weight.num_panels + panel]) + column * 2;
    return kChain(x, w, k_leaf);
  }

  // The node of the whole layer's tree whose first leaf and level are given.
  float TreeSum(int64_t row, int panel, int column, int first, int level) const {
    if (level == 0) return LeafSum(row, panel, column, first - weight.leaves.leaves_before);
    const int second = first + (1 << (level - 1));
    const float sum = TreeSum(row, panel, column, first, level - 1);
    return second < weight.leaves.tree_leaves()
               ? sum + TreeSum(row, panel, column, second, level - 1)
               : sum;
  }

  float Sum(int64_t row, int panel, int column) const {
    int level = 0;
    while ((1 << level) < weight.leaves.num_leaves) ++level;
    const float sum = TreeSum(row, panel, column, 0, level);
    return weight.bias == nullptr ? sum : sum + weight.bias[panel * kPanelColumns + column];
  }

  void Output(int64_t row, int panel, int column) const {
    const int64_t at = row * args.y_stride + weight.panels[panel].column + column;
    T* y = reinterpret_cast<T*>(args.y) + at;
    float* y32 = reinterpret_cast<float*>(args.y) + at;
    switch (args.output) {
      case LinearOutput::kF32: *y32 = Sum(row, panel, column); break;
      case LinearOutput::kRounded: *y = tensor::RoundTo<T>(Sum(row, panel, column)); break;
      case LinearOutput::kResidual:
        *y = tensor::RoundTo<T>(Sum(row, panel, column) + tensor::ToFloat(*y));
        break;
      case LinearOutput::kSiluMul:
        *y = tensor::RoundTo<T>(Silu(Sum(row, panel, column)) *
                                Sum(row, panel, column + kPanelColumns / 2));
        break;
      case LinearOutput::kPartial: {
        int first[kMaxLeaves], level[kMaxLeaves];
        const int planes =
            PartialPlanes(weight.leaves, args.leaf_begin, args.leaf_end, first, level);
        for (int plane = 0; plane < planes; ++plane) {
          y32[plane * args.rows * args.y_stride] =
              TreeSum(row, panel, column, first[plane], level[plane]);
        }
      }
    }
  }

  void Run(const device::WorkerContext& context) const {
    const device::Range range = device::StaticPart(context, weight.num_panels);
    for (int64_t panel = range.begin; panel < range.end; ++panel) {
      for (int64_t row = 0; row < args.rows; ++row) {
        for (int column = 0; column < weight.panels[panel].width; ++column) {
          Output(row, static_cast<int>(panel), column);
        }
      }
    }
  }
};

template <TileOrder kOrder>
void LinearInSteps(const LinearArgs& args, const device::WorkerContext& context) {
  if (args.weight.dtype == tensor::DType::kBF16) {
    RefLinear<BF16, StepChain<kOrder>>{args}.Run(context);
  } else {
    Linear(args, context);
  }
}

}  // namespace

void Linear(const LinearArgs& args, const device::WorkerContext& context) {
  if (args.weight.dtype == tensor::DType::kBF16) {
    RefLinear<BF16>{args}.Run(context);
  } else {
    RefLinear<float>{args}.Run(context);
  }
}

LinearFunction TileLinear(TileOrder order) {
  switch (order) {
    case TileOrder::kSplit: return &LinearInSteps<TileOrder::kSplit>;
    case TileOrder::kEvenFirst: return &LinearInSteps<TileOrder::kEvenFirst>;
    case TileOrder::kOddFirst: return &LinearInSteps<TileOrder::kOddFirst>;
    case TileOrder::kUnknown: break;
  }
  return nullptr;
}

}  // namespace forebay::kernels::ref

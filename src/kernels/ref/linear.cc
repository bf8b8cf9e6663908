// The oracle: plain loops in the order of the contract. std::fma is the hardware's, whose denormals
// the caller's FTZ and DAZ flags flush (this file is compiled with FMA instructions).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/exp.h"
#include "kernels/expand.h"
#include "kernels/linear_sets.h"
#include "kernels/ref/mma.h"
#include "kernels/ref/tile.h"
#include "kernels/tile_order.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {
namespace {

using tensor::BF16;

// The sums of a leaf for all columns of a panel: x [k_leaf], w the tile. Columns lie in the inner
// loop, which a compiler turns into vectors.
template <typename T>
using LeafSums = void (*)(const T* x, const T* w, int32_t k_leaf, float sums[kPanelColumns]);

// Class `pair`: one chain over the pairs, the odd element of each first; K is padded with +0 to
// whole pairs.
template <typename T>
void PairSums(const T* x, const T* w, int32_t k_leaf, float sums[kPanelColumns]) {
  float chains[kPanelColumns] = {};
  for (int32_t k = 0; k < k_leaf; k += 2, w += 2 * kPanelColumns) {
    const float even = tensor::ToFloat(x[k]),
                odd = tensor::ToFloat(k + 1 < k_leaf ? x[k + 1] : T{});
    for (int column = 0; column < kPanelColumns; ++column) {
      float& sum = chains[column];
      sum = std::fma(odd, tensor::ToFloat(w[2 * column + 1]), sum);
      sum = std::fma(even, tensor::ToFloat(w[2 * column]), sum);
    }
  }
  std::copy_n(chains, kPanelColumns, sums);
}

// Class `amx`: a chain of steps; K is padded with +0 to whole steps.
template <TileOrder kOrder>
void StepSums(const BF16* x, const BF16* w, int32_t k_leaf, float sums[kPanelColumns]) {
  std::fill_n(sums, kPanelColumns, 0.0f);
  AddTileSteps(kOrder, x, 0, k_leaf, w, kPanelColumns, sums);
}

template <MmaOrder kOrder>
void MmaSums(const BF16* x, const BF16* w, int32_t k_leaf, float sums[kPanelColumns]) {
  std::fill_n(sums, kPanelColumns, 0.0f);
  AddMmaSteps(kOrder, x, 0, k_leaf, w, kPanelColumns, sums);
}

template <typename T, LeafSums<T> kLeafSums = PairSums<T>>
class RefLinear {
 public:
  explicit RefLinear(const LinearArgs& args) : args_(args) {}

  void Run(const device::WorkerContext& context) {
    const device::Range range = device::StaticPart(context, weight_.num_panels);
    for (int64_t panel = range.begin; panel < range.end; ++panel) {
      for (int leaf = args_.leaf_begin; leaf < args_.leaf_end && !weight_.is_int8(); ++leaf)
        tiles_[leaf] = TileOf(leaf, panel);
      for (int64_t row = 0; row < args_.rows; ++row) {
        for (int leaf = args_.leaf_begin; leaf < args_.leaf_end; ++leaf)
          weight_.is_int8() ? SumCodes(row, leaf, panel) : SumLeaf(row, leaf);
        for (int column = 0; column < weight_.panels[panel].width; ++column)
          Output(row, static_cast<int>(panel), column);
      }
    }
  }

 private:
  // The tile as values of T.
  const T* TileOf(int leaf, int64_t panel) {
    if (weight_.FormOf(panel) == TileForm::kExpanded)
      return reinterpret_cast<const T*>(weight_.tiles[leaf * weight_.num_panels + panel]);
    expanded_[leaf].resize(static_cast<size_t>(weight_.ExpandedTileBytes(leaf)) / sizeof(T));
    Expand(PartOf(weight_, leaf, panel, reinterpret_cast<std::byte*>(expanded_[leaf].data())));
    return expanded_[leaf].data();
  }

  const T* LeafInputs(int64_t row, int leaf) const {
    const int64_t x_row = args_.x_rows == nullptr ? row : args_.x_rows[row];
    return reinterpret_cast<const T*>(args_.x) + x_row * args_.x_stride +
           weight_.leaves.begin[leaf];
  }
  int32_t LeafLength(int leaf) const {
    return weight_.leaves.begin[leaf + 1] - weight_.leaves.begin[leaf];
  }

  void SumLeaf(int64_t row, int leaf) {
    kLeafSums(LeafInputs(row, leaf), tiles_[leaf], LeafLength(leaf), sums_[leaf]);
  }

  // Type `w8a8`: the leaf's inputs become codes with one scale, whose products add exactly.
  void SumCodes(int64_t row, int leaf, int64_t panel) {
    const T* const x = LeafInputs(row, leaf);
    const int32_t length = LeafLength(leaf);
    const std::byte* const tile = weight_.tiles[leaf * weight_.num_panels + panel];
    const TileParts parts = PartsOf(TileForm::kW8A8, 0, length);
    const float scale = ScaleOf(x, length);
    for (int column = 0; column < kPanelColumns; ++column) {
      int32_t sum = 0;
      for (int32_t k = 0; k < length && std::isfinite(scale); ++k) {
        const auto code = static_cast<int32_t>(std::lrintf(tensor::ToFloat(x[k]) / scale));
        sum +=
            code * static_cast<int8_t>(
                       tile[k / kQuadValues * kQuadBytes + column * kQuadValues + k % kQuadValues]);
      }
      float column_scale;
      std::memcpy(&column_scale, tile + parts.scales + column * sizeof(float), sizeof(float));
      sums_[leaf][column] = static_cast<float>(sum) * scale * column_scale;
    }
  }
  static float ScaleOf(const T* x, int32_t length) {
    float most = 0;
    for (int32_t k = 0; k < length; ++k) {
      const float value = std::fabs(tensor::ToFloat(x[k]));
      if (!std::isfinite(value)) return std::numeric_limits<float>::quiet_NaN();
      most = std::max(most, value);
    }
    const float scale = most / 127.0f;
    return scale == 0 ? 1 : scale;
  }

  // The node of the whole layer's tree whose first leaf and level are given.
  float TreeSum(int column, int first, int level) const {
    if (level == 0) return sums_[first - weight_.leaves.leaves_before][column];
    const int second = first + (1 << (level - 1));
    const float sum = TreeSum(column, first, level - 1);
    return second < weight_.leaves.tree_leaves() ? sum + TreeSum(column, second, level - 1) : sum;
  }

  float Sum(int panel, int column) const {
    int level = 0;
    while ((1 << level) < weight_.leaves.num_leaves) ++level;
    const float sum = TreeSum(column, 0, level);
    return weight_.bias == nullptr ? sum : sum + weight_.bias[panel * kPanelColumns + column];
  }

  void Output(int64_t row, int panel, int column) const {
    const int64_t at = row * args_.y_stride + weight_.panels[panel].column + column;
    T* y = reinterpret_cast<T*>(args_.y) + at;
    float* y32 = reinterpret_cast<float*>(args_.y) + at;
    const auto up = [&] { return Sum(panel, column + kPanelColumns / 2); };
    switch (args_.output) {
      case LinearOutput::kF32: *y32 = Sum(panel, column); break;
      case LinearOutput::kRounded: *y = tensor::RoundTo<T>(Sum(panel, column)); break;
      case LinearOutput::kResidual:
        *y = tensor::RoundTo<T>(Sum(panel, column) + tensor::ToFloat(*y));
        break;
      case LinearOutput::kSiluMul: *y = tensor::RoundTo<T>(Silu(Sum(panel, column)) * up()); break;
      case LinearOutput::kGeluMul: *y = tensor::RoundTo<T>(Gelu(Sum(panel, column)) * up()); break;
      case LinearOutput::kErfGelu: *y = tensor::RoundTo<T>(ErfGelu(Sum(panel, column))); break;
      case LinearOutput::kReluSquared:
        *y = tensor::RoundTo<T>(ReluSquared(Sum(panel, column)));
        break;
      case LinearOutput::kErfGeluMul:
        *y = tensor::RoundTo<T>(ErfGelu(Sum(panel, column)) * up());
        break;
      case LinearOutput::kClampedSiluMul:
        *y = tensor::RoundTo<T>(ClampedSilu(Sum(panel, column)) * ClampedUp(up()));
        break;
      case LinearOutput::kPartial: {
        int first[kMaxLeaves], level[kMaxLeaves];
        const int planes =
            PartialPlanes(weight_.leaves, args_.leaf_begin, args_.leaf_end, first, level);
        for (int plane = 0; plane < planes; ++plane) {
          y32[plane * args_.rows * args_.y_stride] = TreeSum(column, first[plane], level[plane]);
        }
      }
    }
  }

  const LinearArgs& args_;
  const PackedWeight& weight_ = args_.weight;
  std::vector<T> expanded_[kMaxLeaves];  // of one panel
  const T* tiles_[kMaxLeaves] = {};
  float sums_[kMaxLeaves][kPanelColumns];  // of one row and panel
};

template <LeafSums<BF16> kLeafSums>
void LinearOfSums(const LinearArgs& args, const device::WorkerContext& context) {
  args.weight.dtype == tensor::DType::kBF16 ? RefLinear<BF16, kLeafSums>(args).Run(context)
                                            : RefLinear<float>(args).Run(context);
}

template <TileOrder kOrder>
constexpr LinearFunction kTileLinear = &LinearOfSums<StepSums<kOrder>>;

}  // namespace

void Linear(const LinearArgs& args, const device::WorkerContext& context) {
  LinearOfSums<PairSums<BF16>>(args, context);
}

LinearFunction TileLinear(TileOrder order) {
  switch (order) {
    case TileOrder::kSplit: return kTileLinear<TileOrder::kSplit>;
    case TileOrder::kEvenFirst: return kTileLinear<TileOrder::kEvenFirst>;
    case TileOrder::kOddFirst: return kTileLinear<TileOrder::kOddFirst>;
    case TileOrder::kUnknown: break;
  }
  return nullptr;
}

LinearFunction MmaLinear(MmaOrder order) {
  return order == MmaOrder::kK16F25 ? &LinearOfSums<MmaSums<MmaOrder::kK16F25>>
                                    : &LinearOfSums<MmaSums<MmaOrder::kK8F24>>;
}

}  // namespace forebay::kernels::ref

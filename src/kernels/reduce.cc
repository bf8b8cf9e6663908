#include "kernels/reduce.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/kernel_set.h"
#include "kernels/sets.h"
#include "tensor/bf16.h"

namespace forebay::kernels {
namespace {

// Columns that are summed at a time: the stack of 4 nodes stays in the first-level cache.
constexpr int kBlock = 256;
constexpr int kStackNodes = 4;  // a tree of 8 leaves keeps so many nodes

// Says after which plane how many nodes are added, and checks that the planes are a cut through the
// tree.
class TreeOrder {
 public:
  explicit TreeOrder(ReduceArgs* args) : args_(*args) {
    int root = 0;
    while ((1 << root) < args_.num_leaves) ++root;
    Visit(0, root);
    FB_CHECK(next_ == args_.num_planes, "{} planes for {} leaves, {} cover them", args_.num_planes,
             args_.num_leaves, next_);
  }

 private:
  void Visit(int first, int level) {
    FB_CHECK(next_ < args_.num_planes, "{} planes lack leaf {}", args_.num_planes, first);
    const ReducePlane& plane = args_.planes[next_];
    if (plane.first_leaf == first && plane.level == level) {
      args_.merges[next_++] = 0;
      return;
    }
    FB_CHECK(level > 0, "plane {} is (leaf {}, level {}), leaf {} is due", next_, plane.first_leaf,
             plane.level, first);
    Visit(first, level - 1);
    const int second = first + (1 << (level - 1));
    if (second >= args_.num_leaves) return;
    Visit(second, level - 1);
    ++args_.merges[next_ - 1];
  }

  ReduceArgs& args_;
  int next_ = 0;
};

// sums[0, width) of a row from `column` on.
void SumBlock(const ReduceArgs& args, int64_t row, int64_t column, int width, float* sums) {
  float stack[kStackNodes][kBlock];
  int top = -1;
  for (int p = 0; p < args.num_planes; ++p) {
    const float* const plane = args.planes[p].sums + row * args.stride + column;
    if (args.merges[p] == 0) {
      std::copy(plane, plane + width, stack[++top]);
      continue;
    }
    float* left = stack[top];
    for (int i = 0; i < width; ++i) left[i] += plane[i];
    for (int merge = 1; merge < args.merges[p]; ++merge) {
      const float* const right = stack[top--];
      left = stack[top];
      for (int i = 0; i < width; ++i) left[i] += right[i];
    }
  }
  if (args.bias == nullptr) {
    std::copy(stack[0], stack[0] + width, sums);
  } else {
    for (int i = 0; i < width; ++i) sums[i] = stack[0][i] + args.bias[column + i];
  }
}

template <typename T>
void FinishBlock(const ReduceArgs& args, int64_t row, int64_t column, int width,
                 const float* sums) {
  const int64_t at = row * args.y_stride + column;
  T* const y = reinterpret_cast<T*>(args.y) + at;
  switch (args.output) {
    case LinearOutput::kResidual: {
      const T* const residual =
          args.residual == nullptr ? y : reinterpret_cast<const T*>(args.residual) + at;
      for (int i = 0; i < width; ++i)
        y[i] = tensor::RoundTo<T>(sums[i] + tensor::ToFloat(residual[i]));
      break;
    }
    case LinearOutput::kRounded:
      for (int i = 0; i < width; ++i) y[i] = tensor::RoundTo<T>(sums[i]);
      break;
    default: std::copy(sums, sums + width, reinterpret_cast<float*>(args.y) + at);
  }
}

}  // namespace

void ref::Reduce(const ReduceArgs& args, const device::WorkerContext& context) {
  const int64_t blocks = (args.n + kBlock - 1) / kBlock;
  const device::Range part = device::StaticPart(context, args.rows * blocks);
  for (int64_t unit = part.begin; unit < part.end; ++unit) {
    const int64_t row = unit / blocks, column = unit % blocks * kBlock;
    const auto width = static_cast<int>(std::min<int64_t>(kBlock, args.n - column));
    float sums[kBlock];
    SumBlock(args, row, column, width, sums);
    if (args.dtype == tensor::DType::kBF16) {
      FinishBlock<tensor::BF16>(args, row, column, width, sums);
    } else {
      FinishBlock<float>(args, row, column, width, sums);
    }
  }
}

namespace {

cost::OpDesc Describe(const char* label, const ReduceArgs& args) {
  const double elements = static_cast<double>(args.rows) * args.n;
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kCollective;
  desc.label = label;
  desc.rows = args.rows;
  desc.columns = args.n;
  desc.flops = elements * args.num_planes;
  const bool scatters = args.of_rows > 0;
  desc.read_bytes =
      static_cast<double>(scatters ? args.of_rows : args.rows) * args.n * args.wire_bytes;
  desc.collective = scatters ? cost::Collective::kReduceScatter : cost::Collective::kAllReduce;
  desc.ranks = args.ranks;
  return desc;
}

}  // namespace

int NumPlanes(int num_leaves, int leaf_begin, int leaf_end) {
  int first[kMaxLeaves], level[kMaxLeaves];
  return PartialPlanes(num_leaves, leaf_begin, leaf_end, first, level);
}

void AddPlanes(int leaf_begin, int leaf_end, const float* sums, ReduceArgs* args) {
  int first[kMaxLeaves], level[kMaxLeaves];
  const int planes = PartialPlanes(args->num_leaves, leaf_begin, leaf_end, first, level);
  FB_CHECK(args->num_planes + planes <= kMaxLeaves, "more than {} planes", kMaxLeaves);
  for (int plane = 0; plane < planes; ++plane) {
    args->planes[args->num_planes++] = {sums + plane * args->rows * args->stride, first[plane],
                                        level[plane]};
  }
}

void KeepRows(int64_t begin, int32_t rows, ReduceArgs* args) {
  FB_CHECK(begin >= 0 && begin + rows <= args->rows, "rows [{}, {}) of {}", begin, begin + rows,
           args->rows);
  args->of_rows = args->rows;
  args->rows = rows;
  for (int plane = 0; plane < args->num_planes; ++plane)
    args->planes[plane].sums += begin * args->stride;
}

void ReducePlanes(device::Stream& stream, const KernelSet& kernels, const char* label,
                  ReduceArgs args) {
  if (args.rows == 0) return;
  const bool rounded = args.output != LinearOutput::kF32;
  FB_CHECK(
      args.output == LinearOutput::kResidual || args.output == LinearOutput::kRounded || !rounded,
      "{}: output mode {} of a reduction", label, static_cast<int>(args.output));
  FB_CHECK(args.stride >= args.n && args.y_stride >= args.n, "{}: strides {} and {} of rows of {}",
           label, args.stride, args.y_stride, args.n);
  const TreeOrder order(&args);
  device::Operation operation = device::MakeOperation(Describe(label, args), args, kernels.reduce);
  const uint64_t rows = static_cast<uint64_t>(args.rows), n = static_cast<uint64_t>(args.n);
  const uint64_t element = rounded ? tensor::SizeOf(args.dtype) : sizeof(float);
  for (int plane = 0; plane < args.num_planes; ++plane) {
    operation.Reads(args.planes[plane].sums,
                    ((rows - 1) * static_cast<uint64_t>(args.stride) + n) * sizeof(float));
  }
  if (args.bias != nullptr) operation.Reads(args.bias, n * sizeof(float));
  if (args.residual != nullptr) {
    operation.Reads(args.residual,
                    ((rows - 1) * static_cast<uint64_t>(args.y_stride) + n) * element);
  }
  operation.Writes(args.y, ((rows - 1) * static_cast<uint64_t>(args.y_stride) + n) * element);
  stream.Enqueue(operation);
}

}  // namespace forebay::kernels

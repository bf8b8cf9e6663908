#include "kernels/linear.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/kernel_set.h"
#include "kernels/number_format.h"
#include "kernels/tile_order.h"

namespace forebay::kernels {
namespace {

int64_t Outputs(const LinearArgs& args) {
  const int64_t all = IsGated(args.output) ? 2ll * args.weight.n : args.weight.n;
  // some of the panels, as their owner has them
  return std::min(all, int64_t{args.weight.num_panels} * kPanelColumns);
}

bool Rounded(LinearOutput output) {
  return output != LinearOutput::kF32 && output != LinearOutput::kPartial;
}

cost::OpDesc Describe(const char* label, const LinearArgs& args) {
  const PackedWeight& weight = args.weight;
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kLinear;
  desc.label = label;
  desc.rows = args.rows;
  desc.columns = Outputs(args);
  desc.weight_format = weight.format();
  desc.leaves = args.leaf_end - args.leaf_begin;
  desc.depth = weight.leaves.begin[args.leaf_end] - weight.leaves.begin[args.leaf_begin];
  desc.flops = 2.0 * static_cast<double>(desc.rows) * static_cast<double>(desc.columns) *
               static_cast<double>(desc.depth);
  for (int leaf = args.leaf_begin; leaf < args.leaf_end; ++leaf) {
    desc.read_bytes += static_cast<double>(weight.LeafBytes(leaf));
  }
  if (weight.has_stored_tiles()) {
    desc.stored_bytes = desc.read_bytes / (static_cast<double>(desc.depth) * kPanelColumns *
                                           static_cast<double>(weight.num_panels));
  }
  return desc;
}

void Check(const char* label, const LinearArgs& args) {
  const PackedWeight& weight = args.weight;
  const bool partial = args.output == LinearOutput::kPartial;
  FB_CHECK(weight.dtype == tensor::DType::kBF16 || weight.dtype == tensor::DType::kF32,
           "{}: weight of {}", label, tensor::Name(weight.dtype));
  FB_CHECK(weight.leaves.begin[weight.leaves.num_leaves] == weight.k,
           "{}: leaves end at {}, K is {}", label, weight.leaves.begin[weight.leaves.num_leaves],
           weight.k);
  for (int leaf = 0; leaf < weight.leaves.num_leaves; ++leaf) {
    FB_CHECK(weight.leaves.begin[leaf] < weight.leaves.begin[leaf + 1], "{}: leaf {} is empty",
             label, leaf);
  }
  FB_CHECK(0 <= args.leaf_begin && args.leaf_begin < args.leaf_end &&
               args.leaf_end <= weight.leaves.num_leaves,
           "{}: leaves [{}, {}) of {}", label, args.leaf_begin, args.leaf_end,
           weight.leaves.num_leaves);
  FB_CHECK(partial || args.leaf_end - args.leaf_begin == weight.leaves.tree_leaves(),
           "{}: a full output needs all {} leaves, not [{}, {})", label,
           weight.leaves.tree_leaves(), args.leaf_begin, args.leaf_end);
  FB_CHECK(args.x_rows == nullptr, "{}: rows of x by number", label);
  FB_CHECK(args.x_form == RowForm::kRows ||
               (args.x_stride == weight.k && RowFormOf(weight) == RowForm::kChunks),
           "{}: chunks of x, of rows of {} for K = {}", label, args.x_stride, weight.k);
  FB_CHECK(args.y_form == RowForm::kRows ||
               (Rounded(args.output) && args.y_stride == weight.n && weight.n % kChunkSide == 0),
           "{}: chunks of y, of rows of {}", label, args.y_stride);
  FB_CHECK(args.x_stride >= weight.k && args.y_stride >= weight.n,
           "{}: strides {} and {} of rows of {} and {}", label, args.x_stride, args.y_stride,
           weight.k, weight.n);
  FB_CHECK(reinterpret_cast<uintptr_t>(args.workspace) % 64 == 0 && args.workspace != nullptr,
           "{}: no workspace on a 64-byte border", label);
}

// The tiles, neighbours as one range. Some may lie in slots that a pull fills.
void LinearReads(const void* raw, std::vector<device::Access>* reads) {
  const LinearArgs& args = *static_cast<const LinearArgs*>(raw);
  const PackedWeight& weight = args.weight;
  const std::byte* end = nullptr;
  for (int leaf = args.leaf_begin; leaf < args.leaf_end; ++leaf) {
    for (int32_t panel = 0; panel < weight.num_panels; ++panel) {
      const auto bytes = static_cast<uint64_t>(weight.TileBytes(leaf, panel));
      const std::byte* tile = weight.tiles[leaf * weight.num_panels + panel];
      if (tile != end) reads->push_back({tile, 0, false});
      reads->back().bytes += bytes;
      end = tile + bytes;
    }
  }
}

}  // namespace

RowForm RowFormOf(const PackedWeight& weight) {
  if (weight.packed != PackedForm::kCuda || weight.dtype != tensor::DType::kBF16)
    return RowForm::kRows;
  const LeafBorders& leaves = weight.leaves;
  const bool whole = std::all_of(leaves.begin, leaves.begin + leaves.num_leaves + 1,
                                 [](int32_t border) { return border % kChunkSide == 0; });
  return whole ? RowForm::kChunks : RowForm::kRows;
}

uint64_t LinearWorkspaceBytes(tensor::DType dtype, int64_t rows, int64_t k, PackedForm packed) {
  if (packed == PackedForm::kCuda && dtype == tensor::DType::kBF16) {
    // Chunks of x, each leaf padded to whole ones.
    const int64_t chunks = (k + kMaxLeaves * (kChunkSide - 1)) / kChunkSide;
    return static_cast<uint64_t>((rows + kChunkSide - 1) / kChunkSide * chunks * kChunkBytes);
  }
  // At most an fp32 per element, of either dtype, each leaf padded to whole pairs; or bf16 in tiles
  // of 16 rows, each leaf padded to whole steps.
  const int64_t floats = rows * (k + kMaxLeaves);
  const int64_t tiles =
      (rows < 16 ? rows : (rows + 15) / 16 * 16) * (k + kMaxLeaves * (kTileDepth - 1));
  const auto bytes = static_cast<uint64_t>(
      std::max<int64_t>(floats * sizeof(float), tiles * sizeof(tensor::BF16)));
  return (bytes + 63) / 64 * 64;
}

int PartialPlanes(int num_leaves, int leaf_begin, int leaf_end, int first_leaf[kMaxLeaves],
                  int level[kMaxLeaves]) {
  int planes = 0;
  for (int leaf = leaf_begin; leaf < leaf_end;) {
    // The highest node that begins here and ends in the range; beyond the root there is none.
    int top = 0;
    while ((1 << top) < num_leaves && leaf % (2 << top) == 0 &&
           std::min(leaf + (2 << top), num_leaves) <= leaf_end)
      ++top;
    first_leaf[planes] = leaf;
    level[planes] = top;
    ++planes;
    leaf += 1 << top;
  }
  return planes;
}

int PartialPlanes(const LeafBorders& leaves, int leaf_begin, int leaf_end,
                  int first_leaf[kMaxLeaves], int level[kMaxLeaves]) {
  return PartialPlanes(leaves.tree_leaves(), leaves.leaves_before + leaf_begin,
                       leaves.leaves_before + leaf_end, first_leaf, level);
}

void Linear(device::Stream& stream, const KernelSet& kernels, const char* label,
            const LinearArgs& args) {
  if (args.rows == 0) return;
  Check(label, args);
  const PackedWeight& weight = args.weight;
  const uint64_t element = tensor::SizeOf(weight.dtype);
  const uint64_t output_element = Rounded(args.output) ? element : sizeof(float);
  uint64_t planes = 1;
  if (args.output == LinearOutput::kPartial) {
    int first[kMaxLeaves], level[kMaxLeaves];
    planes = PartialPlanes(weight.leaves, args.leaf_begin, args.leaf_end, first, level);
  }
  const auto x_rows = static_cast<uint64_t>(RoomForRows(args.x_form, args.rows));
  const auto y_rows = static_cast<uint64_t>(RoomForRows(args.y_form, planes * args.rows));
  const uint64_t x_bytes = ((x_rows - 1) * args.x_stride + weight.k) * element;
  const uint64_t y_bytes = ((y_rows - 1) * args.y_stride + weight.n) * output_element;

  device::Operation operation = device::MakeOperation(Describe(label, args), args, kernels.linear);
  operation.Reads(args.x, x_bytes).Writes(args.y, y_bytes);
  operation.Writes(args.workspace,
                   LinearWorkspaceBytes(weight.dtype, args.rows, weight.k, weight.packed));
  operation.Reads(weight.tiles,
                  sizeof(*weight.tiles) * weight.leaves.num_leaves * weight.num_panels);
  operation.Reads(weight.panels, sizeof(*weight.panels) * weight.num_panels);
  if (weight.bias != nullptr)
    operation.Reads(weight.bias, sizeof(float) * kPanelColumns * weight.num_panels);
  operation.further_accesses = LinearReads;
  stream.Enqueue(operation);
}

}  // namespace forebay::kernels

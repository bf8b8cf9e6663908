#include "kernels/experts.h"

#include <algorithm>

#include "base/check.h"
#include "base/units.h"
#include "kernels/cpu/linear_blocking.h"
#include "kernels/kernel_set.h"
#include "kernels/number_format.h"

namespace forebay::kernels {
namespace {

uint64_t RunBytes(const ExpertsArgs& args) { return static_cast<uint64_t>(args.weight.bytes()); }

// All experts may have rows, or none.
cost::OpDesc Describe(const char* label, const ExpertsArgs& args) {
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kExperts;
  desc.label = label;
  desc.columns = int64_t{args.weight.num_panels} * kPanelColumns;
  desc.depth = args.weight.k;
  desc.weight_format = args.weight.format();
  if (args.weight.has_stored_tiles()) {
    desc.stored_bytes = static_cast<double>(RunBytes(args)) /
                        (static_cast<double>(desc.columns) * static_cast<double>(desc.depth));
  }
  return desc;
}

void Complete(const void* raw, cost::OpDesc* desc) {
  const ExpertsArgs& args = *static_cast<const ExpertsArgs*>(raw);
  desc->rows = args.offsets[args.num_experts] - args.offsets[0];
  desc->experts = desc->busiest_rows = 0;
  for (int32_t expert = 0; expert < args.num_experts; ++expert) {
    const int64_t rows = args.offsets[expert + 1] - args.offsets[expert];
    desc->experts += rows > 0;
    desc->busiest_rows = std::max(desc->busiest_rows, rows);
  }
  desc->flops = 2.0 * static_cast<double>(desc->rows) * static_cast<double>(desc->columns) *
                static_cast<double>(desc->depth);
  desc->read_bytes = static_cast<double>(desc->experts) * static_cast<double>(RunBytes(args));
}

// The runs of experts that have rows.
void RunReads(const void* raw, std::vector<device::Access>* reads) {
  const ExpertsArgs& args = *static_cast<const ExpertsArgs*>(raw);
  for (int32_t expert = 0; expert < args.num_experts; ++expert) {
    if (args.offsets[expert] < args.offsets[expert + 1])
      reads->push_back({args.runs[expert], RunBytes(args), false});
  }
}

void Check(const char* label, const ExpertsArgs& args) {
  const PackedWeight& weight = args.weight;
  FB_CHECK(weight.dtype == tensor::DType::kBF16 || weight.dtype == tensor::DType::kF32,
           "{}: weight of {}", label, tensor::Name(weight.dtype));
  FB_CHECK(weight.leaves.num_leaves == 1 && weight.leaves.tree_leaves() == 1 &&
               weight.leaves.begin[1] == weight.k && !(args.heads() && weight.bias != nullptr),
           "{}: an expert has {} leaves that end at {} of {}, {} bias; expected one leaf, of heads "
           "no bias",
           label, weight.leaves.tree_leaves(), weight.leaves.begin[weight.leaves.num_leaves],
           weight.k, weight.bias == nullptr ? "no" : "a");
  const bool of_up = IsGated(args.output) || args.output == LinearOutput::kReluSquared;
  FB_CHECK(args.output == LinearOutput::kRounded || (of_up && !args.heads()), "{}: output mode {}",
           label, static_cast<int>(args.output));
  FB_CHECK(args.x_stride >= weight.k && args.y_stride >= weight.n,
           "{}: strides {} and {} of rows of {} and {}", label, args.x_stride, args.y_stride,
           weight.k, weight.n);
  FB_CHECK(args.x_rows == nullptr || args.x_count > 0, "{}: rows of x by number, of {}", label,
           args.x_count);
  FB_CHECK(args.codes == nullptr ? !args.coded : weight.is_int8() && args.x_rows != nullptr,
           "{}: codes of {} rows of x {}, of weights that are {}int8", label, args.x_count,
           args.coded ? "made before" : "to be made", weight.is_int8() ? "" : "not ");
  FB_CHECK(args.num_experts > 0 && (args.runs != nullptr) == !args.heads() &&
               (weight.tiles != nullptr) == args.heads() && !(args.heads() && args.x_rows),
           "{}: {} experts with {} runs and {} offsets, {} tiles; expected runs and offsets, or "
           "tiles alone",
           label, args.num_experts, args.runs ? "their" : "no", args.offsets ? "their" : "no",
           weight.tiles ? "their" : "no");
}

}  // namespace

uint64_t ExpertsScratch(tensor::DType dtype, int64_t max_rows, int64_t k, int64_t num_panels,
                        bool stored) {
  const uint64_t tiles = static_cast<uint64_t>(num_panels) * sizeof(const std::byte*);
  return kSumsBytes + base::RoundUp(tiles, 64) +
         LinearWorkspaceBytes(dtype, std::min<int64_t>(max_rows, kMaxBlockRows), k) +
         (stored ? kExpandedBytes : 0);
}

void Experts(device::Stream& stream, const KernelSet& kernels, const char* label,
             const ExpertsArgs& args) {
  if (args.max_rows == 0) return;
  Check(label, args);
  const PackedWeight& weight = args.weight;
  const uint64_t element = tensor::SizeOf(weight.dtype);
  const uint64_t rows = static_cast<uint64_t>(args.max_rows);
  const uint64_t experts = static_cast<uint64_t>(args.num_experts);
  device::Operation operation = device::MakeOperation(Describe(label, args), args, kernels.experts);
  operation.complete = Complete;
  operation.Writes(args.y, ((rows - 1) * args.y_stride + weight.n) * element);
  operation.Reads(args.offsets, (experts + 1) * sizeof(*args.offsets));
  operation.Reads(args.runs, experts * sizeof(*args.runs));
  operation.Reads(weight.panels, sizeof(*weight.panels) * weight.num_panels);
  if (weight.bias != nullptr)
    operation.Reads(weight.bias, sizeof(float) * kPanelColumns * experts * weight.num_panels);
  // Rows of x that are picked by number lie anywhere in it.
  const uint64_t x_rows = args.x_rows == nullptr ? rows : static_cast<uint64_t>(args.x_count);
  if (!args.coded) operation.Reads(args.x, ((x_rows - 1) * args.x_stride + weight.k) * element);
  if (args.codes != nullptr) {
    const uint64_t bytes = x_rows * static_cast<uint64_t>(CodedRowBytes(weight.k));
    args.coded ? operation.Reads(args.codes, bytes) : operation.Writes(args.codes, bytes);
  }
  if (args.x_rows != nullptr) operation.Reads(args.x_rows, rows * sizeof(*args.x_rows));
  operation.further_accesses = RunReads;
  stream.Enqueue(operation);
}

namespace {

void HeadReads(const void* raw, std::vector<device::Access>* reads) {
  const PackedWeight& weight = static_cast<const ExpertsArgs*>(raw)->weight;
  const int32_t tiles = static_cast<const ExpertsArgs*>(raw)->num_experts * weight.num_panels;
  for (int32_t tile = 0; tile < tiles; ++tile)
    reads->push_back({weight.tiles[tile], static_cast<uint64_t>(weight.TileBytes(0, 0)), false});
}

}  // namespace

void Heads(device::Stream& stream, const KernelSet& kernels, const char* label,
           const ExpertsArgs& args) {
  if (args.max_rows == 0) return;
  Check(label, args);
  const PackedWeight& weight = args.weight;
  cost::OpDesc desc = Describe(label, args);
  desc.kind = cost::OpKind::kLinear;
  desc.rows = args.max_rows;
  desc.columns *= args.num_experts;
  desc.flops = 2.0 * static_cast<double>(desc.rows) * static_cast<double>(desc.columns) *
               static_cast<double>(desc.depth);
  desc.read_bytes = static_cast<double>(RunBytes(args)) * args.num_experts;
  const uint64_t element = tensor::SizeOf(weight.dtype);
  // From the first head's first row to the last one's last.
  const auto extent = [&](int64_t stride, int64_t step, int32_t width) {
    return static_cast<uint64_t>((args.max_rows - 1) * stride + (args.num_experts - 1) * step +
                                 width) *
           element;
  };
  device::Operation operation = device::MakeOperation(desc, args, kernels.experts);
  operation.Reads(args.x, extent(args.x_stride, args.x_step, weight.k));
  operation.Writes(args.y, extent(args.y_stride, args.y_step, weight.n));
  operation.Reads(weight.panels, sizeof(*weight.panels) * weight.num_panels);
  operation.further_accesses = HeadReads;
  stream.Enqueue(operation);
}

}  // namespace forebay::kernels

#include "kernels/delta_net.h"

#include "base/check.h"
#include "kernels/kernel_set.h"
#include "kernels/number_format.h"

namespace forebay::kernels {
namespace {

// The whole rows that an operation works on.
uint64_t RowBytes(const StepBatch& batch, int64_t stride) {
  return static_cast<uint64_t>(batch.num_rows) * static_cast<uint64_t>(stride) * sizeof(float);
}

cost::OpDesc Describe(const char* label, const StepBatch& batch, int64_t columns) {
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kOther;
  desc.label = label;
  desc.rows = batch.num_rows;
  desc.columns = columns;
  desc.weight_format = cost::NumberFormat::kF32;
  return desc;
}

// The parts of the places that the step's rows begin from and go to.
template <typename Args>
void TouchPlaces(const Args& args, const StateLayer& layer, int64_t floats,
                 std::vector<device::Access>* accesses) {
  const uint64_t bytes = static_cast<uint64_t>(floats) * sizeof(float);
  for (int32_t i = 0; i < args.batch.num_state_rows; ++i) {
    const StateRows& rows = args.batch.state_rows[i];
    if (rows.from >= 0) accesses->push_back({layer.Of(rows.from), bytes, false});
    accesses->push_back({layer.Of(rows.to), bytes, true});
  }
}

// Of a row and an element of a state matrix: a product for the decay, and fused multiply-adds for
// the change and the output.
constexpr double kMamba2Flops = 5;

}  // namespace

void ShortConv(device::Stream& stream, const KernelSet& kernels, const ShortConvArgs& args) {
  if (args.batch.num_rows == 0) return;
  FB_CHECK(args.channels > 0 && args.channels <= args.stride,
           "short_conv: {} channels of rows of {}", args.channels, args.stride);
  FB_CHECK(args.taps >= 2 && args.taps <= kConvTaps, "short_conv: {} taps; expected 2 to {}",
           args.taps, kConvTaps);
  cost::OpDesc desc = Describe("short_conv", args.batch, args.channels);
  desc.flops = (2.0 * args.taps + 4) * args.batch.num_rows * args.channels;
  desc.read_bytes = desc.write_bytes =
      (1.0 * args.batch.num_rows + (args.taps - 1.0) * args.batch.num_state_rows) * args.channels *
      sizeof(float);
  device::Operation operation = device::MakeOperation(desc, args, kernels.short_conv);
  operation.Writes(args.x, RowBytes(args.batch, args.stride))
      .Reads(args.weight, static_cast<uint64_t>(args.channels * args.taps) * sizeof(float));
  if (args.bias != nullptr)
    operation.Reads(args.bias, static_cast<uint64_t>(args.channels) * sizeof(float));
  operation.further_accesses = [](const void* raw, std::vector<device::Access>* accesses) {
    const auto& conv = *static_cast<const ShortConvArgs*>(raw);
    TouchPlaces(conv, conv.tails, int64_t{conv.taps - 1} * conv.channels, accesses);
  };
  stream.Enqueue(operation);
}

void DeltaNet(device::Stream& stream, const KernelSet& kernels, const DeltaNetArgs& args) {
  if (args.batch.num_rows == 0) return;
  FB_CHECK(
      args.key_dim > 0 && args.key_dim <= kMaxStateKeyDim && args.value_heads % args.key_heads == 0,
      "delta_net: {} value heads over {} key heads of {}; at most {}", args.value_heads,
      args.key_heads, args.key_dim, kMaxStateKeyDim);
  const double elements =
      1.0 * args.value_heads * static_cast<double>(StateMatrixFloats(args.key_dim, args.value_dim));
  cost::OpDesc desc = Describe("delta_net", args.batch, int64_t{args.value_heads} * args.value_dim);
  desc.kind = cost::OpKind::kRecurrence;
  desc.depth = args.key_dim;
  desc.flops = cost::kRecurrenceFlops * args.batch.num_rows * elements;
  desc.read_bytes = desc.write_bytes = args.batch.num_state_rows * elements * sizeof(float);
  device::Operation operation = device::MakeOperation(desc, args, kernels.delta_net);
  const auto heads = static_cast<uint64_t>(args.value_heads);
  operation.Writes(args.x, RowBytes(args.batch, args.stride))
      .Reads(args.a_log, heads * sizeof(float))
      .Reads(args.dt_bias, heads * sizeof(float));
  operation.further_accesses = [](const void* raw, std::vector<device::Access>* accesses) {
    const auto& net = *static_cast<const DeltaNetArgs*>(raw);
    TouchPlaces(net, net.matrices, net.value_heads * StateMatrixFloats(net.key_dim, net.value_dim),
                accesses);
  };
  stream.Enqueue(operation);
}

void Mamba2(device::Stream& stream, const KernelSet& kernels, const Mamba2Args& args) {
  if (args.batch.num_rows == 0) return;
  FB_CHECK(args.state_dim > 0 && args.groups > 0 && args.heads % args.groups == 0,
           "mamba2: {} heads over {} groups of {}", args.heads, args.groups, args.state_dim);
  const double elements =
      1.0 * args.heads * static_cast<double>(StateMatrixFloats(args.state_dim, args.head_dim));
  cost::OpDesc desc = Describe("mamba2", args.batch, int64_t{args.heads} * args.head_dim);
  desc.kind = cost::OpKind::kRecurrence;
  desc.depth = args.state_dim;
  desc.flops = kMamba2Flops * args.batch.num_rows * elements;
  desc.read_bytes = desc.write_bytes = args.batch.num_state_rows * elements * sizeof(float);
  device::Operation operation = device::MakeOperation(desc, args, kernels.mamba2);
  const auto heads = static_cast<uint64_t>(args.heads);
  operation.Writes(args.x, RowBytes(args.batch, args.stride))
      .Reads(args.a_log, heads * sizeof(float))
      .Reads(args.dt_bias, heads * sizeof(float))
      .Reads(args.d, heads * sizeof(float));
  operation.further_accesses = [](const void* raw, std::vector<device::Access>* accesses) {
    const auto& net = *static_cast<const Mamba2Args*>(raw);
    TouchPlaces(net, net.matrices, net.heads * StateMatrixFloats(net.state_dim, net.head_dim),
                accesses);
  };
  stream.Enqueue(operation);
}

void GatedNorm(device::Stream& stream, const KernelSet& kernels, const GatedNormArgs& args) {
  if (args.batch.num_rows == 0) return;
  FB_CHECK(args.heads % args.normed_heads == 0, "gated_norm: {} heads, normed {} at a time",
           args.heads, args.normed_heads);
  const int64_t columns = int64_t{args.heads} * args.dim;
  cost::OpDesc desc = Describe("gated_norm", args.batch, columns);
  desc.flops = 12.0 * args.batch.num_rows * static_cast<double>(columns);
  desc.read_bytes = 2.0 * args.batch.num_rows * static_cast<double>(columns) * sizeof(float);
  device::Operation operation = device::MakeOperation(desc, args, kernels.gated_norm);
  const auto rows = static_cast<uint64_t>(args.batch.num_rows);
  const uint64_t extent =
      ((rows - 1) * static_cast<uint64_t>(args.stride) + static_cast<uint64_t>(columns)) *
      sizeof(float);
  operation.Reads(args.x, extent)
      .Reads(args.z, extent)
      .Writes(args.out, rows * static_cast<uint64_t>(columns) * tensor::SizeOf(args.dtype));
  if (args.gate != StateGate::kWithoutNorm) {
    const int64_t weights = args.gate == StateGate::kBeforeNorm ? columns : args.dim;
    operation.Reads(args.weight, static_cast<uint64_t>(weights) * sizeof(float));
  }
  stream.Enqueue(operation);
}

}  // namespace forebay::kernels

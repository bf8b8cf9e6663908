#include "kernels/norm.h"

#include "base/check.h"
#include "kernels/kernel_set.h"
#include "kernels/number_format.h"

namespace forebay::kernels {
namespace {

void CheckType(const char* label, tensor::DType dtype) {
  FB_CHECK(dtype == tensor::DType::kBF16 || dtype == tensor::DType::kF32, "{}: activations of {}",
           label, tensor::Name(dtype));
}

}  // namespace

void RmsNorm(device::Stream& stream, const KernelSet& kernels, const char* label,
             const RmsNormArgs& args) {
  if (args.num_rows == 0) return;
  CheckType(label, args.dtype);
  FB_CHECK(args.columns > 0 && args.weight != nullptr, "{}: {} columns, {} weight", label,
           args.columns, args.weight ? "a" : "no");
  FB_CHECK(args.centered || args.bias == nullptr, "{}: a bias of a norm that is not centered",
           label);
  FB_CHECK(args.out_form == RowForm::kRows || (args.dtype == tensor::DType::kBF16 &&
                                               args.stride == 0 && args.columns % kChunkSide == 0),
           "{}: chunks of {} columns of {}", label, args.columns, tensor::Name(args.dtype));
  const uint64_t columns = static_cast<uint64_t>(args.columns);
  const auto extent_of = [&](int64_t rows) {
    return static_cast<uint64_t>((rows - 1) * args.Stride()) + columns;
  };
  const uint64_t extent = extent_of(args.num_rows);
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kNorm;
  desc.label = label;
  desc.rows = args.num_rows;
  desc.columns = args.columns;
  desc.weight_format = NumberFormatOf(args.dtype);
  desc.flops = 4.0 * args.num_rows * args.columns;
  desc.read_bytes = static_cast<double>(columns * sizeof(float));
  device::Operation operation = device::MakeOperation(desc, args, kernels.rms_norm);
  // Rows picked by number lie anywhere in x; their extent is not known here.
  if (args.rows == nullptr) {
    operation.Reads(args.x, extent * (args.x_f32 ? sizeof(float) : tensor::SizeOf(args.dtype)));
  }
  operation
      .Writes(args.out,
              extent_of(RoomForRows(args.out_form, args.num_rows)) * tensor::SizeOf(args.dtype))
      .Reads(args.weight, columns * sizeof(float));
  if (args.bias != nullptr) operation.Reads(args.bias, columns * sizeof(float));
  stream.Enqueue(operation);
}

void AddNormed(device::Stream& stream, const KernelSet& kernels, const char* label,
               const AddNormedArgs& args) {
  if (args.rows == 0) return;
  CheckType(label, args.dtype);
  const uint64_t columns = static_cast<uint64_t>(args.columns);
  const uint64_t elements = static_cast<uint64_t>(args.rows) * columns;
  const uint64_t bytes = elements * tensor::SizeOf(args.dtype);
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kNorm;
  desc.label = label;
  desc.rows = args.rows;
  desc.columns = args.columns;
  desc.weight_format = NumberFormatOf(args.dtype);
  desc.flops = 6.0 * args.rows * args.columns;
  desc.read_bytes =
      static_cast<double>(elements * sizeof(float) * (args.beside == nullptr ? 1 : 2));
  device::Operation operation = device::MakeOperation(desc, args, kernels.add_normed);
  operation.Reads(args.x, elements * sizeof(float))
      .Reads(args.residual, bytes)
      .Writes(args.out, bytes);
  if (args.weight != nullptr) operation.Reads(args.weight, columns * sizeof(float));
  if (args.beside != nullptr) operation.Reads(args.beside, elements * sizeof(float));
  stream.Enqueue(operation);
}

void LayerInputs(device::Stream& stream, const KernelSet& kernels, const LayerInputsArgs& args) {
  if (args.batch.num_rows == 0) return;
  CheckType("layer_inputs", args.dtype);
  const uint64_t rows = static_cast<uint64_t>(args.batch.num_rows);
  const uint64_t elements = rows * static_cast<uint64_t>(args.columns);
  const uint64_t bytes = elements * tensor::SizeOf(args.dtype);
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kNorm;
  desc.label = "layer_inputs";
  desc.rows = args.batch.num_rows;
  desc.columns = args.columns;
  desc.weight_format = NumberFormatOf(args.dtype);
  desc.flops = 16.0 * static_cast<double>(elements);
  desc.read_bytes = static_cast<double>(2 * elements * sizeof(float) + bytes);
  device::Operation operation = device::MakeOperation(desc, args, kernels.layer_inputs);
  operation.Reads(args.projected, elements * sizeof(float))
      .Reads(args.gates, elements * sizeof(float))
      .Reads(args.batch.tokens, rows * sizeof(*args.batch.tokens))
      .Writes(args.out, bytes);
  stream.Enqueue(operation);
}

void FinishLogits(device::Stream& stream, const KernelSet& kernels, const FinishLogitsArgs& args) {
  if (args.count == 0) return;
  const auto bytes = static_cast<uint64_t>(args.count) * sizeof(float);
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kNorm;
  desc.label = "finish_logits";
  desc.rows = 1;
  desc.columns = args.count;
  desc.weight_format = NumberFormatOf(tensor::DType::kF32);
  desc.flops = 4.0 * static_cast<double>(args.count);
  desc.read_bytes = desc.write_bytes = static_cast<double>(bytes);
  device::Operation operation = device::MakeOperation(desc, args, kernels.finish_logits);
  operation.Reads(args.values, bytes).Writes(args.values, bytes);
  stream.Enqueue(operation);
}

void GateRows(device::Stream& stream, const KernelSet& kernels, const char* label,
              const GateRowsArgs& args) {
  if (args.rows == 0) return;
  CheckType(label, args.dtype);
  const uint64_t elements = static_cast<uint64_t>(args.rows) * static_cast<uint64_t>(args.columns);
  const uint64_t gates = args.one_a_row ? static_cast<uint64_t>(args.rows) : elements;
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kNorm;
  desc.label = label;
  desc.rows = args.rows;
  desc.columns = args.columns;
  desc.weight_format = NumberFormatOf(args.dtype);
  desc.flops = 4.0 * static_cast<double>(elements);
  desc.read_bytes = static_cast<double>(gates * sizeof(float));
  device::Operation operation = device::MakeOperation(desc, args, kernels.gate_rows);
  operation.Reads(args.gates, gates * sizeof(float))
      .Writes(args.y, elements * tensor::SizeOf(args.dtype));
  stream.Enqueue(operation);
}

void Embed(device::Stream& stream, const KernelSet& kernels, const EmbedArgs& args) {
  if (args.batch.num_rows == 0) return;
  CheckType("embed", args.dtype);
  if (args.table == nullptr) {
    FB_CHECK(args.packed.leaves.num_leaves == 1 && args.packed.dtype == args.dtype &&
                 args.packed.k == args.columns,
             "embed: packed table of {} leaves, {} and {} columns; expected 1, {} and {}",
             args.packed.leaves.num_leaves, tensor::Name(args.packed.dtype), args.packed.k,
             tensor::Name(args.dtype), args.columns);
  }
  const uint64_t rows = static_cast<uint64_t>(args.batch.num_rows);
  const uint64_t bytes = rows * static_cast<uint64_t>(args.columns) * tensor::SizeOf(args.dtype);
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kEmbed;
  desc.label = "embed";
  desc.rows = args.batch.num_rows;
  desc.columns = args.columns;
  desc.weight_format = NumberFormatOf(args.dtype);
  desc.read_bytes = desc.write_bytes = static_cast<double>(bytes);
  device::Operation operation = device::MakeOperation(desc, args, kernels.embed);
  operation.Writes(args.out, bytes).Reads(args.batch.tokens, rows * sizeof(*args.batch.tokens));
  if (args.batch.types != nullptr)
    operation.Reads(args.batch.types, rows * sizeof(*args.batch.types));
  stream.Enqueue(operation);
}

void LogitsDigest(device::Stream& stream, const KernelSet& kernels, const LogitsDigestArgs& args) {
  if (args.num_rows == 0) return;
  FB_CHECK(args.stride >= args.vocab, "logits_digest: stride {} of rows of {}", args.stride,
           args.vocab);
  const uint64_t rows = static_cast<uint64_t>(args.num_rows);
  const uint64_t bytes =
      ((rows - 1) * static_cast<uint64_t>(args.stride) + static_cast<uint64_t>(args.vocab)) * 4;
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kDigest;
  desc.label = "logits_digest";
  desc.rows = args.num_rows;
  desc.columns = args.vocab;
  desc.read_bytes = static_cast<double>(rows) * args.vocab * 4;
  device::Operation operation = device::MakeOperation(desc, args, kernels.logits_digest);
  operation.Reads(args.logits, bytes).Reads(args.positions, rows * sizeof(*args.positions));
  operation.Writes(args.digests, rows * sizeof(*args.digests));
  stream.Enqueue(operation);
}

}  // namespace forebay::kernels

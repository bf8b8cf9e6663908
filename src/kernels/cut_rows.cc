#include "kernels/cut_rows.h"

#include "base/check.h"
#include "kernels/attention.h"
#include "kernels/kernel_set.h"
#include "kernels/number_format.h"

namespace forebay::kernels {
namespace {

void StoreKvAccesses(const void* raw, std::vector<device::Access>* accesses) {
  const StoreKvArgs& args = *static_cast<const StoreKvArgs*>(raw);
  WrittenBlocks(args.batch, args.layout, args.layer, args.digests, accesses);
}

}  // namespace

void RopeRows(device::Stream& stream, const KernelSet& kernels, const RopeRowsArgs& args) {
  if (args.num_rows == 0) return;
  FB_CHECK(args.dtype == tensor::DType::kBF16 || args.dtype == tensor::DType::kF32,
           "rope_rows: activations of {}", tensor::Name(args.dtype));
  FB_CHECK(args.head_dim > 0 && args.head_dim % 2 == 0 && args.head_dim <= kMaxKeyDim,
           "rope_rows: head_dim {}, expected an even number up to {}", args.head_dim, kMaxKeyDim);
  FB_CHECK((args.rope_cos == nullptr) == (args.rope_sin == nullptr),
           "rope_rows: one of cos and sin is missing");
  FB_CHECK(args.num_readers > 0 && args.num_readers <= kMaxReaders, "rope_rows: {} readers",
           args.num_readers);
  const auto rows = static_cast<uint64_t>(args.num_rows);
  const auto width = static_cast<uint64_t>(args.heads + 2 * args.kv_heads) * args.head_dim;
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kRopeKv;
  desc.label = "rope_rows";
  desc.rows = args.num_rows;
  desc.columns = static_cast<int64_t>(width);
  desc.heads = args.heads;
  desc.kv_heads = args.kv_heads;
  desc.head_dim = args.head_dim;
  desc.weight_format = NumberFormatOf(args.dtype);
  desc.flops = 8.0 * static_cast<double>(rows * width);
  device::Operation operation = device::MakeOperation(desc, args, kernels.rope_rows);
  operation.Reads(args.qkv, rows * width * sizeof(float));
  operation.Reads(args.positions, rows * sizeof(*args.positions));
  for (int i = 0; i < args.num_readers; ++i) {
    const RopeRowsArgs::Reader& reader = args.readers[i];
    FB_CHECK(reader.first_head + reader.heads <= args.heads &&
                 reader.first_kv_head + reader.kv_heads <= args.kv_heads,
             "rope_rows: reader {} wants heads {} to {} of {}, KV heads {} to {} of {}", i,
             reader.first_head, reader.first_head + reader.heads, args.heads, reader.first_kv_head,
             reader.first_kv_head + reader.kv_heads, args.kv_heads);
    const auto columns = static_cast<uint64_t>(reader.heads + 2 * reader.kv_heads) * args.head_dim;
    desc.write_bytes += static_cast<double>(rows * columns * tensor::SizeOf(args.dtype));
    operation.Writes(reader.out, rows * columns * tensor::SizeOf(args.dtype));
  }
  operation.desc.write_bytes = desc.write_bytes;
  stream.Enqueue(operation);
}

void StoreKv(device::Stream& stream, const KernelSet& kernels, const StoreKvArgs& args) {
  const StepBatch& batch = args.batch;
  if (batch.num_rows == 0) return;
  CheckKvLayout("store_kv", args.layout, args.layout.kv_heads);
  FB_CHECK(args.layout.key_dim == args.layout.value_dim && !args.layout.values_in_keys,
           "store_kv: keys of {} and values of {} elements", args.layout.key_dim,
           args.layout.value_dim);
  const auto rows = static_cast<uint64_t>(batch.num_rows);
  const auto row_bytes = static_cast<uint64_t>(args.layout.LayerBytes()) / kBlockTokens,
             read_bytes = tensor::BytesOf(args.layout.dtype,
                                          2ull * args.layout.kv_heads * args.layout.key_dim);
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kOther;
  desc.label = "store_kv";
  desc.rows = batch.num_rows;
  desc.columns = int64_t{2} * args.layout.kv_heads * args.layout.key_dim;
  desc.read_bytes = static_cast<double>(rows * read_bytes);
  desc.write_bytes = static_cast<double>(rows * row_bytes);
  device::Operation operation = device::MakeOperation(desc, args, kernels.store_kv);
  operation.Reads(args.kv, rows * read_bytes);
  DeclareBatch(batch, &operation);
  operation.further_accesses = StoreKvAccesses;
  stream.Enqueue(operation);
}

}  // namespace forebay::kernels

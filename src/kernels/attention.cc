#include "kernels/attention.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "kernels/kernel_set.h"
#include "kernels/number_format.h"

namespace forebay::kernels {
namespace {

// From the first head of the first of `rows` rows to behind the last of the last row.
uint64_t RowBytes(const AttentionArgs& args, int64_t rows, int32_t width) {
  const int64_t heads = (rows - 1) * args.HeadsOfRow() + args.heads;
  return tensor::BytesOf(args.layout.dtype, static_cast<uint64_t>(heads * width));
}

// A sequence's KV is read once for its rows: as far as the last of them sees, equal numbers of rows
// assumed; a block that decoding sequences share is read once.
double KvTokensRead(const ContextSums& sums) {
  double tokens =
      static_cast<double>(sums.decode_context - std::min(sums.repeated, sums.decode_context));
  if (sums.prefill_rows > 0) {
    const double sequences = static_cast<double>(sums.prefill_sequences),
                 rows = static_cast<double>(sums.prefill_rows);
    tokens +=
        sequences * (static_cast<double>(sums.prefill_context) / rows + (rows / sequences - 1) / 2);
  }
  return tokens;
}

// Positions that rows of prompts see. Where they see those behind them, a step has all rows of a
// sequence, and each sees as many as the last one.
int64_t PrefillContext(const AttentionArgs& args) {
  const ContextSums& sums = args.context;
  return args.reach.ahead == 0 ? sums.prefill_context
                               : 2 * sums.prefill_context - sums.prefill_rows;
}

// The layer's part of the blocks of positions [begin, end) of a sequence: whole, for a position's
// bytes are strewn over it.
void BlockAccesses(const StepBatch& batch, const KvLayout& layout, const KvLayer& layer,
                   const SequenceRows& sequence, int32_t begin, int32_t end, bool write,
                   std::vector<device::Access>* accesses) {
  const uint32_t* const table = batch.block_tables + sequence.table_row * batch.table_stride;
  for (int32_t block = begin / kBlockTokens; block * kBlockTokens < end; ++block) {
    accesses->push_back(
        {layer.Block(table[block], layout), static_cast<uint64_t>(layout.LayerBytes()), write});
  }
}

void AttentionAccesses(const void* raw, std::vector<device::Access>* accesses) {
  const AttentionArgs& args = *static_cast<const AttentionArgs*>(raw);
  for (const SequenceRows& sequence : std::span(args.batch.sequences, args.batch.num_sequences)) {
    BlockAccesses(args.batch, args.layout, args.layer, sequence,
                  args.reach.First(sequence.first_position),
                  sequence.first_position + sequence.num_rows, false, accesses);
  }
}

void RopeKvAccesses(const void* raw, std::vector<device::Access>* accesses) {
  const RopeKvArgs& args = *static_cast<const RopeKvArgs*>(raw);
  WrittenBlocks(args.batch, args.layout, args.layer, args.digests, accesses);
}

}  // namespace

void CheckKvLayout(const char* label, const KvLayout& layout, int32_t heads) {
  FB_CHECK(layout.dtype == tensor::DType::kBF16 || layout.dtype == tensor::DType::kF32,
           "{}: KV cache of {}", label, tensor::Name(layout.dtype));
  const auto check_width = [&](const char* name, int32_t width, int32_t most) {
    FB_CHECK(width > 0 && width % 2 == 0 && width <= most,
             "{}: {} {}, expected an even number up to {}", label, name, width, most);
  };
  check_width("key_dim", layout.key_dim, kMaxKeyDim);
  check_width("value_dim", layout.value_dim, kMaxValueDim);
  FB_CHECK(!layout.values_in_keys || layout.value_dim <= layout.key_dim,
           "{}: values of {} elements lie in keys of {}", label, layout.value_dim, layout.key_dim);
  FB_CHECK(layout.kv_heads > 0 && heads > 0 && heads % layout.kv_heads == 0,
           "{}: {} query heads are no multiple of {} KV heads", label, heads, layout.kv_heads);
  FB_CHECK(layout.block_stride >= layout.LayerBytes(),
           "{}: block stride {} is less than a layer's {} bytes", label, layout.block_stride,
           layout.LayerBytes());
}

void DeclareBatch(const StepBatch& batch, device::Operation* operation) {
  operation->Reads(batch.positions, sizeof(*batch.positions) * batch.num_rows);
  operation->Reads(batch.row_sequence, sizeof(*batch.row_sequence) * batch.num_rows);
  operation->Reads(batch.sequences, sizeof(*batch.sequences) * batch.num_sequences);
}

void WrittenBlocks(const StepBatch& batch, const KvLayout& layout, const KvLayer& layer,
                   const uint64_t* digests, std::vector<device::Access>* accesses) {
  for (const SequenceRows& sequence : std::span(batch.sequences, batch.num_sequences)) {
    const int32_t begin = sequence.first_position, end = begin + sequence.num_rows;
    BlockAccesses(batch, layout, layer, sequence, begin, end, true, accesses);
    if (digests == nullptr) continue;
    const uint32_t* const table = batch.block_tables + sequence.table_row * batch.table_stride;
    for (int32_t position = begin; position < end; ++position) {
      const uint64_t* const digest = digests +
                                     int64_t{table[position / kBlockTokens]} * kBlockTokens +
                                     position % kBlockTokens;
      accesses->push_back({digest, sizeof(*digest), true});
    }
  }
}

void Attention(device::Stream& stream, const KernelSet& kernels, const AttentionArgs& args) {
  const StepBatch& batch = args.batch;
  if (batch.num_rows == 0) return;
  CheckKvLayout("attention", args.layout, args.heads);
  FB_CHECK(args.HeadsOfRow() >= args.heads, "attention: {} heads, of rows of {}", args.heads,
           args.row_heads);
  FB_CHECK(args.out_form == RowForm::kRows ||
               (args.layout.dtype == tensor::DType::kBF16 && args.HeadsOfRow() == args.heads &&
                args.heads * args.layout.value_dim % kChunkSide == 0),
           "attention: chunks of {} heads of {}", args.heads, args.layout.value_dim);
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kAttention;
  desc.label = "attention";
  desc.rows = batch.num_sequences;
  desc.columns = int64_t{args.heads} * args.layout.value_dim;
  desc.prefill_context = PrefillContext(args);
  desc.depth = args.context.decode_context + desc.prefill_context;
  desc.flops =
      2.0 * static_cast<double>(desc.depth) *
      static_cast<double>(int64_t{args.heads} * (args.layout.key_dim + args.layout.value_dim));
  desc.read_bytes =
      KvTokensRead(args.context) * static_cast<double>(args.layout.LayerBytes()) / kBlockTokens;
  desc.heads = args.heads;
  desc.kv_heads = args.layout.kv_heads;
  desc.head_dim = args.layout.key_dim;
  desc.kv_format = args.layout.format();
  desc.prefill_sequences = args.context.prefill_sequences;
  desc.repeated_context = std::min(args.context.repeated, args.context.decode_context);
  device::Operation operation = device::MakeOperation(desc, args, kernels.attention);
  operation.Reads(args.q, RowBytes(args, batch.num_rows, args.layout.key_dim))
      .Writes(args.out,
              RowBytes(args, RoomForRows(args.out_form, batch.num_rows), args.layout.value_dim));
  if (args.sinks != nullptr)
    operation.Reads(args.sinks, static_cast<uint64_t>(args.heads) * sizeof(float));
  DeclareBatch(batch, &operation);
  operation.further_accesses = AttentionAccesses;
  stream.Enqueue(operation);
}

void RopeKv(device::Stream& stream, const KernelSet& kernels, const RopeKvArgs& args) {
  const StepBatch& batch = args.batch;
  if (batch.num_rows == 0) return;
  CheckKvLayout("rope_kv", args.layout, args.heads);
  FB_CHECK(args.layout.key_dim == args.layout.value_dim && !args.layout.values_in_keys,
           "rope_kv: keys of {} and values of {} elements", args.layout.key_dim,
           args.layout.value_dim);
  FB_CHECK((args.rope_cos == nullptr) == (args.rope_sin == nullptr),
           "rope_kv: one of cos and sin is missing");
  const uint64_t rows = static_cast<uint64_t>(batch.num_rows);
  const int64_t width = int64_t{args.heads + 2 * args.layout.kv_heads} * args.layout.key_dim;
  cost::OpDesc desc;
  desc.kind = cost::OpKind::kRopeKv;
  desc.label = "rope_kv";
  desc.rows = batch.num_rows;
  desc.columns = width;
  desc.heads = args.heads;
  desc.kv_heads = args.layout.kv_heads;
  desc.head_dim = args.layout.key_dim;
  desc.prefill_rows = args.prefill_rows;
  desc.weight_format = NumberFormatOf(args.layout.dtype);
  desc.flops = 8.0 * static_cast<double>(rows) * static_cast<double>(width);
  desc.write_bytes =
      static_cast<double>(rows) * static_cast<double>(args.layout.LayerBytes()) / kBlockTokens;
  device::Operation operation = device::MakeOperation(desc, args, kernels.rope_kv);
  operation.Reads(args.qkv, rows * width * sizeof(float))
      .Writes(args.q,
              tensor::BytesOf(args.layout.dtype,
                              rows * static_cast<uint64_t>(args.heads * args.layout.key_dim)));
  DeclareBatch(batch, &operation);
  operation.further_accesses = RopeKvAccesses;
  stream.Enqueue(operation);
}

}  // namespace forebay::kernels

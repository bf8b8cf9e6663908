#include <algorithm>
#include <numeric>

#include "base/rng.h"
#include "kernels/attention.h"
#include "profile/cases.h"
#include "profile/measure_table.h"

namespace forebay::profile {
namespace {

using kernels::kBlockTokens;

// The last `rows` of `context` positions of each of `sequences`; of decoding ones every second has
// one more, in a block of its own, since kernels take whole blocks and contexts end anywhere in
// them. The cache lies as in the engine, blocks at a stride of all layers in permuted order; each
// operation takes the next layer, so that its KV comes from memory.
class AttentionCase {
 public:
  AttentionCase(Bench& bench, tensor::DType dtype, kernels::KvCodes codes, int32_t head_dim)
      : bench_(bench), dtype_(dtype), codes_(codes), head_dim_(head_dim) {}

  // `shared`: the sequences have the same blocks, but for those that begin after `context`.
  double Seconds(int32_t sequences, int32_t heads, int32_t kv_heads, int32_t rows, int32_t context,
                 bool shared = false) {
    kernels::AttentionArgs args;
    args.layout = {.dtype = dtype_,
                   .kv_heads = kv_heads,
                   .key_dim = head_dim_,
                   .value_dim = head_dim_,
                   .form = dtype_ == tensor::DType::kBF16 && codes_ == kernels::KvCodes::kNone
                               ? bench_.kernels().packed
                               : kernels::PackedForm::kPairs,
                   .codes = codes_};
    args.heads = heads;
    args.scale = 0.1f;
    List(sequences, rows, context, shared, &args);
    const int64_t blocks = static_cast<int64_t>(tables_.size());
    const int64_t layers = bench_.Pieces(blocks * args.layout.LayerBytes());
    args.layout.block_stride = layers * args.layout.LayerBytes();
    args.q = bench_.input().data;
    args.out = bench_.output().data;
    const int64_t q_bytes = int64_t{args.batch.num_rows} * heads * head_dim_ *
                            static_cast<int64_t>(tensor::SizeOf(dtype_));
    return bench_.SecondsAfterInput(q_bytes, [&](device::Stream& stream, int64_t i) {
      args.layer.resident = bench_.data().data + i % layers * args.layout.LayerBytes();
      kernels::Attention(stream, bench_.kernels(), args);
    });
  }

 private:
  void List(int32_t sequences, int32_t rows, int32_t context, bool shared,
            kernels::AttentionArgs* args) {
    const int32_t blocks_each = (context + (rows == 1 ? 1 : 0) + kBlockTokens - 1) / kBlockTokens;
    tables_.resize(static_cast<size_t>(blocks_each) * sequences);
    std::iota(tables_.begin(), tables_.end(), 0u);
    base::Rng rng(6);
    for (size_t i = tables_.size(); i > 1; --i) std::swap(tables_[i - 1], tables_[rng.Below(i)]);
    if (shared) Share(sequences, context);
    std::vector<kernels::SequenceRows> listed;
    std::vector<int32_t> positions, row_sequence;
    for (int32_t s = 0; s < sequences; ++s) {
      const int32_t first = context - rows + (rows == 1 ? s % 2 : 0);
      listed.push_back({static_cast<int32_t>(positions.size()), rows, first, s});
      args->context.Add(first, rows);
      for (int32_t i = 0; i < rows; ++i) {
        positions.push_back(first + i);
        row_sequence.push_back(s);
      }
    }
    bench_.ClearTables();
    kernels::StepBatch& batch = args->batch;
    batch.num_rows = static_cast<int32_t>(positions.size());
    batch.num_sequences = sequences;
    batch.positions = bench_.Place(positions);
    batch.row_sequence = bench_.Place(row_sequence);
    batch.sequences = bench_.Place(listed);
    batch.block_tables = bench_.Place(tables_);
    batch.table_stride = blocks_each;
  }

  // The cache does not shrink: blocks of all but the first sequence are read by nobody.
  void Share(int32_t sequences, int32_t context) {
    const int64_t stride = static_cast<int64_t>(tables_.size()) / sequences,
                  whole = context / kBlockTokens;
    for (int32_t s = 1; s < sequences; ++s)
      std::copy_n(tables_.begin(), whole, tables_.begin() + s * stride);
  }

  Bench& bench_;
  const tensor::DType dtype_;
  const kernels::KvCodes codes_;
  const int32_t head_dim_;
  std::vector<uint32_t> tables_;
};

// A table's point as heads and sequences: `streams` are at most 4 heads (8 where they are query
// heads) of each sequence.
double DecodeSeconds(AttentionCase& attention, const cost::Point& point, bool shared) {
  const auto streams = static_cast<int32_t>(point[0]), group = static_cast<int32_t>(point[2]);
  const int32_t kv_heads = std::gcd(streams, 4);
  return attention.Seconds(streams / kv_heads, kv_heads * group, kv_heads, 1,
                           static_cast<int32_t>(point[1]), shared);
}

double PrefillSeconds(AttentionCase& attention, const cost::Point& point) {
  const auto streams = static_cast<int32_t>(point[0]), tokens = static_cast<int32_t>(point[1]);
  const int32_t heads = 8;
  return attention.Seconds(streams / heads, heads, heads / static_cast<int32_t>(point[2]), tokens,
                           tokens);
}

void MeasureKind(Bench& bench, tensor::DType dtype, cost::NumberFormat format, int32_t head_dim,
                 cost::DeviceProfile* profile) {
  const bool is_int8 = format == cost::NumberFormat::kInt8;
  AttentionCase attention(bench, dtype, is_int8 ? kernels::KvCodes::kInt8 : kernels::KvCodes::kNone,
                          head_dim);
  const bool is_bf16 = dtype == tensor::DType::kBF16 && !is_int8;
  const Grid& grid = bench.grid();
  TableSpec spec;
  const auto measure = [&](const TableGrid& points) {
    spec.axes = points.axes;
    profile->tables.push_back(MeasureTable(spec, points.held_out));
  };
  spec.format = format;
  spec.head_dim = head_dim;
  spec.op = cost::TableOp::kDecodeAttention;
  spec.seconds = [&](const cost::Point& point) { return DecodeSeconds(attention, point, false); };
  spec.grain = {1, 1, 1};
  measure(is_bf16 ? grid.decode : grid.other_decode);

  if (is_bf16) {
    spec.op = cost::TableOp::kDecodeShared;
    spec.seconds = [&](const cost::Point& point) { return DecodeSeconds(attention, point, true); };
    measure(grid.shared);
  }

  spec.op = cost::TableOp::kPrefillAttention;
  spec.seconds = [&](const cost::Point& point) { return PrefillSeconds(attention, point); };
  spec.grain = {8, 1, 0};
  measure(is_bf16 ? grid.prefill : grid.other_prefill);
}

}  // namespace

void MeasureAttention(Bench& bench, const ProgressFn& progress, cost::DeviceProfile* profile) {
  for (const int32_t head_dim : {64, 128}) {
    MeasureKind(bench, tensor::DType::kBF16, cost::NumberFormat::kBF16, head_dim, profile);
    progress(
        fmt::format("attention over a bf16 cache, heads of {}, by rows and context", head_dim));
  }
  if (bench.bf16_alone()) return;
  MeasureKind(bench, tensor::DType::kBF16, cost::NumberFormat::kInt8, 128, profile);
  progress("attention over an int8 cache, heads of 128, by rows and context");
  MeasureKind(bench, tensor::DType::kF32, cost::NumberFormat::kF32, 128, profile);
  progress("attention over an fp32 cache, heads of 128, by rows and context");
}

}  // namespace forebay::profile

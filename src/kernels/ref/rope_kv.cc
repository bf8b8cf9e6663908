#include "kernels/attention.h"
#include "kernels/digest.h"
#include "kernels/ref/row.h"
#include "kernels/sets.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {
namespace {

// One head of q or k: norm where `weight` is given, rope where the layer has it, rounding.
template <typename T>
void TransformHead(const RopeKvArgs& args, const float* x, const float* weight, int64_t position, T* out) {
  const int head_dim = args.layout.head_dim, half = head_dim / 2;
  float y[kMaxHeadDim];
  const float inverse = weight ? InverseRms([x](int64_t j) { return x[j]; }, head_dim, args.norm_eps) : 0;
  for (int j = 0; j < head_dim; ++j) y[j] = weight ? x[j] * inverse * weight[j] : x[j];
  for (int j = 0; j < half; ++j) {
    float low = y[j], high = y[j + half];
    if (args.rope_cos) {
      const float cosine = args.rope_cos[position * half + j], sine = args.rope_sin[position * half + j];
      low = std::fma(y[j], cosine, -(y[j + half] * sine));
      high = std::fma(y[j + half], cosine, y[j] * sine);
    }
    out[j] = tensor::RoundTo<T>(low);
    out[j + half] = tensor::RoundTo<T>(high);
  }
}

template <typename T>
void TransformRow(const RopeKvArgs& args, int64_t row) {
  const KvLayout& layout = args.layout;
  const int head_dim = layout.head_dim;
  const int32_t position = args.batch.positions[row];
  const int slot = position % kBlockTokens;
  const SequenceRows& sequence = args.batch.sequences[args.batch.row_sequence[row]];
  const uint32_t entry =
      args.batch.block_tables[sequence.table_row * args.batch.table_stride + position / kBlockTokens];
  std::byte* block = args.layer.Block(entry, layout.block_stride);
  const float* x = args.qkv + row * (args.heads + 2 * layout.kv_heads) * head_dim;
  T* q = reinterpret_cast<T*>(args.q) + row * args.heads * head_dim;
  for (int head = 0; head < args.heads; ++head, x += head_dim) {
    TransformHead(args, x, args.q_norm, position, q + head * head_dim);
  }
  uint64_t digest = 0;
  for (int head = 0; head < layout.kv_heads; ++head, x += head_dim) {
    T k[kMaxHeadDim], v[kMaxHeadDim];
    TransformHead(args, x, args.k_norm, position, k);
    for (int j = 0; j < head_dim; ++j) v[j] = tensor::RoundTo<T>(x[layout.kv_heads * head_dim + j]);
    T* keys = reinterpret_cast<T*>(block + head * layout.HeadBytes());
    T* values = keys + head_dim * kBlockTokens;
    for (int j = 0; j < head_dim; ++j) {
      keys[(j / 2 * kBlockTokens + slot) * 2 + j % 2] = k[j];
      values[(slot / 2 * head_dim + j) * 2 + slot % 2] = v[j];
    }
    if (args.digests && head >= args.digested_elsewhere) {
      const int64_t bytes = head_dim * static_cast<int64_t>(sizeof(T));
      const int32_t logical = args.first_kv_head + head;
      digest += DigestHash(k, bytes, KeyDigestKey(args.layer_index, logical, position)) +
                DigestHash(v, bytes, ValueDigestKey(args.layer_index, logical, position));
    }
  }
  if (args.digests) {
    uint64_t& sum = args.digests[(entry & ~kWindowBit) * int64_t{kBlockTokens} + slot];
    sum = args.first_layer ? digest : sum + digest;
  }
}

}  // namespace

void RopeKv(const RopeKvArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.batch.num_rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    args.layout.dtype == tensor::DType::kF32 ? TransformRow<float>(args, row) : TransformRow<tensor::BF16>(args, row);
  }
}

}  // namespace forebay::kernels::ref

#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cut_rows.h"
#include "kernels/digest.h"
#include "kernels/kv_codes.h"
#include "kernels/ref/row.h"
#include "kernels/sets.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {
namespace {

// One head of q or k: norm by `weight`, if there is one, rope where the layer has it, norm after it
// where the layer has that one, `scale`, rounding.
template <typename T, typename Args>
void TransformHead(const Args& args, int head_dim, const float* x, const float* weight,
                   int64_t position, float scale, T* out) {
  const int half = head_dim / 2;
  float y[kMaxKeyDim];
  const bool before = weight != nullptr && !args.norm_after;
  const float inverse =
      before ? InverseRms([x](int64_t j) { return x[j]; }, head_dim, args.norm_eps) : 0;
  for (int j = 0; j < head_dim; ++j) y[j] = before ? x[j] * inverse * weight[j] : x[j];
  for (int j = 0; j < half; ++j) {
    float low = y[j], high = y[j + half];
    if (args.rope_cos) {
      const float cosine = args.rope_cos[position * half + j],
                  sine = args.rope_sin[position * half + j];
      low = std::fma(y[j], cosine, -(y[j + half] * sine));
      high = std::fma(y[j + half], cosine, y[j] * sine);
    }
    y[j] = low;
    y[j + half] = high;
  }
  const float norm =
      args.norm_after ? InverseRms([&](int64_t j) { return y[j]; }, head_dim, args.norm_eps) : 1;
  for (int j = 0; j < head_dim; ++j) {
    const float normed = y[j] * norm;
    out[j] = tensor::RoundTo<T>((args.norm_after && weight ? normed * weight[j] : normed) * scale);
  }
}

// One head of v: a norm where the model has one, rounding.
template <typename T, typename Args>
void RoundValues(const Args& args, int head_dim, const float* x, T* out) {
  const float inverse =
      args.v_norm ? InverseRms([x](int64_t j) { return x[j]; }, head_dim, args.norm_eps) : 1;
  for (int j = 0; j < head_dim; ++j) out[j] = tensor::RoundTo<T>(x[j] * inverse);
}

// K and V of one position to its slot of a head's part of a block. E: T, or a code's byte.
template <typename E>
void KeepElements(const E* k, const E* v, int head_dim, int slot, std::byte* part) {
  E* const keys = reinterpret_cast<E*>(part);
  E* const values = keys + head_dim * kBlockTokens;
  for (int j = 0; j < head_dim; ++j) {
    keys[(j / 2 * kBlockTokens + slot) * 2 + j % 2] = k[j];
    values[(slot / 2 * head_dim + j) * 2 + slot % 2] = v[j];
  }
}

template <typename T>
KvRow EncodeRow(KvCodes codes, const T* x, int n) {
  float values[kMaxKeyDim];
  for (int j = 0; j < n; ++j) values[j] = tensor::ToFloat(x[j]);
  return KvRowOf(codes, values, n);
}

// KeepElements of a cache of codes, with the scales; returns what the digest gets.
template <typename T>
uint64_t KeepCodes(const KvLayout& layout, const T* k, const T* v, int slot, uint64_t k_key,
                   uint64_t v_key, std::byte* part) {
  const int n = layout.key_dim;
  const KvRow k_row = EncodeRow(layout.codes, k, n), v_row = EncodeRow(layout.codes, v, n);
  KeepElements(k_row.codes, v_row.codes, n, slot, part);
  if (layout.codes == KvCodes::kInt8) {
    float* const scales = reinterpret_cast<float*>(part + layout.HeadElements()) + slot;
    scales[0] = k_row.scale;
    scales[kBlockTokens] = v_row.scale;
  }
  return KvRowHash(layout.codes, k_row.codes, k_row.scale, n, k_key) +
         KvRowHash(layout.codes, v_row.codes, v_row.scale, n, v_key);
}

// k and v of one row and the KV heads, each [kv_heads, head_dim], to the row's slot and digest.
// Args: RopeKvArgs or StoreKvArgs.
template <typename T, typename Args>
void KeepRow(const Args& args, int64_t row, const T* k_heads, const T* v_heads) {
  const KvLayout& layout = args.layout;
  const int head_dim = layout.key_dim;
  const int32_t position = args.batch.positions[row];
  const int slot = position % kBlockTokens;
  const SequenceRows& sequence = args.batch.sequences[args.batch.row_sequence[row]];
  const uint32_t entry =
      args.batch
          .block_tables[sequence.table_row * args.batch.table_stride + position / kBlockTokens];
  std::byte* block = args.layer.Block(entry, layout);
  uint64_t digest = 0;
  for (int head = 0; head < layout.kv_heads; ++head) {
    const T *k = k_heads + head * head_dim, *v = v_heads + head * head_dim;
    std::byte* const part = block + head * layout.HeadBytes();
    const int32_t logical = args.first_kv_head + head;
    const uint64_t k_key = KeyDigestKey(args.layer_index, logical, position),
                   v_key = ValueDigestKey(args.layer_index, logical, position);
    uint64_t hash;
    if (layout.codes != KvCodes::kNone) {
      hash = KeepCodes(layout, k, v, slot, k_key, v_key, part);
    } else {
      const int64_t bytes = head_dim * static_cast<int64_t>(sizeof(T));
      KeepElements(k, v, head_dim, slot, part);
      hash = DigestHash(k, bytes, k_key) + DigestHash(v, bytes, v_key);
    }
    if (head >= args.digested_elsewhere) digest += hash;
  }
  if (args.digests) KeepDigest(args, entry, slot, digest);
}

template <typename T>
void TransformRow(const RopeKvArgs& args, int64_t row) {
  const KvLayout& layout = args.layout;
  const int head_dim = layout.key_dim;
  const int32_t position = args.batch.positions[row];
  const float* x = args.qkv + row * (args.heads + 2 * layout.kv_heads) * head_dim;
  T* q = reinterpret_cast<T*>(args.q) + row * args.heads * head_dim;
  for (int head = 0; head < args.heads; ++head, x += head_dim) {
    TransformHead(args, head_dim, x, args.q_norm, position,
                  args.q_scale ? args.q_scale[position] : 1.0f, q + head * head_dim);
  }
  std::vector<T> k(static_cast<size_t>(layout.kv_heads * head_dim)), v(k.size());
  for (int head = 0; head < layout.kv_heads; ++head, x += head_dim)
    TransformHead(args, head_dim, x, args.k_norm, position, 1.0f, k.data() + head * head_dim);
  for (int head = 0; head < layout.kv_heads; ++head, x += head_dim)
    RoundValues(args, head_dim, x, v.data() + head * head_dim);
  KeepRow(args, row, k.data(), v.data());
}

template <typename T>
void RopeRow(const RopeRowsArgs& args, const RopeRowsArgs::Reader& reader, int64_t row) {
  const int head_dim = args.head_dim;
  const int64_t position = args.positions[row];
  const float* const x = args.qkv + row * (args.heads + 2 * args.kv_heads) * head_dim;
  T* out = reinterpret_cast<T*>(reader.out) + row * reader.heads * head_dim;
  for (int head = 0; head < reader.heads; ++head, out += head_dim) {
    TransformHead(args, head_dim, x + (reader.first_head + head) * head_dim, args.q_norm, position,
                  args.q_scale ? args.q_scale[position] : 1.0f, out);
  }
  out = reinterpret_cast<T*>(reader.out) +
        (int64_t{args.num_rows} * reader.heads + row * 2 * reader.kv_heads) * head_dim;
  const float* const k = x + (args.heads + reader.first_kv_head) * head_dim;
  for (int head = 0; head < reader.kv_heads; ++head, out += head_dim)
    TransformHead(args, head_dim, k + head * head_dim, args.k_norm, position, 1.0f, out);
  const float* const v = k + args.kv_heads * head_dim;
  for (int head = 0; head < reader.kv_heads; ++head, out += head_dim)
    RoundValues(args, head_dim, v + head * head_dim, out);
}

template <typename T>
void StoreRow(const StoreKvArgs& args, int64_t row) {
  const int64_t width = int64_t{args.layout.kv_heads} * args.layout.key_dim;
  const T* const k = reinterpret_cast<const T*>(args.kv) + row * 2 * width;
  KeepRow(args, row, k, k + width);
}

}  // namespace

void RopeKv(const RopeKvArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.batch.num_rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    args.layout.dtype == tensor::DType::kF32 ? TransformRow<float>(args, row)
                                             : TransformRow<tensor::BF16>(args, row);
  }
}

void RopeRows(const RopeRowsArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.num_rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (const RopeRowsArgs::Reader& reader : std::span(args.readers, args.num_readers)) {
      args.dtype == tensor::DType::kF32 ? RopeRow<float>(args, reader, row)
                                        : RopeRow<tensor::BF16>(args, reader, row);
    }
  }
}

void StoreKv(const StoreKvArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.batch.num_rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    args.layout.dtype == tensor::DType::kF32 ? StoreRow<float>(args, row)
                                             : StoreRow<tensor::BF16>(args, row);
  }
}

}  // namespace forebay::kernels::ref

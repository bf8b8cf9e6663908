// Row-wise operations with this file's instruction set: RMS norm, rope and the KV write. Orders of sums: norm.h,
// attention.h.
#pragma once

#include "kernels/attention.h"
#include "kernels/cpu/simd.h"
#include "kernels/digest.h"
#include "kernels/norm.h"

namespace forebay::kernels {
namespace {

// This worker's rows, as device::StaticPart cuts them.
FB_INLINE device::Range OwnRows(const device::WorkerContext& context, int64_t rows) {
  return {rows * context.worker / context.num_workers, rows * (context.worker + 1) / context.num_workers};
}

template <typename T>
FB_INLINE float InverseRms(const T* x, int64_t columns, float eps) {
  Vector lanes = Vector::Zero();
  for (int64_t j = 0; j < columns; j += kLanes) {
    const Vector part = LoadPart(x + j, columns - j);
    lanes = Fma(part, part, lanes);
  }
  return 1.0f / SquareRoot(ReduceAdd(lanes) / static_cast<float>(columns) + eps);
}

template <typename T>
void NormRows(const RmsNormArgs& args, device::Range rows) {
  const int64_t columns = args.columns;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* x = reinterpret_cast<const T*>(args.x) + (args.rows ? args.rows[i] : i) * columns;
    T* out = reinterpret_cast<T*>(args.out) + i * columns;
    const Vector inverse = Vector::Set(InverseRms(x, columns, args.eps));
    for (int64_t j = 0; j < columns; j += kLanes) {
      StorePart(out + j, LoadPart(x + j, columns - j) * inverse * LoadPart(args.weight + j, columns - j), columns - j);
    }
  }
}

void NormAllRows(const RmsNormArgs& args, const device::WorkerContext& context) {
  const device::Range rows = OwnRows(context, args.num_rows);
  args.dtype == tensor::DType::kF32 ? NormRows<float>(args, rows) : NormRows<BF16>(args, rows);
}

// A head of the next row.
FB_INLINE void Prefetch(const float* x, int n) {
  for (int j = 0; j < n; j += kLanes) __builtin_prefetch(x + j, 0);
}

// One head of q or k: norm where `weight` is given, rope where the layer has it, rounding.
template <typename T>
FB_INLINE void TransformHead(const RopeKvArgs& args, const float* x, const float* weight, int64_t position, T* out) {
  const int head_dim = args.layout.head_dim, half = head_dim / 2;
  alignas(64) float normed[kMaxHeadDim + kLanes];
  if (weight) {
    const Vector inverse = Vector::Set(InverseRms(x, head_dim, args.norm_eps));
    for (int j = 0; j < head_dim; j += kLanes) {
      (LoadPart(x + j, head_dim - j) * inverse * LoadPart(weight + j, head_dim - j)).Store(normed + j);
    }
    x = normed;
  }
  for (int j = 0; j < half; j += kLanes) {
    const int rest = half - j;
    Vector low = LoadPart(x + j, rest), high = LoadPart(x + half + j, rest);
    if (args.rope_cos) {
      const Vector cosine = LoadPart(args.rope_cos + position * half + j, rest);
      const Vector sine = LoadPart(args.rope_sin + position * half + j, rest);
      const Vector rotated = Fma(low, cosine, Negate(high * sine));
      high = Fma(high, cosine, low * sine);
      low = rotated;
    }
    StorePart(out + j, low, rest);
    StorePart(out + half + j, high, rest);
  }
}

// The lines of a block that a position's K and V go to: K's lie 128 bytes or more apart, so that no hardware prefetcher
// sees them.
template <typename T>
FB_INLINE void PrefetchSlot(const T* block, int slot, int head_dim, int kv_heads) {
  for (int head = 0; head < kv_heads; ++head) {
    const T* keys = block + head * 2ll * kBlockTokens * head_dim;
    for (int j = 0; j < head_dim; j += 2) __builtin_prefetch(keys + j * kBlockTokens + slot * 2, 1);
    const T* values = keys + head_dim * kBlockTokens + slot / 2 * head_dim * 2;
    for (int j = 0; j < 2 * head_dim; j += 64 / static_cast<int>(sizeof(T))) __builtin_prefetch(values + j, 1);
  }
}

template <typename T>
void TransformRow(const RopeKvArgs& args, int64_t row) {
  const int head_dim = args.layout.head_dim, kv_heads = args.layout.kv_heads;
  const int32_t position = args.batch.positions[row];
  const int slot = position % kBlockTokens;
  const SequenceRows& sequence = args.batch.sequences[args.batch.row_sequence[row]];
  const uint32_t entry =
      args.batch.block_tables[sequence.table_row * args.batch.table_stride + position / kBlockTokens];
  std::byte* base = (entry & kWindowBit) ? args.layer.window : args.layer.resident;
  T* block = reinterpret_cast<T*>(base + static_cast<int64_t>(entry & ~kWindowBit) * args.layout.block_stride);
  // A position whose block no row before it has touched.
  if (sequence.num_rows == 1 || slot == 0) PrefetchSlot(block, slot, head_dim, kv_heads);
  const int64_t width = (args.heads + 2 * kv_heads) * head_dim;
  const float* x = args.qkv + row * width;
  T* q = reinterpret_cast<T*>(args.q) + row * args.heads * head_dim;
  for (int head = 0; head < args.heads; ++head, x += head_dim) {
    Prefetch(x + width, head_dim);
    TransformHead(args, x, args.q_norm, position, q + head * head_dim);
  }
  uint64_t digest = 0;
  for (int head = 0; head < kv_heads; ++head, x += head_dim) {
    Prefetch(x + width, head_dim);
    Prefetch(x + width + kv_heads * head_dim, head_dim);
    alignas(64) std::byte memory[2][kMaxHeadDim * sizeof(T)];  // not cleared, as an array of BF16 would be
    T* k = reinterpret_cast<T*>(memory[0]);
    T* v = reinterpret_cast<T*>(memory[1]);
    TransformHead(args, x, args.k_norm, position, k);
    const float* from = x + kv_heads * head_dim;
    for (int j = 0; j < head_dim; j += kLanes) StorePart(v + j, LoadPart(from + j, head_dim - j), head_dim - j);
    T* keys = block + head * 2ll * kBlockTokens * head_dim;
    T* values = keys + head_dim * kBlockTokens + slot / 2 * head_dim * 2 + slot % 2;
    for (int j = 0; j < head_dim; j += 2) {
      __builtin_memcpy(keys + (j / 2 * kBlockTokens + slot) * 2, k + j, 2 * sizeof(T));
    }
    // Element by element: another worker may write the other half of each pair.
    for (int j = 0; j < head_dim; ++j) values[2 * j] = v[j];
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

void TransformAllRows(const RopeKvArgs& args, const device::WorkerContext& context) {
  const device::Range rows = OwnRows(context, args.batch.num_rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    args.layout.dtype == tensor::DType::kF32 ? TransformRow<float>(args, row) : TransformRow<BF16>(args, row);
  }
}

}  // namespace
}  // namespace forebay::kernels

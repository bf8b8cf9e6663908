// Row-wise operations with this file's instruction set: RMS norm, rope and the KV write. Orders of
// sums: norm.h, attention.h.
#pragma once

#include "kernels/attention.h"
#include "kernels/cpu/kv_codes_inl.h"
#include "kernels/cpu/kv_part.h"
#include "kernels/cpu/simd.h"
#include "kernels/cut_rows.h"
#include "kernels/digest.h"
#include "kernels/kv_codes.h"
#include "kernels/norm.h"

namespace forebay::kernels {
namespace {

// This worker's rows, as device::StaticPart cuts them.
FB_INLINE device::Range OwnRows(const device::WorkerContext& context, int64_t rows) {
  return {rows * context.worker / context.num_workers,
          rows * (context.worker + 1) / context.num_workers};
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

template <typename X, typename T>
void NormRows(const RmsNormArgs& args, device::Range rows) {
  const int64_t columns = args.columns;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const X* x = reinterpret_cast<const X*>(args.x) + args.RowAt(i);
    T* out = reinterpret_cast<T*>(args.out) + i * args.Stride();
    const Vector inverse = Vector::Set(InverseRms(x, columns, args.eps));
    for (int64_t j = 0; j < columns; j += kLanes) {
      StorePart(out + j,
                LoadPart(x + j, columns - j) * inverse * LoadPart(args.weight + j, columns - j),
                columns - j);
    }
  }
}

// As NormRows, of x - mean(x).
template <typename X, typename T>
void CenterRows(const RmsNormArgs& args, device::Range rows) {
  const int columns = args.columns;
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const X* x = reinterpret_cast<const X*>(args.x) + args.RowAt(i);
    T* out = reinterpret_cast<T*>(args.out) + i * args.Stride();
    Vector lanes = Vector::Zero();
    for (int j = 0; j < columns; j += kLanes) lanes = lanes + LoadPart(x + j, columns - j);
    const Vector mean = Vector::Set(ReduceAdd(lanes) / static_cast<float>(columns));
    lanes = Vector::Zero();
    for (int j = 0; j < columns; j += kLanes) {
      // Lanes beyond the row's end count nothing.
      const Vector part =
          SelectRange(0, columns - j, LoadPart(x + j, columns - j) - mean, Vector::Zero());
      lanes = Fma(part, part, lanes);
    }
    const Vector inverse =
        Vector::Set(1.0f / SquareRoot(ReduceAdd(lanes) / static_cast<float>(columns) + args.eps));
    for (int j = 0; j < columns; j += kLanes) {
      const int rest = columns - j;
      Vector normed = (LoadPart(x + j, rest) - mean) * inverse * LoadPart(args.weight + j, rest);
      if (args.bias) normed = normed + LoadPart(args.bias + j, rest);
      StorePart(out + j, normed, rest);
    }
  }
}

void NormAllRows(const RmsNormArgs& args, const device::WorkerContext& context) {
  const device::Range rows = OwnRows(context, args.num_rows);
  if (args.centered) {
    if (args.dtype == tensor::DType::kF32) return CenterRows<float, float>(args, rows);
    return args.x_f32 ? CenterRows<float, BF16>(args, rows) : CenterRows<BF16, BF16>(args, rows);
  }
  if (args.dtype == tensor::DType::kF32) return NormRows<float, float>(args, rows);
  args.x_f32 ? NormRows<float, BF16>(args, rows) : NormRows<BF16, BF16>(args, rows);
}

// Row i of x, with what is beside it.
FB_INLINE Vector AddedPart(const AddNormedArgs& args, int64_t i, int64_t j) {
  const int64_t columns = args.columns, at = i * columns + j;
  const Vector x = LoadPart(args.x + at, columns - j);
  return args.beside ? x + LoadPart(args.beside + at, columns - j) : x;
}

// As InverseRms, of these.
FB_INLINE float InverseRmsOfAdded(const AddNormedArgs& args, int64_t i) {
  Vector lanes = Vector::Zero();
  for (int64_t j = 0; j < args.columns; j += kLanes) {
    const Vector part = AddedPart(args, i, j);
    lanes = Fma(part, part, lanes);
  }
  return 1.0f / SquareRoot(ReduceAdd(lanes) / static_cast<float>(args.columns) + args.eps);
}

template <typename T, bool kNormed>
void AddRows(const AddNormedArgs& args, device::Range rows) {
  const int64_t columns = args.columns;
  const Vector factor = Vector::Set(args.factor);
  const Vector scale = Vector::Set(args.scale ? *args.scale : 1.0f);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const T* residual = reinterpret_cast<const T*>(args.residual) + i * columns;
    T* out = reinterpret_cast<T*>(args.out) + i * columns;
    const Vector inverse = Vector::Set(kNormed ? InverseRmsOfAdded(args, i) : 1.0f);
    for (int64_t j = 0; j < columns; j += kLanes) {
      Vector s = AddedPart(args, i, j);
      if constexpr (kNormed) s = s * inverse * LoadPart(args.weight + j, columns - j);
      StorePart(out + j, (s * factor + LoadPart(residual + j, columns - j)) * scale, columns - j);
    }
  }
}

void AddAllRows(const AddNormedArgs& args, const device::WorkerContext& context) {
  const device::Range rows = OwnRows(context, args.rows);
  if (args.dtype == tensor::DType::kF32) {
    args.weight ? AddRows<float, true>(args, rows) : AddRows<float, false>(args, rows);
  } else {
    args.weight ? AddRows<BF16, true>(args, rows) : AddRows<BF16, false>(args, rows);
  }
}

template <typename T>
void GateRowsOf(const GateRowsArgs& args, device::Range rows) {
  const int64_t columns = args.columns;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    T* const y = reinterpret_cast<T*>(args.y) + row * columns;
    for (int64_t j = 0; j < columns; j += kLanes) {
      const Vector gate = args.one_a_row ? Vector::Set(args.gates[row])
                                         : LoadPart(args.gates + row * columns + j, columns - j);
      StorePart(y + j, LoadPart(y + j, columns - j) * Sigmoid(gate), columns - j);
    }
  }
}

void GateAllRows(const GateRowsArgs& args, const device::WorkerContext& context) {
  const device::Range rows = OwnRows(context, args.rows);
  args.dtype == tensor::DType::kF32 ? GateRowsOf<float>(args, rows) : GateRowsOf<BF16>(args, rows);
}

template <typename T>
void LayerInputsOf(const LayerInputsArgs& args, device::Range rows) {
  const int64_t columns = args.columns;
  const Vector table_factor = Vector::Set(args.table_factor), factor = Vector::Set(args.factor);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int32_t entry = args.batch.tokens[row];
    const int64_t token = entry >= 0 ? entry : args.batch.sampled[~entry];
    const T* const table = reinterpret_cast<const T*>(args.table) + token * args.table_stride;
    const float* const x = args.projected + row * columns;
    const float* const gates = args.gates + row * columns;
    T* const out = reinterpret_cast<T*>(args.out) + row * columns;
    const Vector inverse = Vector::Set(InverseRms(x, columns, args.eps));
    for (int64_t j = 0; j < columns; j += kLanes) {
      const int64_t rest = columns - j;
      const Vector own = LoadPart(x + j, rest) * inverse * LoadPart(args.weight + j, rest);
      const Vector input = (own + LoadPart(table + j, rest) * table_factor) * factor;
      StorePart(out + j, Gelu(LoadPart(gates + j, rest)) * input, rest);
    }
  }
}

void AllLayerInputs(const LayerInputsArgs& args, const device::WorkerContext& context) {
  const device::Range rows = OwnRows(context, args.batch.num_rows);
  args.dtype == tensor::DType::kF32 ? LayerInputsOf<float>(args, rows)
                                    : LayerInputsOf<BF16>(args, rows);
}

void FinishAllLogits(const FinishLogitsArgs& args, const device::WorkerContext& context) {
  const device::Range part = OwnRows(context, args.count);
  const Vector factor = Vector::Set(args.factor), cap = Vector::Set(args.cap);
  for (int64_t i = part.begin; i < part.end; i += kLanes) {
    const Vector value = LoadPart(args.values + i, part.end - i) * factor;
    StorePart(args.values + i, args.cap > 0 ? Cap(value, cap) : value, part.end - i);
  }
}

// A head of the next row.
FB_INLINE void Prefetch(const float* x, int n) {
  for (int j = 0; j < n; j += kLanes) __builtin_prefetch(x + j, 0);
}

// Rope on 2 * half elements where the layer has it, rounding. Args: RopeKvArgs or LatentKvArgs.
template <typename T, typename Args>
FB_INLINE void TurnHalves(const Args& args, const float* x, int half, int64_t position, T* out) {
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

FB_INLINE int HeadDim(const RopeKvArgs& args) { return args.layout.key_dim; }
FB_INLINE int HeadDim(const RopeRowsArgs& args) { return args.head_dim; }

// Norm where the model has it after rope, by `weight` if there is one, then `scale`, rounding.
// Args: RopeKvArgs or RopeRowsArgs.
template <typename T, typename Args>
FB_INLINE void ScaleHead(const Args& args, const float* x, const float* weight, float scale,
                         T* out) {
  const int head_dim = HeadDim(args);
  const float norm = args.norm_after ? InverseRms(x, head_dim, args.norm_eps) : 1.0f;
  const Vector inverse = Vector::Set(norm), factor = Vector::Set(scale);
  for (int j = 0; j < head_dim; j += kLanes) {
    Vector normed = LoadPart(x + j, head_dim - j) * inverse;
    if (weight) normed = normed * LoadPart(weight + j, head_dim - j);
    StorePart(out + j, normed * factor, head_dim - j);
  }
}

// One head of q or k: norm by `weight`, if there is one, rope where the layer has it, norm after it
// where the layer has that one, `scale`, rounding.
template <typename T, typename Args>
FB_INLINE void TransformHead(const Args& args, const float* x, const float* weight,
                             int64_t position, float scale, T* out) {
  const int head_dim = HeadDim(args), half = head_dim / 2;
  alignas(64) float normed[kMaxKeyDim + kLanes], turned[kMaxKeyDim + kLanes];
  if (weight && !args.norm_after) {
    const Vector inverse = Vector::Set(InverseRms(x, head_dim, args.norm_eps));
    for (int j = 0; j < head_dim; j += kLanes) {
      (LoadPart(x + j, head_dim - j) * inverse * LoadPart(weight + j, head_dim - j))
          .Store(normed + j);
    }
    x = normed;
  }
  if (!args.norm_after && scale == 1.0f) return TurnHalves(args, x, half, position, out);
  TurnHalves(args, x, half, position, turned);
  ScaleHead(args, turned, args.norm_after ? weight : nullptr, scale, out);
}

// Consecutive rows of one sequence whose positions lie in one block.
struct BlockRows {
  int64_t row;
  int rows;
  int32_t position;  // the first row's
  int slot;          // the first row's
  uint32_t entry;
  std::byte* block;  // the layer's part
};

// Those from `row` on, at most up to `end`.
template <typename T, typename Args>
FB_INLINE BlockRows RowsOfBlock(const Args& args, int64_t row, int64_t end) {
  const int32_t position = args.batch.positions[row];
  const int slot = position % kBlockTokens;
  const SequenceRows& sequence = args.batch.sequences[args.batch.row_sequence[row]];
  const uint32_t entry =
      args.batch
          .block_tables[sequence.table_row * args.batch.table_stride + position / kBlockTokens];
  int64_t last = row + kBlockTokens - slot;
  if (last > sequence.first_row + sequence.num_rows) last = sequence.first_row + sequence.num_rows;
  if (last > end) last = end;
  return {row,      static_cast<int>(last - row),
          position, slot,
          entry,    LayerPart<T>(args.layer, args.layout, entry)};
}

// The lines that one head of a block's rows goes to: K's lie 128 bytes or more apart, so that no
// hardware prefetcher sees them.
template <typename T>
FB_INLINE void PrefetchHead(const KvLayout& layout, const BlockRows& rows, int head) {
  const int head_dim = layout.key_dim,
            element = layout.codes == KvCodes::kNone ? static_cast<int>(sizeof(T)) : 1;
  const std::byte* keys = rows.block + head * HeadBytes<T>(layout);
  for (int j = 0; j < head_dim; j += 2)
    __builtin_prefetch(keys + (j * kBlockTokens + rows.slot * 2) * element, 1);
  const std::byte* values =
      keys + (head_dim * kBlockTokens + rows.slot / 2 * head_dim * 2) * element;
  for (int j = 0; j < 2 * head_dim * element; j += 64) __builtin_prefetch(values + j, 1);
}

// k [rows, head_dim] of one head to its slots, in scratch memory of kBlockTokens rows.
template <typename T>
FB_INLINE void StoreKeys(const T* k, int rows, int slot, int head_dim, T* keys) {
  int j = 0;
#if defined(__AVX512F__)
  if constexpr (sizeof(T) == sizeof(BF16)) {
    // from this many rows on, a transpose is faster than pieces of a pair
    constexpr int kPieces = 4;
    for (; rows >= kPieces && j + 2 * kLanes <= head_dim; j += 2 * kLanes) {
      T* to = keys + (j / 2 * kBlockTokens + slot) * 2;
      for (int r = 0; r < rows; r += kLanes) {
        TransposePairs(k + r * head_dim + j, head_dim, Min(rows - r, kLanes), to + 2 * r,
                       2 * kBlockTokens);
      }
    }
  }
#endif
  for (; j < head_dim; j += 2) {
    T* to = keys + (j / 2 * kBlockTokens + slot) * 2;
    for (int r = 0; r < rows; ++r)
      __builtin_memcpy(to + 2 * r, k + r * head_dim + j, 2 * sizeof(T));
  }
}

// v [rows, head_dim] of one head to its slots.
template <typename T>
FB_INLINE void StoreValues(const T* v, int rows, int slot, int head_dim, T* values) {
  for (int r = 0; r < rows;) {
    T* to = values + (slot + r) / 2 * head_dim * 2;
    const T* from = v + r * head_dim;
    const int half = (slot + r) % 2;
    const bool pair = half == 0 && r + 1 < rows;
    int j = 0;
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == sizeof(BF16)) {
      for (; j + kLanes <= head_dim; j += kLanes) {
        if (pair) {
          StorePairs(from + j, from + head_dim + j, to + 2 * j);
        } else {
          StoreHalves(from + j, half, to + 2 * j);
        }
      }
    }
#endif
    if (pair) {
      for (; j < head_dim; ++j) to[2 * j] = from[j], to[2 * j + 1] = from[head_dim + j];
    } else {
      // Element by element: another worker may write the other half of each pair.
      for (; j < head_dim; ++j) to[2 * j + half] = from[j];
    }
    r += pair ? 2 : 1;
  }
}

template <typename T>
FB_INLINE void RoundHead(const float* x, int head_dim, T* out) {
  for (int j = 0; j < head_dim; j += kLanes)
    StorePart(out + j, LoadPart(x + j, head_dim - j), head_dim - j);
}

// One head of v: a norm where the model has one, rounding. Args: RopeKvArgs or RopeRowsArgs.
template <typename T, typename Args>
FB_INLINE void RoundValues(const Args& args, const float* x, int head_dim, T* out) {
  if (!args.v_norm) return RoundHead(x, head_dim, out);
  const Vector inverse = Vector::Set(InverseRms(x, head_dim, args.norm_eps));
  for (int j = 0; j < head_dim; j += kLanes)
    StorePart(out + j, LoadPart(x + j, head_dim - j) * inverse, head_dim - j);
}

// k or v [rows, head_dim] of one KV head to codes, [rows, head_dim] in their place, and the rows'
// scales.
template <typename T>
FB_INLINE uint8_t* EncodeRows(const KvLayout& layout, int rows, T* x, float* scales) {
  uint8_t* const codes = reinterpret_cast<uint8_t*>(x);
  const int head_dim = layout.key_dim;
  for (int r = 0; r < rows; ++r)
    scales[r] = EncodeRow(layout.codes, x + r * head_dim, head_dim, codes + r * head_dim);
  return codes;
}

// KeepHead of a cache of codes.
template <typename T, typename Args>
FB_INLINE void KeepCodes(const Args& args, const BlockRows& rows, int head, T* k, T* v,
                         uint64_t* digests) {
  const KvLayout& layout = args.layout;
  const int head_dim = layout.key_dim;
  float k_scales[kBlockTokens], v_scales[kBlockTokens];
  const uint8_t* const k_codes = EncodeRows(layout, rows.rows, k, k_scales);
  const uint8_t* const v_codes = EncodeRows(layout, rows.rows, v, v_scales);
  if (args.digests && head >= args.digested_elsewhere) {
    const int32_t logical = args.first_kv_head + head;
    for (int r = 0; r < rows.rows; ++r) {
      const int32_t position = rows.position + r;
      digests[r] += KvRowHash(layout.codes, k_codes + r * head_dim, k_scales[r], head_dim,
                              KeyDigestKey(args.layer_index, logical, position)) +
                    KvRowHash(layout.codes, v_codes + r * head_dim, v_scales[r], head_dim,
                              ValueDigestKey(args.layer_index, logical, position));
    }
  }
  uint8_t* const keys = reinterpret_cast<uint8_t*>(rows.block + head * HeadBytes<T>(layout));
  uint8_t* const values = keys + kBlockTokens * head_dim;
  StoreKeys(k_codes, rows.rows, rows.slot, head_dim, keys);
  StoreValues(v_codes, rows.rows, rows.slot, head_dim, values);
  if (layout.codes != KvCodes::kInt8) return;
  float* const scales = reinterpret_cast<float*>(values + kBlockTokens * head_dim) + rows.slot;
  for (int r = 0; r < rows.rows; ++r)
    scales[r] = k_scales[r], scales[kBlockTokens + r] = v_scales[r];
}

// k and v [rows, head_dim] of one KV head, which are scratch memory, to their slots; adds to the
// rows' digests. Args: RopeKvArgs or StoreKvArgs.
template <typename T, typename Args>
FB_INLINE void KeepHead(const Args& args, const BlockRows& rows, int head, T* k, T* v,
                        uint64_t* digests) {
  if (args.layout.codes != KvCodes::kNone) return KeepCodes(args, rows, head, k, v, digests);
  const int head_dim = args.layout.key_dim;
  if (args.digests && head >= args.digested_elsewhere) {
    const int64_t bytes = head_dim * static_cast<int64_t>(sizeof(T));
    const int32_t logical = args.first_kv_head + head;
    for (int r = 0; r < rows.rows; ++r) {
      digests[r] += DigestHash(k + r * head_dim, bytes,
                               KeyDigestKey(args.layer_index, logical, rows.position + r)) +
                    DigestHash(v + r * head_dim, bytes,
                               ValueDigestKey(args.layer_index, logical, rows.position + r));
    }
  }
  T* keys = reinterpret_cast<T*>(rows.block + head * HeadBytes<T>(args.layout));
  StoreKeys(k, rows.rows, rows.slot, head_dim, keys);
  StoreValues(v, rows.rows, rows.slot, head_dim, keys + kBlockTokens * head_dim);
}

// The digest of a layer's row at a slot of a block; REQUIRES: args.digests.
template <typename Args>
FB_INLINE void KeepDigest(const Args& args, uint32_t entry, int64_t slot, uint64_t digest) {
  uint64_t& sum = args.digests[(entry & ~kWindowBit) * int64_t{kBlockTokens} + slot];
  sum = args.first_layer ? digest : sum + digest;
}

template <typename Args>
FB_INLINE void KeepDigests(const Args& args, const BlockRows& rows, const uint64_t* digests) {
  if (!args.digests) return;
  for (int r = 0; r < rows.rows; ++r) {
    KeepDigest(args, rows.entry, rows.slot + r, digests[r]);
  }
}

// One KV head of a block's rows; adds to their digests.
template <typename T>
FB_INLINE void TransformKvHead(const RopeKvArgs& args, const BlockRows& rows, int head,
                               std::byte* scratch, uint64_t* digests) {
  const int head_dim = args.layout.key_dim, kv_heads = args.layout.kv_heads;
  const int64_t width = (args.heads + 2 * kv_heads) * head_dim;
  T* k = reinterpret_cast<T*>(scratch);
  T* v = k + kBlockTokens * head_dim;
  const float* x = args.qkv + rows.row * width + (args.heads + head) * head_dim;
  for (int r = 0; r < rows.rows; ++r, x += width) {
    TransformHead(args, x, args.k_norm, rows.position + r, 1.0f, k + r * head_dim);
    RoundValues(args, x + kv_heads * head_dim, head_dim, v + r * head_dim);
  }
  KeepHead(args, rows, head, k, v, digests);
}

template <typename T>
void TransformRows(const RopeKvArgs& args, device::Range range, std::byte* scratch) {
  const int head_dim = args.layout.key_dim, kv_heads = args.layout.kv_heads;
  const int64_t width = (args.heads + 2 * kv_heads) * head_dim;
  if (range.begin == range.end) return;
  BlockRows rows = RowsOfBlock<T>(args, range.begin, range.end);
  for (int head = 0; head < kv_heads; ++head) PrefetchHead<T>(args.layout, rows, head);
  for (int64_t end = range.begin; end < range.end;) {
    for (int r = 0; r < rows.rows; ++r) {
      const float* x = args.qkv + (rows.row + r) * width;
      T* q = reinterpret_cast<T*>(args.q) + (rows.row + r) * args.heads * head_dim;
      const float scale = args.q_scale ? args.q_scale[rows.position + r] : 1.0f;
      for (int head = 0; head < args.heads; ++head, x += head_dim) {
        Prefetch(x + width, head_dim);
        TransformHead(args, x, args.q_norm, rows.position + r, scale, q + head * head_dim);
      }
    }
    end = rows.row + rows.rows;
    const BlockRows next = end < range.end ? RowsOfBlock<T>(args, end, range.end) : rows;
    uint64_t digests[kBlockTokens] = {};
    for (int head = 0; head < kv_heads; ++head) {
      TransformKvHead<T>(args, rows, head, scratch, digests);
      // The next rows' block was touched by none before it if they are not the same sequence's.
      if (end < range.end) PrefetchHead<T>(args.layout, next, head);
    }
    KeepDigests(args, rows, digests);
    rows = next;
  }
}

void TransformAllRows(const RopeKvArgs& args, const device::WorkerContext& context) {
  const device::Range rows = OwnRows(context, args.batch.num_rows);
  args.layout.dtype == tensor::DType::kF32 ? TransformRows<float>(args, rows, context.scratch)
                                           : TransformRows<BF16>(args, rows, context.scratch);
}

// One row's heads, for one reader.
template <typename T>
FB_INLINE void RopeRow(const RopeRowsArgs& args, const RopeRowsArgs::Reader& reader, int64_t row) {
  const int head_dim = args.head_dim;
  const int64_t position = args.positions[row];
  const float* q = args.qkv + row * (args.heads + 2 * args.kv_heads) * head_dim;
  const float* k = q + (args.heads + reader.first_kv_head) * head_dim;
  const float* v = k + args.kv_heads * head_dim;
  T* q_out = reinterpret_cast<T*>(reader.out) + row * reader.heads * head_dim;
  T* kv_out = reinterpret_cast<T*>(reader.out) +
              (int64_t{args.num_rows} * reader.heads + row * 2 * reader.kv_heads) * head_dim;
  const float scale = args.q_scale ? args.q_scale[position] : 1.0f;
  for (int head = 0; head < reader.heads; ++head) {
    TransformHead(args, q + (reader.first_head + head) * head_dim, args.q_norm, position, scale,
                  q_out + head * head_dim);
  }
  for (int head = 0; head < reader.kv_heads; ++head) {
    TransformHead(args, k + head * head_dim, args.k_norm, position, 1.0f, kv_out + head * head_dim);
    RoundValues(args, v + head * head_dim, head_dim, kv_out + (reader.kv_heads + head) * head_dim);
  }
}

void RopeAllRows(const RopeRowsArgs& args, const device::WorkerContext& context) {
  const device::Range rows = OwnRows(context, args.num_rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    for (int i = 0; i < args.num_readers; ++i) {
      args.dtype == tensor::DType::kF32 ? RopeRow<float>(args, args.readers[i], row)
                                        : RopeRow<BF16>(args, args.readers[i], row);
    }
  }
}

template <typename T>
void StoreRows(const StoreKvArgs& args, device::Range range, std::byte* scratch) {
  const int head_dim = args.layout.key_dim, kv_heads = args.layout.kv_heads;
  const int64_t width = 2ll * kv_heads * head_dim;
  T* const k = reinterpret_cast<T*>(scratch);
  T* const v = k + kBlockTokens * head_dim;
  for (int64_t row = range.begin; row < range.end;) {
    const BlockRows rows = RowsOfBlock<T>(args, row, range.end);
    uint64_t digests[kBlockTokens] = {};
    for (int head = 0; head < kv_heads; ++head) {
      const T* from = reinterpret_cast<const T*>(args.kv) + row * width + head * head_dim;
      for (int r = 0; r < rows.rows; ++r, from += width) {
        __builtin_memcpy(k + r * head_dim, from, head_dim * sizeof(T));
        __builtin_memcpy(v + r * head_dim, from + kv_heads * head_dim, head_dim * sizeof(T));
      }
      KeepHead(args, rows, head, k, v, digests);
    }
    KeepDigests(args, rows, digests);
    row += rows.rows;
  }
}

void StoreAllRows(const StoreKvArgs& args, const device::WorkerContext& context) {
  const device::Range rows = OwnRows(context, args.batch.num_rows);
  args.layout.dtype == tensor::DType::kF32 ? StoreRows<float>(args, rows, context.scratch)
                                           : StoreRows<BF16>(args, rows, context.scratch);
}

}  // namespace
}  // namespace forebay::kernels

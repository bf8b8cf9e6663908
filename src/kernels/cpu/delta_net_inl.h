// Layers with state (kernels/delta_net.h) with this file's instruction set: columns lie in lanes,
// and a panel of a head's matrix stays in the core's cache while the sequence's rows pass.
#pragma once

#include "kernels/cpu/rows_inl.h"
#include "kernels/delta_net.h"

namespace forebay::kernels {
namespace {

static_assert(kStateLanes == kLanes);

// The channels of one panel, of all sequences.
template <int kVectors, int kTaps>
FB_INLINE void ConvChannels(const ShortConvArgs& args, int64_t channel) {
  constexpr int kTail = kTaps - 1;
  const int64_t channels = args.channels;
  const bool silu = args.silu, gated = args.gates_at > 0, biased = args.bias != nullptr;
  Vector weight[kTaps][kVectors], bias[kVectors];
  int64_t rest[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    rest[v] = channels - channel - v * kLanes;
    for (int i = 0; i < kTaps; ++i)
      weight[i][v] = LoadPart(args.weight + i * channels + channel + v * kLanes, rest[v]);
    bias[v] = biased ? LoadPart(args.bias + channel + v * kLanes, rest[v]) : Vector::Zero();
  }
  for (int32_t s = 0; s < args.batch.num_state_rows; ++s) {
    const StateRows& rows = args.batch.state_rows[s];
    const bool begins = rows.from < 0;
    float* const kept = args.tails.Of(rows.to) + channel;
    const float* const from = begins ? kept : args.tails.Of(rows.from) + channel;
    Vector tail[kTail][kVectors];
    for (int i = 0; i < kTail; ++i) {
      for (int v = 0; v < kVectors; ++v)
        tail[i][v] = begins ? Vector::Zero() : LoadPart(from + i * channels + v * kLanes, rest[v]);
    }
    float* x = args.x + rows.first_row * args.stride + channel;
    for (int32_t t = 0; t < rows.num_rows; ++t, x += args.stride) {
      for (int v = 0; v < kVectors; ++v) {
        Vector input = LoadPart(x + v * kLanes, rest[v]);
        if (gated) input = input * LoadPart(x + args.gates_at + v * kLanes, rest[v]);
        Vector sum = weight[0][v] * tail[0][v];
        for (int i = 1; i < kTail; ++i) sum = Fma(weight[i][v], tail[i][v], sum);
        sum = Fma(weight[kTail][v], input, sum);
        if (biased) sum = sum + bias[v];
        StorePart(x + v * kLanes, silu ? Silu(sum) : sum, rest[v]);
        for (int i = 0; i + 1 < kTail; ++i) tail[i][v] = tail[i + 1][v];
        tail[kTail - 1][v] = input;
      }
    }
    for (int i = 0; i < kTail; ++i) {
      for (int v = 0; v < kVectors; ++v)
        StorePart(kept + i * channels + v * kLanes, tail[i][v], rest[v]);
    }
  }
}

template <int kTaps>
void ConvRows(const ShortConvArgs& args, device::Range vectors) {
  int64_t vector = vectors.begin;
  for (; vector + 2 <= vectors.end; vector += 2) ConvChannels<2, kTaps>(args, vector * kLanes);
  if (vector < vectors.end) ConvChannels<1, kTaps>(args, vector * kLanes);
}

void ConvAllRows(const ShortConvArgs& args, const device::WorkerContext& context) {
  // Panels of channels are dealt, not rows: a row needs those before it.
  const device::Range own = OwnRows(context, (args.channels + kLanes - 1) / kLanes);
  static_assert(kConvTaps == 4);
  if (args.taps == 2) return ConvRows<2>(args, own);
  args.taps == 3 ? ConvRows<3>(args, own) : ConvRows<4>(args, own);
}

// x[0, n) / sqrt(sum of squares + 1e-6) * scale.
FB_INLINE void Direction(const float* x, int n, float scale, float* out) {
  Vector lanes = Vector::Zero();
  for (int j = 0; j < n; j += kLanes) {
    const Vector part = LoadPart(x + j, n - j);
    lanes = Fma(part, part, lanes);
  }
  const Vector inverse = Vector::Set(1.0f / SquareRoot(ReduceAdd(lanes) + 1e-6f)),
               factor = Vector::Set(scale);
  for (int j = 0; j < n; j += kLanes) (LoadPart(x + j, n - j) * inverse * factor).Store(out + j);
}

// What a row brings to a head.
struct DeltaRow {
  alignas(64) float q[kMaxStateKeyDim + kLanes], k[kMaxStateKeyDim + kLanes];
  float decay, beta;
};

// A value head and some rows of a sequence.
struct DeltaHead {
  const DeltaNetArgs& args;
  int32_t head;
  float scale;  // of q

  FB_INLINE float* Row(int64_t row) const { return args.x + row * args.stride; }
  FB_INLINE float* Values(int64_t row) const {
    return Row(row) + 2 * int64_t{args.key_heads} * args.key_dim + int64_t{head} * args.value_dim;
  }
  FB_INLINE void Prepare(int64_t row, DeltaRow* out) const {
    const int64_t key_head = head / (args.value_heads / args.key_heads);
    const float* const x = Row(row);
    Direction(x + key_head * args.key_dim, args.key_dim, scale, out->q);
    Direction(x + (args.key_heads + key_head) * args.key_dim, args.key_dim, 1.0f, out->k);
    out->beta = Sigmoid(Vector::Set(x[args.b_at + head])).First();
    const Vector step = Softplus(Vector::Set(x[args.a_at + head] + args.dt_bias[head]));
    out->decay = Exp(Negate(Exp(Vector::Set(args.a_log[head])) * step)).First();
  }
};

// Rows of a sequence through kVectors vectors of columns from `column` on, which lie `width` floats
// apart in the panel: from the matrix `before` to `matrix`. One pass a row: it adds the row to the
// matrix and, as the next row will have it, decays it and sums what that row's key knows.
template <int kVectors>
FB_INLINE void PassRows(const DeltaHead& head, const StateRows& sequence, int64_t column,
                        const float* before, float* matrix, int64_t width) {
  const int n = head.args.key_dim;
  const int64_t rest = head.args.value_dim - column;
  DeltaRow rows[2];
  head.Prepare(sequence.first_row, &rows[0]);
  Vector known[kVectors];
  {
    const Vector decay = Vector::Set(rows[0].decay);
    for (int v = 0; v < kVectors; ++v) known[v] = Vector::Zero();
    for (int i = 0; i < n; ++i) {
      const Vector k = Vector::Set(rows[0].k[i]);
      for (int v = 0; v < kVectors; ++v) {
        const int64_t at = i * width + v * kLanes;
        const Vector s = Vector::Load(before + at) * decay;
        s.Store(matrix + at);
        known[v] = Fma(k, s, known[v]);
      }
    }
  }
  for (int32_t t = 0; t < sequence.num_rows; ++t) {
    const DeltaRow& row = rows[t % 2];
    DeltaRow& next = rows[(t + 1) % 2];
    const bool last = t + 1 == sequence.num_rows;
    if (!last) head.Prepare(sequence.first_row + t + 1, &next);
    float* const values = head.Values(sequence.first_row + t) + column;
    Vector change[kVectors], out[kVectors];
    const Vector beta = Vector::Set(row.beta);
    for (int v = 0; v < kVectors; ++v) {
      change[v] = beta * (LoadPart(values + v * kLanes, rest - v * kLanes) - known[v]);
      out[v] = known[v] = Vector::Zero();
    }
    if (last) {
      for (int i = 0; i < n; ++i) {
        const Vector k = Vector::Set(row.k[i]), q = Vector::Set(row.q[i]);
        for (int v = 0; v < kVectors; ++v) {
          float* const at = matrix + i * width + v * kLanes;
          const Vector s = Fma(k, change[v], Vector::Load(at));
          out[v] = Fma(q, s, out[v]);
          s.Store(at);
        }
      }
    } else {
      const Vector decay = Vector::Set(next.decay);
      for (int i = 0; i < n; ++i) {
        const Vector k = Vector::Set(row.k[i]), q = Vector::Set(row.q[i]),
                     next_k = Vector::Set(next.k[i]);
        for (int v = 0; v < kVectors; ++v) {
          float* const at = matrix + i * width + v * kLanes;
          Vector s = Fma(k, change[v], Vector::Load(at));
          out[v] = Fma(q, s, out[v]);
          s = s * decay;
          known[v] = Fma(next_k, s, known[v]);
          s.Store(at);
        }
      }
    }
    for (int v = 0; v < kVectors; ++v) StorePart(values + v * kLanes, out[v], rest - v * kLanes);
  }
}

#if defined(__AVX512F__)
constexpr int kStateVectors = 4;
#else
constexpr int kStateVectors = 2;
#endif

// Visits the panels of all heads' matrices [rows, columns] that are this worker's, with each of the
// step's runs of rows: visit(head, rows, first column, before, matrix, columns of the panel). Where
// nothing is before the rows, both are the same zeros.
template <typename Args, typename Visit>
FB_INLINE void EachPanel(const Args& args, int64_t heads, int64_t rows_of_matrix, int64_t columns,
                         const device::WorkerContext& context, Visit visit) {
  const int64_t panels = (columns + kStatePanel - 1) / kStatePanel;
  const device::Range own = OwnRows(context, heads * panels);
  for (int64_t item = own.begin; item < own.end; ++item) {
    const auto head = static_cast<int32_t>(item / panels);
    const int64_t first = item % panels * kStatePanel,
                  rest = (columns - first + kLanes - 1) / kLanes * kLanes,
                  width = rest < kStatePanel ? rest : kStatePanel;
    const int64_t offset =
        head * StateMatrixFloats(rows_of_matrix, columns) + first * rows_of_matrix;
    for (int32_t s = 0; s < args.batch.num_state_rows; ++s) {
      const StateRows& rows = args.batch.state_rows[s];
      float* const matrix = args.matrices.Of(rows.to) + offset;
      const float* before = matrix;
      if (rows.from < 0) {
        for (int64_t i = 0; i < rows_of_matrix * width; i += kLanes)
          Vector::Zero().Store(matrix + i);
      } else {
        before = args.matrices.Of(rows.from) + offset;
      }
      visit(head, rows, first, before, matrix, width);
    }
  }
}

void DeltaAllRows(const DeltaNetArgs& args, const device::WorkerContext& context) {
  const float scale = 1.0f / SquareRoot(static_cast<float>(args.key_dim));
  EachPanel(args, args.value_heads, args.key_dim, args.value_dim, context,
            [&](int32_t number, const StateRows& rows, int64_t first, const float* before,
                float* matrix, int64_t width) {
              const DeltaHead head{args, number, scale};
              int64_t at = 0;
              for (; at + kStateVectors * kLanes <= width; at += kStateVectors * kLanes)
                PassRows<kStateVectors>(head, rows, first + at, before + at, matrix + at, width);
              for (; at < width; at += kLanes)
                PassRows<1>(head, rows, first + at, before + at, matrix + at, width);
            });
}

// Rows of a sequence through kVectors vectors of columns of a head of Mamba-2, as in PassRows.
template <int kVectors>
FB_INLINE void PassMamba(const Mamba2Args& args, int32_t head, const StateRows& sequence,
                         int64_t column, const float* before, float* matrix, int64_t width) {
  const int64_t n = args.state_dim, rest = args.head_dim - column,
                group = head / (args.heads / args.groups);
  const Vector rate = Exp(Vector::Set(args.a_log[head])), through = Vector::Set(args.d[head]);
  float* row = args.x + sequence.first_row * args.stride;
  for (int32_t t = 0; t < sequence.num_rows; ++t, row += args.stride, before = matrix) {
    const float *const c = row + group * n, *const b = row + (args.groups + group) * n;
    float* const x = row + 2 * args.groups * n + int64_t{head} * args.head_dim + column;
    float step = Softplus(Vector::Set(row[args.dt_at + head] + args.dt_bias[head])).First();
    step = step < args.least_step ? args.least_step : step;
    const Vector decay = Exp(Negate(rate * Vector::Set(step)));
    Vector input[kVectors], change[kVectors], out[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      input[v] = LoadPart(x + v * kLanes, rest - v * kLanes);
      change[v] = Vector::Set(step) * input[v];
      out[v] = Vector::Zero();
    }
    for (int64_t i = 0; i < n; ++i) {
      const Vector key = Vector::Set(b[i]), query = Vector::Set(c[i]);
      for (int v = 0; v < kVectors; ++v) {
        const int64_t at = i * width + v * kLanes;
        const Vector s = Fma(key, change[v], Vector::Load(before + at) * decay);
        out[v] = Fma(query, s, out[v]);
        s.Store(matrix + at);
      }
    }
    for (int v = 0; v < kVectors; ++v)
      StorePart(x + v * kLanes, Fma(through, input[v], out[v]), rest - v * kLanes);
  }
}

void MambaAllRows(const Mamba2Args& args, const device::WorkerContext& context) {
  const int64_t n = args.state_dim, p = args.head_dim;
  EachPanel(args, args.heads, n, p, context,
            [&](int32_t head, const StateRows& rows, int64_t first, const float* before,
                float* matrix, int64_t width) {
              int64_t at = 0;
              for (; at + kStateVectors * kLanes <= width; at += kStateVectors * kLanes)
                PassMamba<kStateVectors>(args, head, rows, first + at, before + at, matrix + at,
                                         width);
              for (; at < width; at += kLanes)
                PassMamba<1>(args, head, rows, first + at, before + at, matrix + at, width);
            });
}

// Heads [first_head, first_head + count) of a row.
template <typename T>
FB_INLINE void GateHeads(const GatedNormArgs& args, int64_t row, int32_t first_head,
                         int32_t count) {
  const int64_t columns = int64_t{args.heads} * args.dim, first = int64_t{first_head} * args.dim;
  const int size = count * args.dim;
  T* const out = reinterpret_cast<T*>(args.out) + row * columns + first;
  const float *x = args.x + row * args.stride + first, *z = args.z + row * args.stride + first;
  const auto part = [size](const float* values, int j) { return LoadPart(values + j, size - j); };
  if (args.gate == StateGate::kWithoutNorm) {
    for (int j = 0; j < size; j += kLanes) StorePart(out + j, part(x, j) * part(z, j), size - j);
    return;
  }
  if (args.gate == StateGate::kBehindNorm) {
    const Vector inverse = Vector::Set(InverseRms(x, size, args.eps));
    for (int j = 0; j < size; j += kLanes) {
      const Vector normed = part(x, j) * inverse * part(args.weight, j);
      StorePart(out + j, normed * Silu(part(z, j)), size - j);
    }
    return;
  }
  Vector lanes = Vector::Zero();
  for (int j = 0; j < size; j += kLanes) {
    const Vector gated = part(x, j) * Silu(part(z, j));
    lanes = Fma(gated, gated, lanes);
  }
  const Vector inverse =
      Vector::Set(1.0f / SquareRoot(ReduceAdd(lanes) / static_cast<float>(size) + args.eps));
  for (int j = 0; j < size; j += kLanes) {
    const Vector gated = part(x, j) * Silu(part(z, j));
    StorePart(out + j, gated * inverse * part(args.weight + first, j), size - j);
  }
}

template <typename T>
void GatedNormRows(const GatedNormArgs& args, device::Range rows) {
  const int64_t columns = int64_t{args.heads} * args.dim;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const T* const out = reinterpret_cast<const T*>(args.out) + row * columns;
    const int32_t position = args.batch.positions[row];
    for (int32_t head = 0; head < args.heads; head += args.normed_heads)
      GateHeads<T>(args, row, head, args.normed_heads);
    if (!args.digests) continue;
    uint64_t digest = 0;
    for (int32_t head = 0; head < args.heads; ++head) {
      digest +=
          DigestHash(out + int64_t{head} * args.dim, args.dim * static_cast<int64_t>(sizeof(T)),
                     ValueDigestKey(args.layer_index, args.first_head + head, position));
    }
    const SequenceRows& sequence = args.batch.sequences[args.batch.row_sequence[row]];
    const uint32_t entry =
        args.batch
            .block_tables[sequence.table_row * args.batch.table_stride + position / kBlockTokens];
    KeepDigest(args, entry, position % kBlockTokens, digest);
  }
}

void GatedNormAllRows(const GatedNormArgs& args, const device::WorkerContext& context) {
  const device::Range rows = OwnRows(context, args.batch.num_rows);
  args.dtype == tensor::DType::kF32 ? GatedNormRows<float>(args, rows)
                                    : GatedNormRows<BF16>(args, rows);
}

}  // namespace
}  // namespace forebay::kernels

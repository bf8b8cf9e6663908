// Layers with state (kernels/delta_net.h) with this file's instruction set: columns lie in lanes,
// and a panel of a head's matrix stays in the core's cache while the sequence's rows pass.
#pragma once

#include "kernels/cpu/rows_inl.h"
#include "kernels/delta_net.h"

namespace forebay::kernels {
namespace {

static_assert(kStateLanes == kLanes);

// The channels of one panel, of all sequences.
template <int kVectors>
FB_INLINE void ConvChannels(const ShortConvArgs& args, int64_t channel) {
  const int64_t channels = args.channels;
  Vector weight[kConvTaps][kVectors];
  int64_t rest[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    rest[v] = channels - channel - v * kLanes;
    for (int i = 0; i < kConvTaps; ++i)
      weight[i][v] = LoadPart(args.weight + i * channels + channel + v * kLanes, rest[v]);
  }
  for (int32_t s = 0; s < args.batch.num_state_rows; ++s) {
    const StateRows& rows = args.batch.state_rows[s];
    const bool begins = rows.from < 0;
    float* const kept = args.tails.Of(rows.to) + channel;
    const float* const from = begins ? kept : args.tails.Of(rows.from) + channel;
    Vector tail[kConvTaps - 1][kVectors];
    for (int i = 0; i < kConvTaps - 1; ++i) {
      for (int v = 0; v < kVectors; ++v)
        tail[i][v] = begins ? Vector::Zero() : LoadPart(from + i * channels + v * kLanes, rest[v]);
    }
    float* x = args.x + rows.first_row * args.stride + channel;
    for (int32_t t = 0; t < rows.num_rows; ++t, x += args.stride) {
      for (int v = 0; v < kVectors; ++v) {
        const Vector input = LoadPart(x + v * kLanes, rest[v]);
        Vector sum = weight[0][v] * tail[0][v];
        sum = Fma(weight[1][v], tail[1][v], sum);
        sum = Fma(weight[2][v], tail[2][v], sum);
        sum = Fma(weight[3][v], input, sum);
        StorePart(x + v * kLanes, Silu(sum), rest[v]);
        tail[0][v] = tail[1][v], tail[1][v] = tail[2][v], tail[2][v] = input;
      }
    }
    for (int i = 0; i < kConvTaps - 1; ++i) {
      for (int v = 0; v < kVectors; ++v)
        StorePart(kept + i * channels + v * kLanes, tail[i][v], rest[v]);
    }
  }
}

void ConvAllRows(const ShortConvArgs& args, const device::WorkerContext& context) {
  // Panels of channels are dealt, not rows: a row needs those before it.
  const int64_t vectors = (args.channels + kLanes - 1) / kLanes;
  const device::Range own = OwnRows(context, vectors);
  int64_t vector = own.begin;
  for (; vector + 2 <= own.end; vector += 2) ConvChannels<2>(args, vector * kLanes);
  if (vector < own.end) ConvChannels<1>(args, vector * kLanes);
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

void DeltaAllRows(const DeltaNetArgs& args, const device::WorkerContext& context) {
  const int64_t dk = args.key_dim, dv = args.value_dim;
  const int64_t panels = (dv + kStatePanel - 1) / kStatePanel;
  const float scale = 1.0f / SquareRoot(static_cast<float>(dk));
  const device::Range own = OwnRows(context, args.value_heads * panels);
  for (int64_t item = own.begin; item < own.end; ++item) {
    const auto number = static_cast<int32_t>(item / panels);
    const DeltaHead head{args, number, scale};
    const int64_t first = item % panels * kStatePanel,
                  rest = (dv - first + kLanes - 1) / kLanes * kLanes,
                  width = rest < kStatePanel ? rest : kStatePanel;
    const int64_t offset = number * StateMatrixFloats(dk, dv) + first * dk;
    for (int32_t s = 0; s < args.batch.num_state_rows; ++s) {
      const StateRows& rows = args.batch.state_rows[s];
      float* const matrix = args.matrices.Of(rows.to) + offset;
      const float* before = matrix;
      if (rows.from < 0) {
        for (int64_t i = 0; i < dk * width; i += kLanes) Vector::Zero().Store(matrix + i);
      } else {
        before = args.matrices.Of(rows.from) + offset;
      }
      int64_t at = 0;
      for (; at + kStateVectors * kLanes <= width; at += kStateVectors * kLanes)
        PassRows<kStateVectors>(head, rows, first + at, before + at, matrix + at, width);
      for (; at < width; at += kLanes)
        PassRows<1>(head, rows, first + at, before + at, matrix + at, width);
    }
  }
}

template <typename T>
void GatedNormRows(const GatedNormArgs& args, device::Range rows) {
  const int64_t columns = int64_t{args.heads} * args.dim;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    T* const out = reinterpret_cast<T*>(args.out) + row * columns;
    const int32_t position = args.batch.positions[row];
    uint64_t digest = 0;
    for (int32_t head = 0; head < args.heads; ++head) {
      const int64_t first = int64_t{head} * args.dim;
      const float *x = args.x + row * args.stride + first, *z = args.z + row * args.stride + first;
      const Vector inverse = Vector::Set(InverseRms(x, args.dim, args.eps));
      for (int j = 0; j < args.dim; j += kLanes) {
        const int64_t rest = args.dim - j;
        const Vector normed = LoadPart(x + j, rest) * inverse * LoadPart(args.weight + j, rest);
        StorePart(out + first + j, normed * Silu(LoadPart(z + j, rest)), rest);
      }
      if (args.digests)
        digest += DigestHash(out + first, args.dim * static_cast<int64_t>(sizeof(T)),
                             ValueDigestKey(args.layer_index, args.first_head + head, position));
    }
    if (!args.digests) continue;
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

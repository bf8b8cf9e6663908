#include "kernels/delta_net.h"

#include <vector>

#include "kernels/digest.h"
#include "kernels/exp.h"
#include "kernels/kv_layout.h"
#include "kernels/ref/row.h"
#include "kernels/sets.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {
namespace {

// x[0, n) / sqrt(sum of squares + 1e-6) * scale.
std::vector<float> Direction(const float* x, int n, float scale) {
  float lanes[kLanes] = {};
  for (int j = 0; j < n; ++j) lanes[j % kLanes] = std::fma(x[j], x[j], lanes[j % kLanes]);
  const float inverse = 1.0f / std::sqrt(SumTree(lanes) + 1e-6f);
  std::vector<float> out(x, x + n);
  for (float& value : out) value = value * inverse * scale;
  return out;
}

// A head's matrix of so many floats in the place that the rows leave it in, as they find it.
float* BeginMatrix(const StateLayer& matrices, const StateRows& sequence, int32_t head,
                   int64_t floats) {
  float* const matrix = matrices.Of(sequence.to) + head * floats;
  if (sequence.from < 0) {
    std::fill_n(matrix, floats, 0.0f);
  } else if (sequence.from != sequence.to) {
    std::copy_n(matrices.Of(sequence.from) + head * floats, floats, matrix);
  }
  return matrix;
}

// Rows of one sequence through one value head.
void RunHead(const DeltaNetArgs& args, const StateRows& sequence, int32_t head) {
  const int64_t dk = args.key_dim, dv = args.value_dim;
  const int32_t key_head = head / (args.value_heads / args.key_heads);
  const int64_t floats = StateMatrixFloats(dk, dv);
  float* const matrix = BeginMatrix(args.matrices, sequence, head, floats);
  const auto at = [&](int64_t i, int64_t j) -> float& {
    const int64_t panel = j / kStatePanel * kStatePanel,
                  rest = (dv - panel + kStateLanes - 1) / kStateLanes * kStateLanes,
                  width = rest < kStatePanel ? rest : kStatePanel;
    return matrix[panel * dk + i * width + j - panel];
  };
  for (int32_t t = 0; t < sequence.num_rows; ++t) {
    float* const row = args.x + (sequence.first_row + t) * args.stride;
    const float beta = Sigmoid(row[args.b_at + head]);
    const float decay =
        Exp(-(Exp(args.a_log[head]) * Softplus(row[args.a_at + head] + args.dt_bias[head])));
    const float scale = 1.0f / std::sqrt(static_cast<float>(dk));
    const std::vector<float> q = Direction(row + key_head * dk, args.key_dim, scale),
                             k = Direction(row + (args.key_heads + key_head) * dk, args.key_dim, 1);
    float* const v = row + 2 * args.key_heads * dk + head * dv;
    for (int64_t j = 0; j < dv; ++j) {
      float known = 0, out = 0;
      for (int64_t i = 0; i < dk; ++i) {
        at(i, j) = at(i, j) * decay;
        known = std::fma(k[static_cast<size_t>(i)], at(i, j), known);
      }
      const float change = beta * (v[j] - known);
      for (int64_t i = 0; i < dk; ++i) {
        at(i, j) = std::fma(k[static_cast<size_t>(i)], change, at(i, j));
        out = std::fma(q[static_cast<size_t>(i)], at(i, j), out);
      }
      v[j] = out;
    }
  }
}

// Rows of one sequence through one head of Mamba-2.
void RunMamba(const Mamba2Args& args, const StateRows& sequence, int32_t head) {
  const int64_t n = args.state_dim, p = args.head_dim, floats = StateMatrixFloats(n, p);
  const int32_t group = head / (args.heads / args.groups);
  float* const matrix = BeginMatrix(args.matrices, sequence, head, floats);
  for (int32_t t = 0; t < sequence.num_rows; ++t) {
    float* const row = args.x + (sequence.first_row + t) * args.stride;
    const float *const c = row + group * n, *const b = row + (args.groups + group) * n;
    float* const x = row + 2 * args.groups * n + head * p;
    const float plain = Softplus(row[args.dt_at + head] + args.dt_bias[head]);
    const float step = plain < args.least_step ? args.least_step : plain;
    const float decay = Exp(-(Exp(args.a_log[head]) * step));
    for (int64_t j = 0; j < p; ++j) {
      const int64_t panel = j / kStatePanel * kStatePanel,
                    rest = (p - panel + kStateLanes - 1) / kStateLanes * kStateLanes,
                    width = rest < kStatePanel ? rest : kStatePanel;
      const float change = step * x[j];
      float out = 0;
      for (int64_t i = 0; i < n; ++i) {
        float& s = matrix[panel * n + i * width + j - panel];
        s = std::fma(b[i], change, s * decay);
        out = std::fma(c[i], s, out);
      }
      x[j] = std::fma(args.d[head], x[j], out);
    }
  }
}

// Heads [first_head, first_head + count) of a row.
template <typename T>
void GateHeads(const GatedNormArgs& args, int64_t row, int32_t first_head, int32_t count) {
  const int64_t columns = int64_t{args.heads} * args.dim, first = int64_t{first_head} * args.dim,
                size = int64_t{count} * args.dim;
  T* const out = reinterpret_cast<T*>(args.out) + row * columns + first;
  const float *x = args.x + row * args.stride + first, *z = args.z + row * args.stride + first;
  switch (args.gate) {
    case StateGate::kBehindNorm: {
      const float inverse = InverseRms([x](int64_t j) { return x[j]; }, size, args.eps);
      for (int64_t j = 0; j < size; ++j)
        out[j] = tensor::RoundTo<T>(x[j] * inverse * args.weight[j] * Silu(z[j]));
      break;
    }
    case StateGate::kBeforeNorm: {
      const auto gated = [x, z](int64_t j) { return x[j] * Silu(z[j]); };
      const float inverse = InverseRms(gated, size, args.eps);
      for (int64_t j = 0; j < size; ++j)
        out[j] = tensor::RoundTo<T>(gated(j) * inverse * args.weight[first + j]);
      break;
    }
    case StateGate::kWithoutNorm:
      for (int64_t j = 0; j < size; ++j) out[j] = tensor::RoundTo<T>(x[j] * z[j]);
  }
}

template <typename T>
void NormRow(const GatedNormArgs& args, int64_t row) {
  const int64_t columns = int64_t{args.heads} * args.dim;
  T* const out = reinterpret_cast<T*>(args.out) + row * columns;
  const int32_t position = args.batch.positions[row];
  uint64_t digest = 0;
  for (int32_t head = 0; head < args.heads; head += args.normed_heads)
    GateHeads<T>(args, row, head, args.normed_heads);
  for (int32_t head = 0; head < args.heads; ++head) {
    digest += DigestHash(out + int64_t{head} * args.dim, args.dim * static_cast<int64_t>(sizeof(T)),
                         ValueDigestKey(args.layer_index, args.first_head + head, position));
  }
  if (args.digests == nullptr) return;
  const SequenceRows& sequence = args.batch.sequences[args.batch.row_sequence[row]];
  const uint32_t entry =
      args.batch
          .block_tables[sequence.table_row * args.batch.table_stride + position / kBlockTokens];
  KeepDigest(args, entry, position % kBlockTokens, digest);
}

}  // namespace

void ShortConv(const ShortConvArgs& args, const device::WorkerContext& context) {
  const device::Range channels = StaticPart(context, args.channels, kStatePanel);
  const int last = args.taps - 1;
  for (int64_t channel = channels.begin; channel < channels.end; ++channel) {
    for (int32_t s = 0; s < args.batch.num_state_rows; ++s) {
      const StateRows& sequence = args.batch.state_rows[s];
      float* const kept = args.tails.Of(sequence.to) + channel;
      float tail[kConvTaps - 1] = {};
      for (int i = 0; i < last && sequence.from >= 0; ++i)
        tail[i] = args.tails.Of(sequence.from)[i * int64_t{args.channels} + channel];
      for (int32_t t = 0; t < sequence.num_rows; ++t) {
        float& x = args.x[(sequence.first_row + t) * args.stride + channel];
        const float input = args.gates_at > 0 ? x * (&x)[args.gates_at] : x;
        float sum = args.weight[channel] * tail[0];
        for (int i = 1; i <= last; ++i)
          sum = std::fma(args.weight[i * int64_t{args.channels} + channel],
                         i < last ? tail[i] : input, sum);
        if (args.bias != nullptr) sum = sum + args.bias[channel];
        x = args.silu ? Silu(sum) : sum;
        for (int i = 0; i + 1 < last; ++i) tail[i] = tail[i + 1];
        tail[last - 1] = input;
      }
      for (int i = 0; i < last; ++i) kept[i * int64_t{args.channels}] = tail[i];
    }
  }
}

void DeltaNet(const DeltaNetArgs& args, const device::WorkerContext& context) {
  const device::Range heads = StaticPart(context, args.value_heads);
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    for (int32_t s = 0; s < args.batch.num_state_rows; ++s)
      RunHead(args, args.batch.state_rows[s], static_cast<int32_t>(head));
  }
}

void Mamba2(const Mamba2Args& args, const device::WorkerContext& context) {
  const device::Range heads = StaticPart(context, args.heads);
  for (int64_t head = heads.begin; head < heads.end; ++head) {
    for (int32_t s = 0; s < args.batch.num_state_rows; ++s)
      RunMamba(args, args.batch.state_rows[s], static_cast<int32_t>(head));
  }
}

void GatedNorm(const GatedNormArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.batch.num_rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    args.dtype == tensor::DType::kF32 ? NormRow<float>(args, row)
                                      : NormRow<tensor::BF16>(args, row);
  }
}

}  // namespace forebay::kernels::ref

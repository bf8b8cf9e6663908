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

// Rows of one sequence through one value head.
void RunHead(const DeltaNetArgs& args, const StateRows& sequence, int32_t head) {
  const int64_t dk = args.key_dim, dv = args.value_dim;
  const int32_t key_head = head / (args.value_heads / args.key_heads);
  const int64_t floats = StateMatrixFloats(dk, dv);
  float* const matrix = args.matrices.Of(sequence.to) + head * floats;
  const auto at = [&](int64_t i, int64_t j) -> float& {
    const int64_t panel = j / kStatePanel * kStatePanel,
                  rest = (dv - panel + kStateLanes - 1) / kStateLanes * kStateLanes,
                  width = rest < kStatePanel ? rest : kStatePanel;
    return matrix[panel * dk + i * width + j - panel];
  };
  if (sequence.from < 0) {
    std::fill_n(matrix, floats, 0.0f);
  } else if (sequence.from != sequence.to) {
    std::copy_n(args.matrices.Of(sequence.from) + head * floats, floats, matrix);
  }
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

template <typename T>
void NormRow(const GatedNormArgs& args, int64_t row) {
  const int64_t columns = int64_t{args.heads} * args.dim;
  T* const out = reinterpret_cast<T*>(args.out) + row * columns;
  const int32_t position = args.batch.positions[row];
  uint64_t digest = 0;
  for (int32_t head = 0; head < args.heads; ++head) {
    const int64_t first = int64_t{head} * args.dim;
    const float *x = args.x + row * args.stride + first, *z = args.z + row * args.stride + first;
    const float inverse = InverseRms([x](int64_t j) { return x[j]; }, args.dim, args.eps);
    for (int32_t j = 0; j < args.dim; ++j)
      out[first + j] = tensor::RoundTo<T>(x[j] * inverse * args.weight[j] * Silu(z[j]));
    digest += DigestHash(out + first, args.dim * static_cast<int64_t>(sizeof(T)),
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
  constexpr int kTail = kConvTaps - 1;
  for (int64_t channel = channels.begin; channel < channels.end; ++channel) {
    for (int32_t s = 0; s < args.batch.num_state_rows; ++s) {
      const StateRows& sequence = args.batch.state_rows[s];
      float* const kept = args.tails.Of(sequence.to) + channel;
      float tail[kTail] = {};
      for (int i = 0; i < kTail && sequence.from >= 0; ++i)
        tail[i] = args.tails.Of(sequence.from)[i * int64_t{args.channels} + channel];
      for (int32_t t = 0; t < sequence.num_rows; ++t) {
        float& x = args.x[(sequence.first_row + t) * args.stride + channel];
        const float input = x;
        float sum = args.weight[channel] * tail[0];
        for (int i = 1; i < kConvTaps; ++i)
          sum = std::fma(args.weight[i * int64_t{args.channels} + channel],
                         i < kTail ? tail[i] : input, sum);
        x = Silu(sum);
        for (int i = 0; i + 1 < kTail; ++i) tail[i] = tail[i + 1];
        tail[kTail - 1] = input;
      }
      for (int i = 0; i < kTail; ++i) kept[i * int64_t{args.channels}] = tail[i];
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

void GatedNorm(const GatedNormArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.batch.num_rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    args.dtype == tensor::DType::kF32 ? NormRow<float>(args, row)
                                      : NormRow<tensor::BF16>(args, row);
  }
}

}  // namespace forebay::kernels::ref

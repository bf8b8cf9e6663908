// Layers that keep a state: short_conv, delta_net, mamba2, gated_norm (kernels/delta_net.h).
//
// Bytes: rows once, and each state read and written twice a row. Limit: the chain over rows.
#include "kernels/cuda/pair/kv_rows.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kTaps = 4, kTail = kTaps - 1;  // at most; of fewer the last ones count
constexpr int kPanel = 64, kVector = 16;     // kStatePanel, kStateLanes

FB_DEVICE float* PlaceOf(const StateParams& state, int32_t place) {
  return reinterpret_cast<float*>(state.base + place * state.stride);
}

// A sequence whose state is kept on the way has several runs of rows, each from where the last one
// went; a block takes them all. The end of those that begin with run `first`; `first`: another
// block has it.
FB_DEVICE int32_t EndOfChain(const StepBatch& batch, int32_t first) {
  const auto follows = [&](int32_t run) {
    return batch.state_rows[run].from >= 0 &&
           batch.state_rows[run].from == batch.state_rows[run - 1].to;
  };
  if (first > 0 && follows(first)) return first;
  int32_t end = first + 1;
  while (end < batch.num_state_rows && follows(end)) ++end;
  return end;
}

FB_DEVICE void Convolve(const ShortConvParams& args, const StateRows& rows, int32_t channel) {
  const int none = kTaps - args.taps;
  const int64_t channels = args.channels;
  float tail[kTail], weight[kTaps];
  for (int i = 0; i < kTail; ++i) {
    tail[i] = rows.from < 0 || i < none
                  ? 0.0f
                  : PlaceOf(args.tails, rows.from)[(i - none) * channels + channel];
  }
  for (int i = 0; i < kTaps; ++i)
    weight[i] = i < none ? 0.0f : args.weight[(i - none) * channels + channel];
  for (int32_t t = 0; t < rows.num_rows; ++t) {
    float& x = args.x[(rows.first_row + int64_t{t}) * args.stride + channel];
    const float input = args.gates_at > 0 ? x * (&x)[args.gates_at] : x;
    float sum = 0;
    for (int i = 0; i < kTail; ++i) {
      if (i == none) sum = weight[i] * tail[i];
      if (i > none) sum = gpu::Fma(weight[i], tail[i], sum);
    }
    sum = gpu::Fma(weight[kTail], input, sum);
    if (args.bias != nullptr) sum = sum + args.bias[channel];
    x = args.silu ? SiluOf(sum) : sum;
    for (int i = 0; i + 1 < kTail; ++i) tail[i] = tail[i + 1];
    tail[kTail - 1] = input;
  }
  for (int i = 0; i < kTail; ++i) {
    if (i >= none) PlaceOf(args.tails, rows.to)[(i - none) * channels + channel] = tail[i];
  }
}

// By a block: the head's matrix before the rows, or zeros, to where it goes.
template <typename Args>
FB_DEVICE float* BeginMatrix(const Args& args, const StateRows& rows, int32_t head) {
  float* const matrix = PlaceOf(args.matrices, rows.to) + head * args.matrix_floats;
  const float* const before =
      rows.from < 0 ? nullptr : PlaceOf(args.matrices, rows.from) + head * args.matrix_floats;
  if (before != matrix) {
    for (int64_t i = gpu::Tid(); i < args.matrix_floats; i += gpu::Threads())
      matrix[i] = before == nullptr ? 0.0f : before[i];
  }
  return matrix;
}

// Column j of `columns` of a matrix of n rows, whose elements lie `width` floats apart.
FB_DEVICE float* ColumnOf(float* matrix, int n, int columns, int j, int* width) {
  const int panel = j / kPanel * kPanel;
  const int rest = (columns - panel + kVector - 1) / kVector * kVector;
  *width = rest < kPanel ? rest : kPanel;
  return matrix + int64_t{panel} * n + j - panel;
}

// x / sqrt(sum of squares + 1e-6) * scale; by one warp.
FB_DEVICE void Direct(const float* x, int n, float scale, float* out) {
  const float sum = SumOfSquares([&](int j) { return x[j]; }, n);
  const float inverse = gpu::Div(1.0f, gpu::Sqrt(sum + 1e-6f));
  for (int j = gpu::Lane(); j < n; j += gpu::kWarpLanes) out[j] = x[j] * inverse * scale;
}

// The rows through one value head; by a block. `q`, `k`: shared, [kMostKeyDim] each.
FB_DEVICE void RunHead(const DeltaNetParams& args, const StateRows& rows, int32_t head, float* q,
                       float* k) {
  const int dk = args.key_dim, dv = args.value_dim;
  const int key_head = head / (args.value_heads / args.key_heads);
  float* const matrix = BeginMatrix(args, rows, head);
  const float scale = gpu::Div(1.0f, gpu::Sqrt(static_cast<float>(dk)));
  for (int32_t t = 0; t < rows.num_rows; ++t) {
    float* const row = args.x + (rows.first_row + int64_t{t}) * args.stride;
    gpu::Sync();
    if (gpu::Warp() == 0) Direct(row + key_head * dk, dk, scale, q);
    if (gpu::Warp() == 1) Direct(row + (args.key_heads + key_head) * dk, dk, 1.0f, k);
    gpu::Sync();
    const float beta = SigmoidOf(row[args.b_at + head]);
    const float decay =
        ExpOf(-(ExpOf(args.a_log[head]) * SoftplusOf(row[args.a_at + head] + args.dt_bias[head])));
    float* const v = row + 2 * args.key_heads * dk + head * dv;
    for (int j = gpu::Tid(); j < dv; j += gpu::Threads()) {
      int width;
      float* const column = ColumnOf(matrix, dk, dv, j, &width);
      float known = 0, out = 0;
      for (int i = 0; i < dk; ++i) {
        const float decayed = column[i * width] * decay;
        column[i * width] = decayed;
        known = gpu::Fma(k[i], decayed, known);
      }
      const float change = beta * (v[j] - known);
      for (int i = 0; i < dk; ++i) {
        const float changed = gpu::Fma(k[i], change, column[i * width]);
        column[i * width] = changed;
        out = gpu::Fma(q[i], changed, out);
      }
      v[j] = out;
    }
  }
}

// The rows through one head of Mamba-2; by a block.
FB_DEVICE void RunMamba(const Mamba2Params& args, const StateRows& rows, int32_t head) {
  const int n = args.state_dim, p = args.head_dim, group = head / (args.heads / args.groups);
  float* const matrix = BeginMatrix(args, rows, head);
  gpu::Sync();
  for (int32_t t = 0; t < rows.num_rows; ++t) {
    float* const row = args.x + (rows.first_row + int64_t{t}) * args.stride;
    const float* const c = row + group * n;
    const float* const b = row + (args.groups + group) * n;
    float* const x = row + 2 * args.groups * n + head * p;
    const float plain = SoftplusOf(row[args.dt_at + head] + args.dt_bias[head]);
    const float step = plain < args.least_step ? args.least_step : plain;
    const float decay = ExpOf(-(ExpOf(args.a_log[head]) * step));
    for (int j = gpu::Tid(); j < p; j += gpu::Threads()) {
      int width;
      float* const column = ColumnOf(matrix, n, p, j, &width);
      const float change = step * x[j];
      float out = 0;
      for (int i = 0; i < n; ++i) {
        const float changed = gpu::Fma(b[i], change, column[i * width] * decay);
        column[i * width] = changed;
        out = gpu::Fma(c[i], changed, out);
      }
      x[j] = gpu::Fma(args.d[head], x[j], out);
    }
  }
}

template <typename T>
FB_DEVICE void NormGated(const GatedNormParams& args, uint64_t* shared) {
  const int64_t row = gpu::BlockX();
  const int32_t position = args.batch.positions[row];
  const int32_t gate = args.gate, size = args.normed_heads * args.dim;
  T* const all = As<T>(args.out) + row * args.heads * args.dim;
  uint64_t hashes = 0;
  for (int norm = gpu::Warp(); norm < args.heads / args.normed_heads; norm += gpu::Warps()) {
    const float* const x = args.x + row * args.stride + norm * size;
    const float* const z = args.z + row * args.stride + norm * size;
    const float* const weight = args.weight + (gate == kGateBeforeNorm ? norm * size : 0);
    T* const out = all + norm * size;
    float inverse = 1;
    if (gate == kGateBehindNorm)
      inverse = InverseRmsOf([&](int j) { return x[j]; }, size, args.eps);
    if (gate == kGateBeforeNorm)
      inverse = InverseRmsOf([&](int j) { return x[j] * SiluOf(z[j]); }, size, args.eps);
    const auto value = [&](int j) {
      if (gate == kGateWithoutNorm) return RoundTo<T>(x[j] * z[j]);
      if (gate == kGateBeforeNorm) return RoundTo<T>(x[j] * SiluOf(z[j]) * inverse * weight[j]);
      return RoundTo<T>(x[j] * inverse * weight[j] * SiluOf(z[j]));
    };
    for (int head = 0; head < args.normed_heads; ++head) {
      const int first = head * args.dim, number = args.first_head + norm * args.normed_heads + head;
      hashes += PutHashed<T>(
          args.dim, DigestKeyOf(kValueDigest, args.digest.layer_index, number, position),
          [&](int j) { return value(first + j); },
          [&](int j, T rounded) { out[first + j] = rounded; });
    }
  }
  if (args.digest.digests == nullptr) return;
  const uint64_t sum = BlockSum(gpu::Lane() == 0 ? hashes : 0, shared);
  if (gpu::Tid() != 0) return;
  const SequenceRows& sequence = args.batch.sequences[args.batch.row_sequence[row]];
  const uint32_t entry =
      args.batch.block_tables[sequence.table_row * args.batch.table_stride + position / kPositions];
  KeepDigest(args.digest, entry, position % kPositions, sum);
}

}  // namespace

// A thread a channel and chain of runs.
FB_KERNEL(pair_short_conv, ShortConvParams, kRowThreads) {
  const int32_t channel = gpu::BlockY() * gpu::Threads() + gpu::Tid();
  if (channel >= args.channels) return;
  const int32_t end = EndOfChain(args.batch, gpu::BlockX());
  for (int32_t run = gpu::BlockX(); run < end; ++run)
    Convolve(args, args.batch.state_rows[run], channel);
}

// A block a value head and chain of runs.
FB_KERNEL(pair_delta_net, DeltaNetParams, kStateThreads) {
  FB_SHARED(float, directions);  // [2, kMostKeyDim]
  const int32_t end = EndOfChain(args.batch, gpu::BlockX());
  for (int32_t run = gpu::BlockX(); run < end; ++run) {
    gpu::Sync();
    RunHead(args, args.batch.state_rows[run], gpu::BlockY(), directions, directions + kMostKeyDim);
  }
}

// A block a head and chain of runs.
FB_KERNEL(pair_mamba2, Mamba2Params, kStateThreads) {
  const int32_t end = EndOfChain(args.batch, gpu::BlockX());
  for (int32_t run = gpu::BlockX(); run < end; ++run) {
    gpu::Sync();
    RunMamba(args, args.batch.state_rows[run], gpu::BlockY());
  }
}

FB_KERNEL(pair_gated_norm, GatedNormParams, kRowThreads) {
  FB_SHARED(uint64_t, shared);  // a word a warp
  FB_FOR_ELEMENT(args.element, NormGated, args, shared);
}

}  // namespace forebay::kernels::cuda

// Layers that keep a state: short_conv, delta_net, gated_norm (kernels/delta_net.h).
//
// Bytes: rows once, and each state read and written twice a row. Limit: the chain over rows.
#include "kernels/cuda/pair/kv_rows.h"

namespace forebay::kernels::cuda {
namespace {

constexpr int kTaps = 4, kTail = kTaps - 1;
constexpr int kPanel = 64, kVector = 16;  // kStatePanel, kStateLanes

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
  float tail[kTail];
  for (int i = 0; i < kTail; ++i) {
    tail[i] =
        rows.from < 0 ? 0.0f : PlaceOf(args.tails, rows.from)[i * int64_t{args.channels} + channel];
  }
  float weight[kTaps];
  for (int i = 0; i < kTaps; ++i) weight[i] = args.weight[i * int64_t{args.channels} + channel];
  for (int32_t t = 0; t < rows.num_rows; ++t) {
    float& x = args.x[(rows.first_row + int64_t{t}) * args.stride + channel];
    const float input = x;
    float sum = weight[0] * tail[0];
    for (int i = 1; i < kTail; ++i) sum = gpu::Fma(weight[i], tail[i], sum);
    x = SiluOf(gpu::Fma(weight[kTail], input, sum));
    for (int i = 0; i + 1 < kTail; ++i) tail[i] = tail[i + 1];
    tail[kTail - 1] = input;
  }
  for (int i = 0; i < kTail; ++i)
    PlaceOf(args.tails, rows.to)[i * int64_t{args.channels} + channel] = tail[i];
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
  float* const matrix = PlaceOf(args.matrices, rows.to) + head * args.matrix_floats;
  const float* const before =
      rows.from < 0 ? nullptr : PlaceOf(args.matrices, rows.from) + head * args.matrix_floats;
  if (before != matrix) {
    for (int64_t i = gpu::Tid(); i < args.matrix_floats; i += gpu::Threads())
      matrix[i] = before == nullptr ? 0.0f : before[i];
  }
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
      const int panel = j / kPanel * kPanel;
      const int rest = (dv - panel + kVector - 1) / kVector * kVector;
      const int width = rest < kPanel ? rest : kPanel;
      float* const column = matrix + int64_t{panel} * dk + j - panel;
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

template <typename T>
FB_DEVICE void NormGated(const GatedNormParams& args, uint64_t* shared) {
  const int64_t row = gpu::BlockX();
  const int32_t position = args.batch.positions[row];
  T* const out = As<T>(args.out) + row * args.heads * args.dim;
  uint64_t hashes = 0;
  for (int head = gpu::Warp(); head < args.heads; head += gpu::Warps()) {
    const int first = head * args.dim;
    const float* const x = args.x + row * args.stride + first;
    const float* const z = args.z + row * args.stride + first;
    const float inverse = InverseRmsOf([&](int j) { return x[j]; }, args.dim, args.eps);
    hashes += PutHashed<T>(
        args.dim,
        DigestKeyOf(kValueDigest, args.digest.layer_index, args.first_head + head, position),
        [&](int j) { return RoundTo<T>(x[j] * inverse * args.weight[j] * SiluOf(z[j])); },
        [&](int j, T value) { out[first + j] = value; });
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
  const int32_t channel = gpu::BlockX() * gpu::Threads() + gpu::Tid();
  if (channel >= args.channels) return;
  const int32_t end = EndOfChain(args.batch, gpu::BlockY());
  for (int32_t run = gpu::BlockY(); run < end; ++run)
    Convolve(args, args.batch.state_rows[run], channel);
}

// A block a value head and chain of runs.
FB_KERNEL(pair_delta_net, DeltaNetParams, kStateThreads) {
  FB_SHARED(float, directions);  // [2, kMostKeyDim]
  const int32_t end = EndOfChain(args.batch, gpu::BlockY());
  for (int32_t run = gpu::BlockY(); run < end; ++run) {
    gpu::Sync();
    RunHead(args, args.batch.state_rows[run], gpu::BlockX(), directions, directions + kMostKeyDim);
  }
}

FB_KERNEL(pair_gated_norm, GatedNormParams, kRowThreads) {
  FB_SHARED(uint64_t, shared);  // a word a warp
  FB_FOR_ELEMENT(args.element, NormGated, args, shared);
}

}  // namespace forebay::kernels::cuda

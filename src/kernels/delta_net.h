// Layers that keep a state of a sequence whatever its length: a short convolution over the last
// inputs, the gated delta rule (arXiv 2412.06464) or Mamba-2's (arXiv 2405.21060) where there is
// one, and the gate and norm of what it gives. Exact by position: a row's result follows from the
// rows before it in its sequence, in one order, so prompts, chunks and decoding give the same
// bytes. StepBatch::state_rows says in which place the state lies before rows and where it goes.
//
// A place of the state has, of each layer:
//   tail    [taps - 1, channels] fp32: the convolution's last inputs, the oldest first
//   matrix  [value_heads][panels of 64 columns of value_dim][key_dim][columns of the panel] fp32;
//           the last panel's columns are padded to whole vectors of 16; of convolutions alone none
#pragma once

#include "device/device.h"
#include "kernels/state_sizes.h"
#include "kernels/step_batch.h"

namespace forebay::kernels {

struct KernelSet;

// Part of the places of a layer: bytes of place p begin at base + p * stride.
struct StateLayer {
  std::byte* base = nullptr;
  int64_t stride = 0;

  float* Of(int32_t place) const { return reinterpret_cast<float*>(base + place * stride); }
};

// y[t] = silu(sum over taps i of weight[i] x[t - taps + 1 + i], + bias), a chain from the oldest
// tap on, in fp32; in place. With gates x is x * gate, and without silu y is the sum. The places
// keep the last inputs.
struct ShortConvArgs {
  StepBatch batch;
  float* x = nullptr;  // [rows, stride], of which the first `channels`
  int64_t stride = 0;
  int32_t channels = 0;
  int32_t taps = kConvTaps;
  const float* weight = nullptr;  // [taps, channels]
  const float* bias = nullptr;    // [channels]; null: none
  int32_t gates_at = 0;           // where a row's `channels` gates begin; 0: it has none
  bool silu = true;
  StateLayer tails;
};
void ShortConv(device::Stream& stream, const KernelSet& kernels, const ShortConvArgs& args);

// Of each value head, with q, k of its key head divided by sqrt(sum of squares + 1e-6), q then by
// sqrt(key_dim), beta = sigmoid(b) and decay = exp(-exp(a_log) softplus(a + dt_bias)):
//   S = S decay; d = beta (v - S^T k); S = S + k d^T; o = S^T q
// in fp32, each product a chain over the key's index ascending. Sums of squares as in norm.h.
struct DeltaNetArgs {
  StepBatch batch;
  // [rows, stride]: q of all key heads, k of them, v of all value heads; at b_at and a_at a value a
  // value head. o takes the place of v.
  float* x = nullptr;
  int64_t stride = 0;
  int32_t b_at = 0, a_at = 0;
  int32_t key_heads = 0, value_heads = 0;  // a key head serves consecutive value heads
  int32_t key_dim = 0, value_dim = 0;
  const float* a_log = nullptr;    // [value_heads]
  const float* dt_bias = nullptr;  // [value_heads]
  StateLayer matrices;
};
void DeltaNet(device::Stream& stream, const KernelSet& kernels, const DeltaNetArgs& args);

// Of each head, with B and C of its group, step = max(softplus(dt + dt_bias), least_step) and decay
// = exp(-exp(a_log) step):
//   S = S decay + B (step x)^T; y = S^T C + d x
// in fp32, each product a chain over the state's index ascending.
struct Mamba2Args {
  StepBatch batch;
  // [rows, stride]: C of all groups, B of them, x of all heads; at dt_at a value a head. y takes
  // the place of x.
  float* x = nullptr;
  int64_t stride = 0;
  int32_t dt_at = 0;
  int32_t groups = 0, heads = 0;  // a group serves consecutive heads
  int32_t state_dim = 0, head_dim = 0;
  float least_step = 0;
  const float* a_log = nullptr;    // [heads]
  const float* dt_bias = nullptr;  // [heads]
  const float* d = nullptr;        // [heads]
  StateLayer matrices;             // [heads] of key_dim = state_dim and value_dim = head_dim
};
void Mamba2(device::Stream& stream, const KernelSet& kernels, const Mamba2Args& args);

// What becomes of what a layer gives and its gate z.
enum class StateGate : uint8_t {
  kBehindNorm,   // x / rms(x) * weight * silu(z)
  kBeforeNorm,   // g / rms(g) * weight, g = x silu(z)
  kWithoutNorm,  // x z
};

// out = round(that), and the digests of the rows, head by head.
struct GatedNormArgs {
  StepBatch batch;  // with the tables of the KV group whose digests these are
  tensor::DType dtype = tensor::DType::kBF16;  // T
  const float* x = nullptr;                    // [rows, stride]: heads of `dim`
  const float* z = nullptr;                    // likewise
  int64_t stride = 0;
  StateGate gate = StateGate::kBehindNorm;
  int32_t heads = 0, dim = 0;
  int32_t normed_heads = 1;       // kBeforeNorm: so many consecutive heads go through one norm
  int32_t first_head = 0;         // the first one's number in the layer, for digests
  const float* weight = nullptr;  // [dim]; kBeforeNorm: [heads * dim]
  float eps = 0;
  std::byte* out = nullptr;  // [rows, heads * dim] of T
  // Per position of each block, or null: out, keyed by layer, head and position.
  uint64_t* digests = nullptr;
  int32_t layer_index = 0;
  bool first_layer = false;  // writes the digests, and does not add to them
};
void GatedNorm(device::Stream& stream, const KernelSet& kernels, const GatedNormArgs& args);

}  // namespace forebay::kernels

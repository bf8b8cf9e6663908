// Layers that keep a state of a sequence whatever its length: a short convolution over the last
// inputs, the gated delta rule (arXiv 2412.06464), and the norm of what it gives. Exact by
// position: a row's result follows from the rows before it in its sequence, in one order, so
// prompts, chunks and decoding give the same bytes. StepBatch::state_rows says in which place the
// state lies before rows and where it goes.
//
// A place of the state has, of each layer:
//   tail    [kConvTaps - 1, channels] fp32: the convolution's last inputs, the oldest first
//   matrix  [value_heads][panels of 64 columns of value_dim][key_dim][columns of the panel] fp32;
//           the last panel's columns are padded to whole vectors of 16
#pragma once

#include "device/device.h"
#include "kernels/step_batch.h"

namespace forebay::kernels {

struct KernelSet;

inline constexpr int kConvTaps = 4;
inline constexpr int kStateLanes = 16, kStatePanel = 64;
inline constexpr int kMaxStateKeyDim = 256;

// Part of the places of a layer: bytes of place p begin at base + p * stride.
struct StateLayer {
  std::byte* base = nullptr;
  int64_t stride = 0;

  float* Of(int32_t place) const { return reinterpret_cast<float*>(base + place * stride); }
};

// Floats of a head's matrix.
constexpr int64_t StateMatrixFloats(int64_t key_dim, int64_t value_dim) {
  return key_dim * ((value_dim + kStateLanes - 1) / kStateLanes * kStateLanes);
}

// y[t] = silu(sum over taps i of weight[i] x[t - 3 + i]), a chain from the oldest tap on, in fp32;
// in place. The places keep the last inputs.
struct ShortConvArgs {
  StepBatch batch;
  float* x = nullptr;  // [rows, stride], of which the first `channels`
  int64_t stride = 0;
  int32_t channels = 0;
  const float* weight = nullptr;  // [kConvTaps, channels]
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

// out = round(x / rms(x) * weight * silu(z)) of each head, and the digests of the rows.
struct GatedNormArgs {
  StepBatch batch;  // with the tables of the KV group whose digests these are
  tensor::DType dtype = tensor::DType::kBF16;  // T
  const float* x = nullptr;                    // [rows, stride]: heads of `dim`
  const float* z = nullptr;                    // likewise
  int64_t stride = 0;
  int32_t heads = 0, dim = 0;
  int32_t first_head = 0;         // the first one's number in the layer, for digests
  const float* weight = nullptr;  // [dim]
  float eps = 0;
  std::byte* out = nullptr;  // [rows, heads * dim] of T
  // Per position of each block, or null: out, keyed by layer, head and position.
  uint64_t* digests = nullptr;
  int32_t layer_index = 0;
  bool first_layer = false;  // writes the digests, and does not add to them
};
void GatedNorm(device::Stream& stream, const KernelSet& kernels, const GatedNormArgs& args);

}  // namespace forebay::kernels

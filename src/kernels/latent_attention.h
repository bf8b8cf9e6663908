// Multi-head latent attention (arXiv 2405.04434, section 2.1) beside its linear layers and
// attention itself (kernels/attention.h). The cache holds, a position, the latent and one key that
// is turned by rope, for all heads: a KvLayout of one head whose key is [latent, turned key] and
// whose value is the latent (values_in_keys).
//
// A head of a query is [plain, turned]: `plain` elements that meet the latent through the head's
// projection, and those that meet the turned key. In the absorbed form the plain part goes through
// that projection itself and becomes [latent], so that all heads attend to the cache as it is.
#pragma once

#include "device/device.h"
#include "kernels/kv_layout.h"
#include "kernels/step_batch.h"

namespace forebay::kernels {

struct KernelSet;

// From the fp32 projections of the step's rows: the latent after its RMS norm (as RmsNorm) and the
// key after rope, rounded to T, go to the KV blocks of each row's position; queries, their turned
// part after rope, rounded to T, to `q`; that part again to the end of each head of `absorbed`.
// Rope is on halves, as in RopeKvArgs. If digests are asked for, one hash of the rounded
// [latent, turned key], that of a key of head 0, is added to the position's (set by the first
// layer of a step).
struct LatentKvArgs {
  StepBatch batch;
  KvLayout layout;  // one head, values_in_keys; its rope is key_dim - value_dim wide
  KvLayer layer;
  const float* kv = nullptr;       // [rows, key_dim]
  const float* kv_norm = nullptr;  // [value_dim]
  float norm_eps = 0;
  const float* queries = nullptr;  // [rows, heads, plain + turned]
  std::byte* q = nullptr;          // the same of T
  std::byte* absorbed = nullptr;   // [rows, heads, key_dim] of T
  int32_t heads = 0, plain = 0;
  const float* rope_cos = nullptr;  // [positions, turned / 2] fp32, scaled
  const float* rope_sin = nullptr;
  uint64_t* digests = nullptr;  // as in RopeKvArgs
  int32_t layer_index = 0;
  bool first_layer = false;

  int32_t turned() const { return layout.key_dim - layout.value_dim; }
};
void LatentKv(device::Stream& stream, const KernelSet& kernels, const LatentKvArgs& args);

// The expanded form: K and V are made of the latents by head, for queries as they are. It takes
// whole blocks; what lies in positions that nobody has written yet may be anything, and comes out
// in the same positions alone.

// Row i * 32 + s of `out` is [latent, turned key] of slot s of block blocks[i].
struct GatherLatentsArgs {
  KvLayout layout;  // as in LatentKvArgs
  KvLayer layer;
  const uint32_t* blocks = nullptr;  // [num_blocks]: entries of block tables
  int32_t num_blocks = 0;
  std::byte* out = nullptr;  // [num_blocks * 32, key_dim] of T
};
void GatherLatents(device::Stream& stream, const KernelSet& kernels, const GatherLatentsArgs& args);

// K and V of gathered rows into blocks that lie one after another: a head's key is [plain, turned],
// of which the turned part is that of all heads.
struct StoreExpandedArgs {
  KvLayout layout;              // kv_heads: all heads; V is stored
  std::byte* blocks = nullptr;  // [num_blocks, LayerBytes()]
  int32_t num_blocks = 0;
  const std::byte* keys = nullptr;     // [num_blocks * 32, heads, plain] of T
  const std::byte* latents = nullptr;  // [num_blocks * 32, latent_dim]: ends with the turned key
  const std::byte* values = nullptr;   // [num_blocks * 32, heads, value_dim]
  int32_t latent_dim = 0, plain = 0;

  int32_t turned() const { return layout.key_dim - plain; }
};
void StoreExpanded(device::Stream& stream, const KernelSet& kernels, const StoreExpandedArgs& args);

}  // namespace forebay::kernels

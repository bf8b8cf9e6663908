// Multi-head latent attention (arXiv 2405.04434, section 2.1) beside its linear layers and
// attention itself (kernels/attention.h). Per position the cache holds the latent and one rotated
// key for all heads: a KvLayout of one head whose key is [latent, rotated key] and whose value is
// the latent (values_in_keys).
//
// A head of a query is [plain, rotated]: `plain` elements that meet the latent through the head's
// projection, and elements that meet the rotated key. In the absorbed form the plain part passes
// through that projection and becomes [latent], so all heads attend to the cache directly.
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
  // 1: another rank has the same latents and keeps their hashes; this one adds 0.
  int32_t digested_elsewhere = 0;
  int32_t layer_index = 0;
  bool first_layer = false;

  int32_t turned() const { return layout.key_dim - layout.value_dim; }
};
void LatentKv(device::Stream& stream, const KernelSet& kernels, const LatentKvArgs& args);

// The expanded form: K and V are computed from the latents by head, for unchanged queries. It takes
// whole blocks. Unwritten positions may hold anything, and affect only the same positions of the
// output.

// Row i * 32 + s of `out` is [latent, turned key] of slot s of block blocks[i].
struct GatherLatentsArgs {
  KvLayout layout;  // as in LatentKvArgs
  KvLayer layer;
  const uint32_t* blocks = nullptr;  // [num_blocks]: entries of block tables
  int32_t num_blocks = 0;
  std::byte* out = nullptr;  // [num_blocks * 32, key_dim] of T
};
void GatherLatents(device::Stream& stream, const KernelSet& kernels, const GatherLatentsArgs& args);

// K and V of gathered rows into contiguous blocks: a head's key is [plain, rotated], and the
// rotated part is that of all heads.
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

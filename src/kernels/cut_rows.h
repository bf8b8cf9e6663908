// RopeKv (kernels/attention.h) in two halves, for steps whose rows are cut over ranks. The rank
// with a row in its linear layers rounds q, k and v of all heads and lays them out by the ranks
// that attend with them. The rank that attends with a head writes K and V of all rows into its
// cache. Together they give the bytes of RopeKv.
#pragma once

#include "device/device.h"
#include "kernels/kv_layout.h"
#include "kernels/step_batch.h"

namespace forebay::kernels {

struct KernelSet;

inline constexpr int kMaxReaders = 8;

// Rows of q, k and v, as RopeKvArgs says. For each reader: [num_rows, heads, head_dim] of q, then
// [num_rows, 2, kv_heads, head_dim] with a row's k heads before its v heads.
struct RopeRowsArgs {
  struct Reader {
    std::byte* out = nullptr;           // elements are T
    int32_t first_head = 0, heads = 0;  // among those in qkv
    int32_t first_kv_head = 0, kv_heads = 0;
  };

  tensor::DType dtype = tensor::DType::kBF16;  // T
  int32_t num_rows = 0;
  const int32_t* positions = nullptr;  // [num_rows]
  // [num_rows, (heads + 2 kv_heads) * head_dim] fp32: q heads, k heads, v heads
  const float* qkv = nullptr;
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  const float* q_norm = nullptr;  // as in RopeKvArgs, to rope_sin
  const float* k_norm = nullptr;
  float norm_eps = 0;
  bool norm_after = false;
  bool v_norm = false;
  const float* q_scale = nullptr;
  const float* rope_cos = nullptr;
  const float* rope_sin = nullptr;
  int32_t num_readers = 0;
  Reader readers[kMaxReaders];
};
void RopeRows(device::Stream& stream, const KernelSet& kernels, const RopeRowsArgs& args);

// Rows that RopeRows has rounded into the KV blocks of each row's position, and their digests.
struct StoreKvArgs {
  StepBatch batch;
  KvLayout layout;
  KvLayer layer;
  const std::byte* kv = nullptr;  // [rows, 2, kv_heads, head_dim] of T
  uint64_t* digests = nullptr;    // as in RopeKvArgs, to first_layer
  int32_t layer_index = 0;
  int32_t first_kv_head = 0;
  int32_t digested_elsewhere = 0;
  bool first_layer = false;
};
void StoreKv(device::Stream& stream, const KernelSet& kernels, const StoreKvArgs& args);

}  // namespace forebay::kernels

// What the functions of the sets share: how operations' arguments become kernels' parameters.
#pragma once

#include <algorithm>

#include "device/cuda/launch_context.h"
#include "kernels/attention.h"
#include "kernels/cuda/pair/params.h"
#include "kernels/cuda/registry.h"

namespace forebay::kernels::cuda::set {

using device::LaunchShape;

inline constexpr int kWarpLanes = 32;

inline Element ElementOf(tensor::DType dtype) {
  return dtype == tensor::DType::kF32 ? Element::kF32 : Element::kBF16;
}

inline const device::LaunchContext& LaunchContextOf(const device::WorkerContext& context) {
  return static_cast<const device::LaunchContext&>(context);
}

// As kernels get an address of control memory.
template <typename T>
T* OnDevice(const device::WorkerContext& context, T* address) {
  return LaunchContextOf(context).OnDevice(address);
}

inline StepBatch OnDevice(const device::WorkerContext& context, StepBatch batch) {
  const auto translate = [&](auto** array) { *array = OnDevice(context, *array); };
  translate(&batch.tokens);
  translate(&batch.positions);
  translate(&batch.types);
  translate(&batch.row_sequence);
  translate(&batch.sequences);
  translate(&batch.state_rows);
  translate(&batch.block_tables);
  translate(&batch.logit_rows);
  translate(&batch.sampled);
  // Kernels have one group's tables, and rows of one form.
  std::ranges::fill(batch.group_tables, nullptr);
  batch.forms = nullptr;
  return batch;
}

// Looks the kernel up once a call site: `name` is a literal of it.
#define FB_LAUNCH(name, shape, params)                           \
  do {                                                           \
    static const device::CudaKernel& kernel = KernelNamed(name); \
    LaunchContextOf(context).Launch(kernel, shape, params);      \
  } while (false)

inline LaunchShape BlockARow(int64_t rows, int shared_bytes = 0) {
  return {.blocks = {static_cast<int>(rows), 1, 1},
          .threads = kRowThreads,
          .shared_bytes = shared_bytes};
}

// Of a kernel that begins with gpu::TakeTurn, which portable code has not.
inline LaunchShape Overlapping(const device::WorkerContext& context, LaunchShape shape) {
  shape.overlaps = LaunchContextOf(context).architecture == 90;
  return shape;
}

inline KvParams KvOf(const KvLayout& layout, const KvLayer& layer) {
  return {.element = ElementOf(layout.dtype),
          .kv_heads = layout.kv_heads,
          .key_dim = layout.key_dim,
          .value_dim = layout.value_dim,
          .values_in_keys = layout.values_in_keys,
          .form = layout.form,
          .codes = static_cast<int32_t>(layout.codes),
          .block_stride = layout.block_stride,
          .layer_bytes = layout.LayerBytes(),
          .head_bytes = layout.HeadBytes(),
          .resident = layer.resident,
          .window = layer.window};
}

template <typename Args>
DigestParams DigestOf(const Args& args) {
  DigestParams digest{
      .digests = args.digests, .layer_index = args.layer_index, .first_layer = args.first_layer};
  if constexpr (requires { args.first_kv_head; }) digest.first_kv_head = args.first_kv_head;
  if constexpr (requires { args.digested_elsewhere; })
    digest.digested_elsewhere = args.digested_elsewhere;
  return digest;
}

}  // namespace forebay::kernels::cuda::set

// Where kernels find a layer's part of a block.
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/kv_layout.h"

namespace forebay::kernels {
namespace {

// KvLayer::Block.
template <typename T>
FB_INLINE T* LayerPart(const KvLayer& layer, const KvLayout& layout, uint32_t entry) {
  const auto index = static_cast<int64_t>(entry & ~kWindowBit);
  if (entry & kWindowBit)
    return reinterpret_cast<T*>(layer.window) + index * layout.kv_heads * layout.HeadElements();
  return reinterpret_cast<T*>(layer.resident + index * layout.block_stride);
}

}  // namespace
}  // namespace forebay::kernels

// Where kernels find a layer's part of a block.
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/kv_layout.h"

namespace forebay::kernels {
namespace {

// KvLayout::HeadBytes. REQUIRES: T is the layout's dtype.
template <typename T>
FB_INLINE int64_t HeadBytes(const KvLayout& layout) {
  const int64_t elements = layout.HeadElements();
  if (layout.codes == KvCodes::kNone) return elements * static_cast<int64_t>(sizeof(T));
  return elements + (layout.codes == KvCodes::kInt8 ? kScaleBytes : 0);
}

// KvLayer::Block, likewise.
template <typename T>
FB_INLINE std::byte* LayerPart(const KvLayer& layer, const KvLayout& layout, uint32_t entry) {
  const auto index = static_cast<int64_t>(entry & ~kWindowBit);
  if (entry & kWindowBit) return layer.window + index * layout.kv_heads * HeadBytes<T>(layout);
  return layer.resident + index * layout.block_stride;
}

}  // namespace
}  // namespace forebay::kernels

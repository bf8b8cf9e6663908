// How keys and values lie in memory. A block holds 32 positions of all layers; a block id is
// logical.
//
//   address of block b, layer l = base(l) + index(b) * stride
//     resident: base(l) = region + l * layer_bytes, and the stride spans all layers
//     in the window: base(l) = the slot that holds layer l now, and the stride is layer_bytes
//   a layer's part of a block: for each KV head, K then V:
//     K [key_dim / 2][32 positions][2]     pairs along key_dim (what q.k chains over)
//     V [16 position pairs][value_dim][2]  pairs along positions (what p.v chains over)
//     scales [2][32] fp32                  by position, of K and then of V; with KvCodes::kInt8
//
// or, in PackedForm::kCuda, K and V as kernels/packed_form.h has them, scales behind likewise.
//
// Elements are of the compute type, or codes of a byte each (kernels/kv_codes.h) in the same order.
// So both products of pairs read whole vectors of 16 outputs x 1 pair, and an AMX B tile is 16 pair
// rows at a stride. Where a layer caches latents (MLA) there is one head, and a value is the first
// value_dim elements of its key: it is not stored again.
#pragma once

#include <cstdint>

#include "kernels/number_format.h"
#include "kernels/packed_form.h"
#include "kv/book/block_tokens.h"
#include "tensor/tensor.h"

namespace forebay::kernels {

using kv::kBlockTokens;
inline constexpr int kPartTokens = 1024;  // absolute borders at which attention is cut
inline constexpr int kMaxKeyDim = 576, kMaxValueDim = 512;
// The scales of a head's part of a block.
inline constexpr int64_t kScaleBytes = 2 * kBlockTokens * static_cast<int64_t>(sizeof(float));

// An entry of a block table: the top bit says window instead of resident, the rest is the index
// there.
inline constexpr uint32_t kWindowBit = 0x80000000u;

// How an element is stored.
enum class KvCodes : uint8_t {
  kNone,  // as a value of the compute type
  kFP8,   // E4M3
  kInt8,  // with a scale a position, head, and K or V
};

// How the layers that share one KvSpec lie in memory.
struct KvLayout {
  tensor::DType dtype = tensor::DType::kBF16;  // kBF16 or kF32
  int32_t kv_heads = 0;
  int32_t key_dim = 0;                   // even
  int32_t value_dim = 0;                 // even
  bool values_in_keys = false;           // V is not stored; value_dim <= key_dim
  PackedForm form = PackedForm::kPairs;  // kCuda: key_dim is value_dim, or values lie in keys
  int64_t block_stride = 0;        // bytes from one block to the next: the parts of all layers
  KvCodes codes = KvCodes::kNone;  // kernels do not read codes where values lie in keys

  // Elements of K and V of one head in one block.
  int64_t HeadElements() const {
    return int64_t{kBlockTokens} * (values_in_keys ? key_dim : key_dim + value_dim);
  }
  cost::NumberFormat format() const {
    return codes == KvCodes::kNone  ? NumberFormatOf(dtype)
           : codes == KvCodes::kFP8 ? cost::NumberFormat::kFP8
                                    : cost::NumberFormat::kInt8;
  }
  int64_t HeadBytes() const {
    if (codes == KvCodes::kNone)
      return HeadElements() * static_cast<int64_t>(tensor::SizeOf(dtype));
    return HeadElements() + (codes == KvCodes::kInt8 ? kScaleBytes : 0);
  }
  int64_t LayerBytes() const { return HeadBytes() * kv_heads; }
};

// Where one layer's blocks lie. The window is null where nothing is streamed through it.
struct KvLayer {
  std::byte* resident = nullptr;
  std::byte* window = nullptr;

  // `layout`: the layer's.
  std::byte* Block(uint32_t entry, const KvLayout& layout) const {
    const auto index = static_cast<int64_t>(entry & ~kWindowBit);
    return (entry & kWindowBit) ? window + index * layout.LayerBytes()
                                : resident + index * layout.block_stride;
  }
};

}  // namespace forebay::kernels

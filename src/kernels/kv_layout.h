// How keys and values lie in memory. A block holds 32 positions of all layers; a block id is logical.
//
//   address of block b, layer l = base(l) + index(b) * block_stride, where base(l) = region + l * layer_bytes
//   a layer's part of a block: for each KV head, K then V:
//     K [head_dim / 2][32 positions][2]   pairs along head_dim (what q.k chains over)
//     V [16 position pairs][head_dim][2]  pairs along positions (what p.v chains over)
//
// So both products read whole vectors of 16 outputs x 1 pair, and an AMX B tile is 16 pair rows at a stride.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace forebay::kernels {

inline constexpr int kBlockTokens = 32;    // positions of a block, and of a step of the online softmax
inline constexpr int kPartTokens = 1024;   // absolute borders at which attention is cut

// An entry of a block table: the top bit says window instead of resident, the rest is the index there.
inline constexpr uint32_t kWindowBit = 0x80000000u;

// Of the layers with one KvSpec.
struct KvLayout {
  tensor::DType dtype = tensor::DType::kBF16;  // kBF16 or kF32
  int32_t kv_heads = 0;
  int32_t head_dim = 0;   // even
  int64_t block_stride = 0;  // bytes from one block to the next: the parts of all layers

  int64_t HeadBytes() const {  // K and V of one head in one block
    return 2ll * kBlockTokens * head_dim * static_cast<int64_t>(tensor::SizeOf(dtype));
  }
  int64_t LayerBytes() const { return HeadBytes() * kv_heads; }
};

// Where one layer's blocks lie. The window is null where nothing is offloaded.
struct KvLayer {
  std::byte* resident = nullptr;
  std::byte* window = nullptr;

  std::byte* Block(uint32_t entry, int64_t block_stride) const {
    std::byte* base = (entry & kWindowBit) ? window : resident;
    return base + static_cast<int64_t>(entry & ~kWindowBit) * block_stride;
  }
};

}  // namespace forebay::kernels

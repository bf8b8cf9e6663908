// Layers whose KV cache is alike form a group: one layout, one block table, one book.
#pragma once

#include <cstdint>
#include <vector>

#include "base/part.h"
#include "kernels/kv_layout.h"
#include "model/config.h"

namespace forebay::model {

// What a layer keeps of a position.
struct KvSpec {
  int64_t token_bytes = 0;  // K and V
  bool by_heads = true;     // whether ranks can share it out by heads
  int32_t window = 0;       // a row sees so many positions, its own included; 0: all

  bool operator==(const KvSpec&) const = default;
};

// The same on every rank but for the layers that it has, and its part of the heads.
struct KvGroup {
  KvSpec spec;
  kernels::KvLayout layout;     // of a block: the layers' parts one after another
  std::vector<int32_t> layers;  // of the rank, ascending, counted from its first; may be none
};

// The groups of the model's layers, in the order of their first ones (at most kernels::kMaxKvGroups), for a rank that has
// `layers` with `kv_heads` heads of each.
std::vector<KvGroup> PlanKvGroups(const ModelConfig& config, tensor::DType dtype, const base::Part& layers, int64_t kv_heads);

// The paged cache that the layer program writes and reads.
struct KvCache {
  struct Group {
    kernels::KvLayout layout;
    uint64_t* digests = nullptr;  // [blocks * 32], or null: not wanted, or the rank has no such layers
  };
  struct Layer {
    kernels::KvLayer bases;
    int32_t group = 0;
    bool first = true;  // of its group
  };
  std::vector<Group> groups;
  std::vector<Layer> layers;
};

// Bytes of a block of every group.
uint64_t KvBlockBytes(const std::vector<KvGroup>& groups, bool digests);
// `num_blocks` of each group, group after group, then the digests. `data`: num_blocks * KvBlockBytes.
KvCache CutKvCache(const std::vector<KvGroup>& groups, int64_t num_blocks, bool digests, std::byte* data);

}  // namespace forebay::model

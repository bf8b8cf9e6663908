// Layers whose KV cache is alike form a group: one layout, one block table, one book. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/part.h"
#include "base/reach.h"
#include "kernels/kv_layout.h"

namespace forebay::kv {

// What a layer keeps of a position.
struct KvSpec {
  int64_t token_bytes = 0;  // K and V; 0: the layer keeps none, and is of no group
  bool by_heads = true;     // whether ranks can share it out by heads
  base::Reach reach;        // what a row sees

  bool operator==(const KvSpec&) const = default;
};

// A layer of the model, and its part of a block on a rank (whose stride is not set).
struct KvLayerPlan {
  KvSpec spec;
  kernels::KvLayout layout;
  base::Part heads;  // the rank's of the layer's KV heads
};

// The same on every rank but for the layers that it has, and its part of the heads.
struct KvGroup {
  KvSpec spec;
  kernels::KvLayout layout;     // a block holds the layers' parts one after another
  base::Part heads;             // the rank's of the layers' KV heads
  std::vector<int32_t> layers;  // the rank's, ascending, counted from its first; may be none
  // Layers that keep states have their digests beside this group's blocks.
  bool digests_states = false;
  // Sequences hold no more blocks at once, whatever their lengths, and the group has no more.
  int32_t most_blocks = INT32_MAX;

  bool has_digests() const { return digests_states || !layers.empty(); }
  // Its blocks in a cache with so many of each group.
  int64_t BlocksOf(int64_t blocks) const { return std::min<int64_t>(blocks, most_blocks); }
};

// The groups of the model's layers in the order of their first layers (at most
// kernels::kMaxKvGroups), for a rank that holds `layers`.
std::vector<KvGroup> PlanKvGroups(std::span<const KvLayerPlan> model, const base::Part& layers);

// Bytes of the digests of a block of a group, where they are wanted.
inline constexpr uint64_t kBlockDigestBytes = kBlockTokens * sizeof(uint64_t);
// Bytes of a block of every group.
uint64_t KvBlockBytes(std::span<const KvGroup> groups, bool digests);
// Bytes of a cache of `blocks` blocks of each group, or as many as it has at most.
uint64_t KvCacheBytes(std::span<const KvGroup> groups, uint64_t blocks, bool digests);
// The largest such number of blocks whose cache takes at most `bytes`.
uint64_t KvBlocksWithin(std::span<const KvGroup> groups, uint64_t bytes, bool digests);

}  // namespace forebay::kv

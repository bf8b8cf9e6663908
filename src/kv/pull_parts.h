// The parts of another replica's KV blocks, and of its layers' states, that a rank pulls. Replicas
// of the same cut exchange whole blocks with the rank of the same place. Otherwise a rank pulls its
// layers and heads from the ranks that hold them. Pure.
//
// A position's digest is a sum over the ranks of a replica, so any rank may hold any summand. Each
// of the giver's strips of digests goes to one taker, and a taker adds the strips of several
// givers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/part.h"
#include "kv/groups.h"
#include "kv/state/layer_states.h"

namespace forebay::kv {

// What a rank has of its replica's KV.
struct KvShare {
  int peer = 0;       // its number in the fabric
  base::Part layers;  // the model's
  std::span<const KvGroup> groups;
  int64_t num_blocks = 0;                  // in its cache, of each group or its most
  std::span<const StateSpec> states = {};  // by layer of the rank; empty: none keeps one
};

// The same bytes of each block of a KV group, or of each place of states: the group behind those.
struct PullPart {
  int peer = 0;
  int32_t group = 0;
  bool digests = false;  // the strip of digests, else that of K and V
  // In the peer's region: where block 0 of the strip begins, and from block to block.
  uint64_t begin = 0, stride = 0;
  uint64_t from = 0, to = 0, bytes = 0;  // in the peer's block, and in the own one

  friend bool operator==(const PullPart&, const PullPart&) = default;
};

// What `takers[taker]`, a rank of a replica with these, pulls from a replica with `givers`, by KV
// group, then of states. REQUIRES: either has every layer and head of the model.
std::vector<PullPart> PullParts(std::span<const KvShare> takers, size_t taker,
                                std::span<const KvShare> givers, bool digests);

}  // namespace forebay::kv

// What one rank of a replica has of a dense model: the replica's tp x pp ranks take a step together. Pure.
//
// Heads follow the leaves of the output projection, FFN columns those of the down projection: a rank owns whole leaves, so
// that its partial sums are nodes of the fixed tree, whatever the degree (8 leaves over 3 ranks: 3, 3, 2).
#pragma once

#include <cstdint>

#include "base/part.h"
#include "base/status.h"
#include "model/config.h"
#include "model/head_map.h"

namespace forebay::model {

inline constexpr base::ErrorCode kShardHeads{"layout_heads"};
inline constexpr base::ErrorCode kShardLeaves{"layout_leaves"};
inline constexpr base::ErrorCode kShardLayers{"layout_layers"};

using base::Part;

// How a replica is cut, and which of its ranks this is.
struct ReplicaCut {
  int tp = 1, pp = 1;
  int tp_rank = 0, stage = 0;

  bool first_stage() const { return stage == 0; }
  bool last_stage() const { return stage == pp - 1; }
};

struct Shard {
  ReplicaCut cut;
  Part layers;
  Part heads, kv_heads;              // logical ones; a KV head may lie on several ranks
  int32_t kv_copies = 0;             // so many of the first KV heads are the rank's before, too
  Part output_leaves, down_leaves;   // of the two projections' LeafBorders
  Part intermediate;                 // columns of gate and up, inputs of down
  Part vocab;                        // whole chunks of 1,024, for the last chunk what there is of it; may be empty
};

// Whether the model can be cut so: kShardLeaves (tp against the leaves of a projection), kShardHeads (heads of a rank that
// do not share its KV heads evenly), kShardLayers (layers against pp). Messages name both numbers.
base::Status CheckCut(const ModelConfig& config, int tp, int pp);
// REQUIRES: CheckCut is OK.
Shard ShardOf(const ModelConfig& config, const ReplicaCut& cut);
// The shard's `vocab` alone.
Part VocabOf(const ModelConfig& config, int tp, int tp_rank);
// Heads over the tp ranks of a replica. REQUIRES: CheckCut is OK.
HeadMap TpHeadMap(const ModelConfig& config, int tp);

}  // namespace forebay::model

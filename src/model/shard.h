// One rank's part of a model; the tp x pp ranks of a replica take a step together.
// Pure.
//
// Heads follow the leaves of the output projection, FFN columns those of the down projection: a
// rank owns whole leaves, so that its partial sums are nodes of the fixed tree, whatever the degree
// (8 leaves over 3 ranks: 3, 3, 2). Layers with state have leaves, value heads and key heads of
// their own. Each routed expert is one leaf, so it owns whole experts. If
// the replica is cut along sp too, a rank computes linear layers with the leaves of a run of blocks
// (model/modes.h), and attends with its own block's heads.
#pragma once

#include <cstdint>
#include <vector>

#include "base/part.h"
#include "base/status.h"
#include "model/config.h"
#include "model/head_map.h"
#include "model/modes.h"

namespace forebay::model {

inline constexpr base::ErrorCode kShardHeads{"layout_heads"};
inline constexpr base::ErrorCode kShardLeaves{"layout_leaves"};
inline constexpr base::ErrorCode kLayoutExperts{"layout_experts"};
inline constexpr base::ErrorCode kShardLayers{"layout_layers"};

using base::Part;

// How a replica is cut, and which of its ranks this is.
struct ReplicaCut {
  int tp = 1, pp = 1;
  int tp_rank = 0, stage = 0;
  int sp = 1, sp_rank = 0;
  // A KV head that several ranks hold comes to them in two meetings (model/ulysses.h).
  bool two_step_kv = false;

  Degrees degrees() const { return {sp, tp}; }
  int block() const { return tp_rank * sp + sp_rank; }
  bool first_stage() const { return stage == 0; }
  bool last_stage() const { return stage == pp - 1; }
};

// The heads of a block, and the KV heads that these read; of layers with state, value heads and
// key heads.
struct BlockHeads {
  Part heads, kv_heads;
};

struct Shard {
  ReplicaCut cut;
  Degrees mode;  // the mode of this part of the linear layers
  Part layers;
  // Logical heads of the linear layers, and the KV heads that they read.
  Part heads, kv_heads;
  Part output_leaves, down_leaves;  // leaves by the two projections' LeafBorders
  Part state_leaves;                // of the output projection of layers with state
  Part intermediate;                // columns of gate and up, inputs of down
  Part experts;  // its part of a layer's routed ones; empty where the model has none
  // The block's heads, for attention and the cache in all modes. A KV head may lie on several
  // ranks: this many of the first ones belong to the block before, too.
  Part own_heads, own_kv_heads;
  int32_t kv_copies = 0;
  std::vector<BlockHeads>
      run_heads;  // heads of the blocks whose part the linear layers have, in order
  std::vector<BlockHeads> run_state_heads;  // the same of layers with state
  BlockHeads own_state_heads;               // and the block's
  // whole chunks of 1,024, for the last chunk what there is of it; may be empty
  Part vocab;
};

// The part of a layer's routed experts that TP index `index` of `mode` has.
Part ExpertsOf(const ModelConfig& config, const Degrees& layout, const Degrees& mode, int index);

// Whether the model can be cut so: kLayoutExperts (sp x tp against experts), kShardLeaves (against
// the leaves of a projection),
// kShardHeads (heads of a rank that do not share its KV or key heads evenly, a norm over all
// heads),
// kShardLayers (layers against pp). Messages name both numbers.
base::Status CheckCut(const ModelConfig& config, const Degrees& layout, int pp);
// REQUIRES, of all below: CheckCut is OK.
BlockHeads HeadsOfBlock(const ModelConfig& config, const Degrees& layout, int block);
// The same of layers with state, where the model has them.
BlockHeads StateHeadsOfBlock(const ModelConfig& config, const Degrees& layout, int block);
// What a block has of them. REQUIRES: the model has such layers.
DeltaNetShape StateShapeOf(const ModelConfig& config, const BlockHeads& heads);
// In the layout's own mode, and in another one.
Shard ShardOf(const ModelConfig& config, const ReplicaCut& cut);
Shard ShardOf(const ModelConfig& config, const ReplicaCut& cut, const Degrees& mode);
// A block's `vocab` alone.
Part VocabOf(const ModelConfig& config, const Degrees& layout, int block);
// Heads over the sp x tp ranks of a stage: one map for all modes.
HeadMap StageHeadMap(const ModelConfig& config, const Degrees& layout);

}  // namespace forebay::model

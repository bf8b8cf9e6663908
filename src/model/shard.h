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

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
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

  friend auto operator<=>(const ReplicaCut&, const ReplicaCut&) = default;
};

// The heads of a block, and the KV heads that these read; of layers with state, value heads and
// key heads.
struct BlockHeads {
  Part heads, kv_heads;
};

// The KV heads of a shard, in layers that have equally many.
struct KvCut {
  Part kv_heads;      // that the heads of the linear layers read
  Part own_kv_heads;  // the block's, for attention and the cache in all modes
  // A KV head may lie on several ranks: so many of the block's first ones belong to the block
  // before, too.
  int32_t kv_copies = 0;
  // Heads of the blocks whose part the linear layers have, in order.
  std::vector<BlockHeads> run_heads;
};

// A part of a dense block of some width.
struct FfnCut {
  Part leaves;   // of down, by its LeafBorders
  Part columns;  // of gate and up, inputs of down
};

// The KvCut that it is holds for layers with the model's KV heads.
struct Shard : KvCut {
  ReplicaCut cut;
  Degrees mode;  // the mode of this part of the linear layers
  Part layers;
  Part heads;                       // logical heads of the linear layers
  Part output_leaves, down_leaves;  // leaves by the two projections' LeafBorders
  Part state_leaves;                // of the output projection of layers with state
  Part intermediate;                // columns of gate and up, inputs of down
  Part experts;                     // its part of a layer's routed ones; empty: there are none
  Part own_heads;                   // the block's heads, for attention in all modes
  std::optional<KvCut> full_kv;     // of layers with other KV heads (ModelConfig::full_heads)
  // Of layers with state, the heads of run_heads' blocks, and the block's.
  std::vector<BlockHeads> run_state_heads;
  BlockHeads own_state_heads;
  // whole chunks of 1,024, for the last chunk what there is of it; may be empty
  Part vocab;

  // Of a layer of the model.
  const KvCut& KvOf(const ModelConfig& config, int64_t layer) const {
    return full_kv && config.sliding_window[layer] == 0 ? *full_kv : *this;
  }
};

FfnCut FfnCutOf(const Shard& shard, int64_t width);

// The part of a layer's routed experts that TP index `index` of `mode` has.
Part ExpertsOf(const ModelConfig& config, const Degrees& layout, const Degrees& mode, int index);

// Whether the model can be cut so: kLayoutExperts (sp x tp against experts), kShardLeaves (against
// the leaves of a projection),
// kShardHeads (heads of a rank that do not share its KV or key heads evenly, a norm over heads of
// several ranks), kShardLayers (layers against pp, layers that need what others have). Messages
// name both numbers.
base::Status CheckCut(const ModelConfig& config, const Degrees& layout, int pp);
// REQUIRES, of all below: CheckCut is OK.
// `kv_heads`: how many there are in all.
BlockHeads HeadsOfBlock(const ModelConfig& config, const Degrees& layout, int block,
                        int64_t kv_heads);
// The same of layers with state, where the model has them.
BlockHeads StateHeadsOfBlock(const ModelConfig& config, const Degrees& layout, int block);
// What a block has of them. REQUIRES: the model has such layers.
StateShape StateShapeOf(const ModelConfig& config, const BlockHeads& heads);
// In the layout's own mode, and in another one.
Shard ShardOf(const ModelConfig& config, const ReplicaCut& cut);
Shard ShardOf(const ModelConfig& config, const ReplicaCut& cut, const Degrees& mode);
// A block's `vocab` alone.
Part VocabOf(const ModelConfig& config, const Degrees& layout, int block);
// Heads over the sp x tp ranks of a stage, in layers with so many KV heads: one map for all modes.
HeadMap StageHeadMap(const ModelConfig& config, const Degrees& layout, int64_t kv_heads);

}  // namespace forebay::model

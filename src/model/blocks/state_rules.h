// The kinds of layers that keep a state (model/blocks/state_layers.cc): what a rank has of their
// tensors, and how rows pass. A new one is its file in this folder, a StateKind and a row there.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/delta_net.h"
#include "model/blocks/block.h"
#include "model/blocks/kinds.h"

namespace forebay::model {

// A tensor of inputs, and its rows.
struct StateTensor {
  std::string name;
  int64_t rows;
};

// The step's rows through a layer, with a rank's heads.
struct StatePass {
  const BlockContext& context;
  const kernels::StepBatch& batch;
  const LayerWeights& weights;
  const StateConfig& config;
  const StateShape& shape;  // of the rank's heads
  const BlockHeads& heads;
  const kv::StateView::Layer& state;
  float* inputs;  // [rows, shape.inputs()]
  // What the gated norm says of the layer's number, digests and `out`; the rest is the kind's.
  kernels::GatedNormArgs norm;

  // Over the first channels of the inputs.
  kernels::ShortConvArgs Conv() const;
};

struct StateRule {
  // The tensors of inputs, in order; of equal names one behind the other the first alone counts.
  std::vector<StateTensor> (*tensors)(const StateConfig& config, const StateNames& names);
  // Rows of these for a block's heads, in the order of the packed weight: StateShape's channels,
  // gates and numbers.
  void (*add_rows)(const StateConfig& config, const StateNames& names, const BlockHeads& block,
                   std::vector<weights::PlannedRows>* rows);
  // The stored channels of the convolution that a block's heads have, in the order of the inputs.
  std::vector<Part> (*channels)(const StateConfig& config, const BlockHeads& block);
  // Adds the vectors beside the convolution's.
  void (*add_vectors)(const LayerSite& site, LayerPlan* layer);
  void (*pass)(const StatePass& pass);
};

extern const StateRule kDeltaNetRule, kMamba2Rule, kShortConvRule;
const StateRule& RuleOf(StateKind kind);

inline constexpr Role kStateConv{"conv"}, kStateConvBias{"conv_bias"}, kALog{"a_log"},
    kDtBias{"dt_bias"}, kStateThrough{"d"}, kStateNorm{"state_norm"};

// Adds a number a head, as it is stored.
void AddHeadNumbers(const LayerSite& site, const Role& role, const std::string& name,
                    LayerPlan* layer);
// Rows [begin, end) of heads of `dim` rows of a tensor that begin at row `first`.
void AddHeadRows(int32_t tensor, int64_t first, const Part& heads, int64_t dim,
                 std::vector<weights::PlannedRows>* rows);

}  // namespace forebay::model

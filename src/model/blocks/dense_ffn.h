// Feed-forward blocks of one width: down(activation(gate(x)) * up(x)), or without a gate
// down(activation(up(x))). Other rooms name the matrices of the gated one where they cut it or
// compute it elsewhere.
#pragma once

#include "model/layer_table.h"

namespace forebay::model {

struct LayerSite;

inline constexpr Role kGateUp{"gate_up"}, kDown{"down"};
// The matrices of the gated one.
void AddDenseMatrices(const LayerSite& site, LayerPlan* layer);

}  // namespace forebay::model

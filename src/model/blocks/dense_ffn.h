// The gated SiLU feed-forward block: down(silu(gate(x)) * up(x)). Other rooms name its matrices
// where they cut it or compute it elsewhere.
#pragma once

#include "model/layer_table.h"

namespace forebay::model {

inline constexpr Role kGateUp{"gate_up"}, kDown{"down"};

}  // namespace forebay::model

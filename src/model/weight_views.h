// The weights of another mode (model/modes.h) as views: tables over the tiles that the layout's own
// mode has loaded, no further weight bytes. A mode of a higher tp computes with whole leaves, heads
// and panels of the layout's part.
#pragma once

#include "model/decoder_weights.h"

namespace forebay::model {

// Bytes of control memory that ViewWeights cuts.
uint64_t ViewTableBytes(const DecoderPlan& mode);
// `own`, as `loaded` has it, seen as `mode` plans it. REQUIRES: plans of one rank, nothing pooled.
DecoderWeights ViewWeights(const DecoderPlan& own, const DecoderWeights& loaded,
                           const DecoderPlan& mode, device::RegionCutter* tables);

}  // namespace forebay::model

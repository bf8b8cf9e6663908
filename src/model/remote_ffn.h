// Who computes a layer's feed-forward block where the rank does not do it alone: what the layer
// program asks of the ranks' common part. No call blocks.
#pragma once

#include "model/blocks/block.h"

namespace forebay::model {

class RemoteFfn {
 public:
  virtual ~RemoteFfn() = default;

  // Whether the ranks do something together for the layer in a step in which they meet: they pull
  // what they lack of its weights (kGather), or their rows go to the owners of these (kShip).
  virtual bool Takes(int64_t layer) const = 0;
  // Enqueues the meeting of all ranks before each pulls such a layer.
  virtual void Meet(device::Stream& stream) = 0;
  // context.activations.residual += FFN(residual) for the rank's `rows`, of which there may be
  // none; and what the rank owns of the layer for the rows of all others.
  virtual void Run(const BlockContext& context, int64_t layer, int32_t rows) = 0;
};

}  // namespace forebay::model

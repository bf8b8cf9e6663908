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
  // At most the number of layers; equal where the ranks do the same, each on its device, for layers
  // that are equal otherwise. 0: nothing.
  virtual int64_t KindOf(int64_t layer) const = 0;
  // Enqueues the meeting of all ranks before each pulls such a layer.
  virtual void Meet(device::Stream& stream) = 0;
  // context.activations.residual += FFN(residual) for the rank's `rows`, of which there may be
  // none; and what the rank owns of the layer for the rows of all others.
  virtual void Run(const BlockContext& context, int64_t layer, int32_t rows) = 0;

  // What Meet and Run count.
  struct Counts {
    uint64_t rows = 0, sums = 0;  // the exchanges'
    int64_t meetings = 0, bytes = 0;
  };
  virtual Counts counts() const = 0;
  // Counts what was counted since `before` so many times more, for layers that are not enqueued
  // (device::Stream::EndRepeat).
  virtual void Repeat(const Counts& before, int64_t times) = 0;
};

}  // namespace forebay::model

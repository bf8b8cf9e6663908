// The layer program's interface to a feed-forward block that ranks compute together. No call
// blocks.
#pragma once

#include "model/blocks/block.h"

namespace forebay::model {

class RemoteFfn {
 public:
  virtual ~RemoteFfn() = default;

  // Whether ranks act together for the layer in a step that meets: they pull its missing weights
  // (kGather), or ship their rows to the owners (kShip).
  virtual bool Takes(int64_t layer) const = 0;
  // At most the number of layers; equal where the ranks do the same, each on its device, for layers
  // that are equal otherwise. 0: nothing.
  virtual int64_t KindOf(int64_t layer) const = 0;
  // Enqueues the meeting of all ranks before each pulls such a layer.
  virtual void Meet(device::Stream& stream) = 0;
  // context.activations.residual += FFN(residual) for the rank's `rows`, possibly none; and the
  // rank's own part of the layer for the rows of all others.
  virtual void Run(const BlockContext& context, int64_t layer, int32_t rows) = 0;

  // What Meet and Run count.
  struct Counts {
    uint64_t rows = 0, sums = 0;  // the exchanges'
    int64_t meetings = 0, bytes = 0;
  };
  virtual Counts counts() const = 0;
  // Counts what was counted since `before` another `times` times, for layers that are not enqueued
  // (device::Stream::EndRepeat).
  virtual void Repeat(const Counts& before, int64_t times) = 0;
};

}  // namespace forebay::model

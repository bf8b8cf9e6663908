// Where the weights of a layer come from that a rank shares with others: what the layer program
// asks of whoever has them. All calls are the rank's control task's, in the order of the layers,
// and none blocks.
#pragma once

#include "model/layer_table.h"

namespace forebay::model {

class SharedWeights {
 public:
  virtual ~SharedWeights() = default;

  // Whether the matrix is shared: only then it is acquired.
  virtual bool Shares(int64_t layer, const Role& role) const = 0;
  // Whether a step brings something of the layer from elsewhere.
  virtual bool Lacks(int64_t layer) const = 0;
  // A step's uses lie between these two; a weight is valid for what is enqueued between its Acquire
  // and its Release.
  virtual void BeginStep() = 0;
  virtual const weights::PlacedWeight& Acquire(int64_t layer, const Role& role) = 0;
  virtual void Release(int64_t layer, const Role& role) = 0;
  virtual void EndStep() = 0;
};

}  // namespace forebay::model

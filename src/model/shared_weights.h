// The layer program's interface to weights that a rank shares with others.
// The rank's control task calls, in the order of the layers; no call
// blocks.
#pragma once

#include <span>

#include "forebay/step_mode.h"
#include "kernels/route.h"
#include "model/layer_table.h"

namespace forebay::model {

// Experts [begin, end) among those of a layer that the rank computes with.
struct ExpertPart {
  int32_t begin, end;
};

class SharedWeights {
 public:
  virtual ~SharedWeights() = default;

  // Whether the matrix is shared: only then it is acquired.
  virtual bool Shares(int64_t layer, const Role& role) const = 0;
  // Whether a step brings something of the layer from elsewhere.
  virtual bool Lacks(int64_t layer) const = 0;
  // A step's uses lie between these two. A weight is valid for operations enqueued between its
  // Acquire and its Release.
  virtual void BeginStep(const StepMode& mode) = 0;
  virtual const weights::PlacedWeight& Acquire(int64_t layer, const Role& role) = 0;
  virtual void Release(int64_t layer, const Role& role) = 0;
  virtual void EndStep() = 0;

  // Counts of a layer's arriving experts, taken when its rows are grouped; asked before
  // that.
  virtual kernels::LackedExperts Lacked(int64_t) const { return {}; }
  // Where those alone come that have rows (FfnMode::kRouted): pulls them, once what was enqueued
  // before has written the experts' offsets; false: the layer's experts come in any case.
  virtual bool PullWanted(int64_t, const int32_t* /*offsets*/) { return false; }
  // The parts in which the layer's experts arrive, the rank's own first; none: all at once. For a
  // layer in parts Acquire gives the first alone, and operations enqueued from AcquirePart on may
  // use that part too.
  virtual std::span<const ExpertPart> Parts(int64_t) const { return {}; }
  virtual void AcquirePart(int64_t, size_t) {}
};

}  // namespace forebay::model

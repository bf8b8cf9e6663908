// Streams that bring other ranks' results home beside the compute stream: one per rank, as
// far as the device has streams that copy weights. The rank's control task calls; nothing
// blocks.
//
//   compute   ...  Begin  (something else)  Await
//   streams            |  copies  End ------^
#pragma once

#include <memory>
#include <vector>

#include "fabric/fabric.h"

namespace forebay::share {

class ReturnStreams {
 public:
  // From `others` > 0 ranks. Only this class posts on `channel` from this rank to itself.
  ReturnStreams(device::Device& device, fabric::Fabric& fabric, int others, int channel);

  // Copies on the streams start after the work that `compute` has so far. `layer` is the model's.
  void Begin(device::Stream& compute, int64_t layer);
  size_t size() const { return streams_.size(); }
  device::Stream& operator[](size_t i) const { return *streams_[i]; }
  // All copies are enqueued.
  void End();
  // Holds `compute` until they are done, which counts as a wait for peers.
  void Await(device::Stream& compute);

 private:
  fabric::Fabric& fabric_;
  const int channel_;
  std::vector<device::Stream*> streams_;
  std::unique_ptr<device::DeviceEvent> begun_;
  std::vector<std::unique_ptr<device::DeviceEvent>> done_;  // [streams]
  uint64_t returns_ = 0;
};

}  // namespace forebay::share

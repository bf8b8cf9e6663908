#include "share/return_streams.h"

#include <algorithm>

namespace forebay::share {

// From the device's last stream on: the first ones may be busy with weights that come ahead.
ReturnStreams::ReturnStreams(device::Device& device, fabric::Fabric& fabric, int others,
                             int channel)
    : fabric_(fabric), channel_(channel), begun_(device.NewEvent()) {
  const int copies = device.num_weight_copies();
  for (int i = 0; i < std::min(others, copies); ++i) {
    streams_.push_back(&device.weight_copy(copies - 1 - i));
    done_.push_back(device.NewEvent());
  }
}

void ReturnStreams::Begin(device::Stream& compute, int64_t layer) {
  compute.Record(*begun_);
  for (device::Stream* const stream : streams_) {
    stream->SetLayer(layer);
    stream->Wait(*begun_);
  }
}

// The first stream waits for the others, so that one number says that all are done.
void ReturnStreams::End() {
  for (size_t i = 1; i < streams_.size(); ++i) {
    streams_[i]->Record(*done_[i]);
    streams_[0]->Wait(*done_[i]);
  }
  fabric_.Post(*streams_[0], fabric_.rank(), channel_, ++returns_);
}

void ReturnStreams::Await(device::Stream& compute) {
  fabric_.Await(compute, fabric_.rank(), channel_, returns_);
}

}  // namespace forebay::share

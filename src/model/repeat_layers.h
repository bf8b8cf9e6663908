// Equal layers run through here. A real device runs the body once a layer; one that prices shapes
// runs it once for all where that is exact.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "model/step_key.h"

namespace forebay::model {

struct LayerRange {
  int64_t begin, end;
};

// body(layer) enqueues a layer. REQUIRES: the layers are equal but for their weights and caches.
template <typename Body>
void RepeatLayers(device::Stream& stream, const StepKey& key, LayerRange range, Body&& body) {
  for (int64_t layer = range.begin; layer < range.end;) {
    stream.BeginRepeat(range.end - layer, Packed(key));
    body(layer);
    layer += stream.EndRepeat();
  }
}

}  // namespace forebay::model

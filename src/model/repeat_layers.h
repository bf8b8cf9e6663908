// Equal layers run through here. A real device runs the body once a layer; one that prices shapes
// runs it once for all where that is exact.
#pragma once

#include <cstdint>

#include "device/device.h"
#include "model/step_key.h"

namespace forebay::model {

struct LayerRange {
  int64_t begin, end;
  int64_t before = 0;  // layers of the model that other ranks have, before these
};

// body(layer) enqueues a layer; skipped(layers) is told where what it counts stands for so many
// more. REQUIRES: the layers are equal but for their weights and caches.
template <typename Body, typename Skipped>
void RepeatLayers(device::Stream& stream, const StepKey& key, LayerRange range, Body&& body,
                  Skipped&& skipped) {
  for (int64_t layer = range.begin; layer < range.end;) {
    stream.SetLayer(range.before + layer);
    stream.BeginRepeat(range.end - layer, Packed(key));
    body(layer);
    const int64_t bodies = stream.EndRepeat();
    if (bodies > 1) skipped(bodies - 1);
    layer += bodies;
  }
  stream.SetLayer(-1);
}

}  // namespace forebay::model

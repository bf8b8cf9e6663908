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

// body(layer) enqueues a layer. Where one body of `period` layers stands for others too,
// repeat(before, others) is told, with what count() said before it. REQUIRES: the layers come again
// after so many, but for their weights and caches; whole periods.
template <typename Body, typename Count, typename Repeat>
void RepeatLayers(device::Stream& stream, const StepKey& key, LayerRange range, int64_t period,
                  Body&& body, Count&& count, Repeat&& repeat) {
  for (int64_t layer = range.begin; layer < range.end;) {
    stream.BeginRepeat((range.end - layer) / period, Packed(key));
    const auto before = count();
    for (int64_t each = layer; each < layer + period; ++each) {
      stream.SetLayer(range.before + each);
      body(each);
    }
    const int64_t bodies = stream.EndRepeat();
    if (bodies > 1) repeat(before, bodies - 1);
    layer += bodies * period;
  }
  stream.SetLayer(-1);
}

// The least number of layers after which those of the range come again, all and at least twice; 0:
// there is none. Layers of one kind are equal.
template <typename KindOf>
int64_t PeriodOf(LayerRange range, KindOf&& kind) {
  for (int64_t period = 1; 2 * period <= range.end - range.begin; ++period) {
    int64_t layer = range.begin;
    while (layer + period < range.end && kind(layer) == kind(layer + period)) ++layer;
    if (layer + period == range.end) return period;
  }
  return 0;
}

// The same for layers of any kinds: where ranks meet, by periods; else, since prices are kept by
// kind, by stretches of one kind.
template <typename KindOf, typename Body, typename Count, typename Repeat>
void RepeatKinds(device::Stream& stream, StepKey key, LayerRange range, KindOf&& kind, Body&& body,
                 Count&& count, Repeat&& repeat) {
  const int64_t period = key.mode.meets() ? PeriodOf(range, kind) : 0;
  if (period > 0) {
    LayerRange whole = range;
    whole.end = range.begin += (range.end - range.begin) / period * period;
    RepeatLayers(stream, key, whole, period, body, count, repeat);
  }
  for (int64_t end = range.begin; range.begin < range.end; range.begin = end) {
    const auto first = kind(range.begin);
    while (end < range.end && kind(end) == first) ++end;
    key.layer_kind = static_cast<uint16_t>(first);
    RepeatLayers(stream, key, {range.begin, end, range.before}, 1, body, count, repeat);
  }
}

}  // namespace forebay::model

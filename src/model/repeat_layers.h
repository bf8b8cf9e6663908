// Equal layers run through here. A real device runs the body once a layer; a device that prices shapes may run it once
// and multiply where that is exact.
#pragma once

#include <cstdint>

namespace forebay::model {

struct LayerRange {
  int64_t begin, end;
};

template <typename Body>
void RepeatLayers(LayerRange range, Body&& body) {
  for (int64_t layer = range.begin; layer < range.end; ++layer) body(layer);
}

}  // namespace forebay::model

#include "kv/state/layer_states.h"

#include "base/units.h"

namespace forebay::kv {
namespace {

// Each part begins at a multiple of a cache line.
uint64_t Padded(uint64_t bytes) { return base::RoundUp(bytes, 64); }

}  // namespace

uint64_t PlaceBytes(std::span<const StateSpec> layers) {
  uint64_t sum = 0;
  for (const StateSpec& layer : layers)
    sum += Padded(layer.tail_bytes) + Padded(layer.matrix_bytes);
  return sum;
}

StateView CutStates(std::span<const StateSpec> layers, std::byte* data) {
  const auto stride = static_cast<int64_t>(PlaceBytes(layers));
  StateView view;
  for (const StateSpec& layer : layers) {
    view.layers.push_back({{data, stride}, {data + Padded(layer.tail_bytes), stride}});
    data += Padded(layer.tail_bytes) + Padded(layer.matrix_bytes);
  }
  return view;
}

}  // namespace forebay::kv

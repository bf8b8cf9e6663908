#include "kv/state/layer_states.h"

#include <algorithm>

#include "base/units.h"
#include "kernels/digest.h"

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

uint64_t MatrixOffset(const StateSpec& layer) { return Padded(layer.tail_bytes); }

base::Part PartOfPlace(uint64_t place_bytes, int32_t parts, int32_t index) {
  const uint64_t each = Padded(base::CeilDiv(place_bytes, static_cast<uint64_t>(parts))),
                 begin = std::min(place_bytes, each * static_cast<uint64_t>(index)),
                 end = std::min(place_bytes, begin + each);
  return {static_cast<int64_t>(begin), static_cast<int64_t>(end)};
}

uint64_t StateDigest(std::span<const StateSpec> layers, const StateView& view, int64_t first_layer,
                     int32_t place, int64_t positions, device::Device* device) {
  uint64_t sum = 0;
  std::vector<std::byte> read;
  for (size_t i = 0; i < layers.size(); ++i) {
    const StateSpec& layer = layers[i];
    if (layer.matrix_bytes == 0) continue;
    const auto number = static_cast<int32_t>(first_layer) + static_cast<int32_t>(i);
    const auto* at = reinterpret_cast<const std::byte*>(view.layers[i].matrices.Of(place));
    const auto bytes = static_cast<int64_t>(layer.matrix_bytes) / layer.heads;
    if (device != nullptr && !device->host_reaches_data()) {
      read.resize(layer.matrix_bytes);
      if (!device->Read(read.data(), at, layer.matrix_bytes).ok()) return 0;
      at = read.data();
    }
    for (int32_t head = 0; head < layer.heads; ++head, at += bytes) {
      for (int64_t begin = 0, chunk = 0; begin < bytes;
           begin += kernels::kMaxDigestBytes, ++chunk) {
        sum += kernels::DigestHash(at + begin,
                                   std::min<int64_t>(kernels::kMaxDigestBytes, bytes - begin),
                                   kernels::StateDigestKey(number, layer.first_head + head,
                                                           static_cast<int32_t>(chunk), positions));
      }
    }
  }
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

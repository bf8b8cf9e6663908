// The states of layers that keep one of a choice whatever its length (kernels/delta_net.h), in a
// region of places. A running choice has the place of its id in the book of blocks; behind those
// are places of states that are kept (kv/book/state_book.h).
//
//   region: place 0, place 1, ...; a place has the states of the rank's layers one after another
//
// A state lives as long as the KV of its choice and moves with it: to the tier below in parts, each
// of which takes a block there (kv/cache.h), and to other replicas by heads (kv/pull_parts.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/part.h"
#include "device/device.h"
#include "kernels/delta_net.h"

namespace forebay::kv {

// What a layer keeps of a choice.
struct StateSpec {
  uint64_t tail_bytes = 0;            // the convolution's last inputs
  uint64_t matrix_bytes = 0;          // the heads' matrices; 0: it has none
  int32_t heads = 0, first_head = 0;  // the rank's, by their numbers in the layer
  // The rank's of the convolution, by their numbers in the layer, in the order of the tail.
  std::vector<base::Part> channels;

  uint64_t bytes() const { return tail_bytes + matrix_bytes; }  // 0: it keeps nothing
};

// What the layer program reads and writes, by layer of the rank; empty where it keeps nothing.
struct StateView {
  struct Layer {
    kernels::StateLayer tails, matrices;
  };
  std::vector<Layer> layers;
};

// Sums hashes of the matrices in a place, which stand behind so many positions: the same however
// ranks have the heads. `first_layer`: the rank's first, by its number in the model. `device` reads
// them where the host does not reach them; null: it does. 0: the device has failed.
uint64_t StateDigest(std::span<const StateSpec> layers, const StateView& view, int64_t first_layer,
                     int32_t place, int64_t positions, device::Device* device = nullptr);
// Bytes of a place; so many into it the state of the layer behind these begins.
uint64_t PlaceBytes(std::span<const StateSpec> layers);
// Where the matrices lie in a layer's state.
uint64_t MatrixOffset(const StateSpec& layer);
// The bytes of a place that part `index` of so many has: even parts of whole cache lines, as far as
// there are bytes.
base::Part PartOfPlace(uint64_t place_bytes, int32_t parts, int32_t index);
// Lays out places as above.
StateView CutStates(std::span<const StateSpec> layers, std::byte* data);

}  // namespace forebay::kv

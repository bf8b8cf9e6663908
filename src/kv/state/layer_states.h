// The states of layers that keep one of a choice whatever its length (kernels/delta_net.h), in a
// region of places. A running choice has the place of its id in the book of blocks; behind those
// are places of states that are kept (kv/book/state_book.h).
//
//   region: place 0, place 1, ...; a place has the parts of the rank's layers one after another
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "kernels/delta_net.h"

namespace forebay::kv {

// What a layer keeps of a choice.
struct StateSpec {
  uint64_t tail_bytes = 0;            // the convolution's last inputs
  uint64_t matrix_bytes = 0;          // the heads' matrices
  int32_t heads = 0, first_head = 0;  // the rank's, by their numbers in the layer

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
// Bytes of a place.
uint64_t PlaceBytes(std::span<const StateSpec> layers);
// Lays out places as above.
StateView CutStates(std::span<const StateSpec> layers, std::byte* data);

}  // namespace forebay::kv

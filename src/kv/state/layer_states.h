// The states of layers that keep one of a choice whatever its length (kernels/delta_net.h), in a
// region of places. A running choice has the place of its id in the book of blocks, so a book of
// places is not needed: whoever begins at position 0 finds zeros there, whatever it held before.
//
//   region: place 0, place 1, ...; a place has the parts of the rank's layers one after another
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/delta_net.h"

namespace forebay::kv {

// What a layer keeps of a choice.
struct StateSpec {
  uint64_t tail_bytes = 0;    // the convolution's last inputs
  uint64_t matrix_bytes = 0;  // the heads' matrices

  uint64_t bytes() const { return tail_bytes + matrix_bytes; }  // 0: it keeps nothing
};

// What the layer program reads and writes, by layer of the rank; empty where it keeps nothing.
struct StateView {
  struct Layer {
    kernels::StateLayer tails, matrices;
  };
  std::vector<Layer> layers;
};

// Bytes of a place.
uint64_t PlaceBytes(std::span<const StateSpec> layers);
// Lays out places as above.
StateView CutStates(std::span<const StateSpec> layers, std::byte* data);

}  // namespace forebay::kv

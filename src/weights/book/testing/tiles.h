#pragma once

#include "weights/book/placement.h"

namespace forebay::weights {

// An FFN of `leaves` leaves: `gate_up` panels a leaf (100 bytes a tile, piece 0), then of each leaf
// `down` panels (30 bytes a tile, 31 in the last leaf, piece 1).
inline LayerRuns FfnTiles(int leaves, int gate_up, int down) {
  LayerRuns layer{.num_leaves = leaves, .num_pieces = 2};
  for (int leaf = 0; leaf < leaves; ++leaf) {
    for (int tile = 0; tile < gate_up; ++tile) layer.Add(100, leaf, 0);
  }
  for (int leaf = 0; leaf < leaves; ++leaf) {
    for (int tile = 0; tile < down; ++tile) layer.Add(leaf + 1 == leaves ? 31 : 30, leaf, 1);
  }
  return layer;
}

}  // namespace forebay::weights

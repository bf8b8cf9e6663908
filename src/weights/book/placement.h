// Who owns which tile: pure functions that every device, the simulator and the planner call.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace forebay::weights {

inline constexpr base::ErrorCode kUnknownPlacement{"placement_unknown"};

// The tiles of a layer that may be pooled, in the order in which they lie in memory: the same for all layers.
struct LayerTiles {
  struct Tile {
    uint64_t bytes;
    int32_t leaf;   // of the layer's leaves of K, [0, num_leaves): tiles of one leaf can be computed with on their own
    int32_t piece;  // [0, num_pieces): tiles of one piece are used at the same time
  };
  std::vector<Tile> tiles;
  int32_t num_leaves = 1;
  int32_t num_pieces = 1;

  uint64_t bytes() const;
};

// A tile of a layer, counted through LayerTiles.
struct TileId {
  int64_t layer;
  int64_t tile;
};

// The ranks among which weights are shared, and what of.
struct PlacementGroup {
  int num_ranks = 1;
  std::vector<int32_t> pool_index;  // [layers]: how many pooled layers come before this one; -1: it is replicated
  LayerTiles layer;

  int64_t num_layers() const { return static_cast<int64_t>(pool_index.size()); }
};

// pool_index with `pooled` of `num_layers` layers, spread evenly. REQUIRES: pooled <= num_layers.
std::vector<int32_t> SpreadPool(int64_t num_layers, int64_t pooled);

class Placement {
 public:
  virtual ~Placement() = default;
  virtual std::string_view name() const = 0;
  // Whether ranks can lack tiles under it.
  virtual bool pools() const { return true; }
  // Ranks that own the tile, ascending; never none. Of a replicated layer: all.
  std::vector<int> Holders(const TileId& tile, const PlacementGroup& group) const;
  bool Holds(int rank, const TileId& tile, const PlacementGroup& group) const;
  // Where `reader` takes the tile from: itself if it owns it, else the nearest holder counted upwards, wrapping round.
  int Source(int reader, const TileId& tile, const PlacementGroup& group) const;

 protected:
  // Of a pooled layer; at least one rank does.
  virtual bool PoolHolds(int rank, const TileId& tile, const PlacementGroup& group) const = 0;
};

// "replicated": every rank owns every tile. "by_layer": pooled layer p belongs to rank p mod ranks (SiDP, section 4.2).
// "striped": each rank owns whole leaves of each layer. "sharded": each layer's tiles are split evenly (FSDP).
// kUnknownPlacement lists the names.
base::Result<const Placement*> FindPlacement(std::string_view name);

}  // namespace forebay::weights

// Who owns which tile: pure functions that every device, the simulator and the planner call.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace forebay::weights {

inline constexpr base::ErrorCode kUnknownPlacement{"placement_unknown"};

// A tile of a layer's matrices, counted through all of them in their fixed order.
struct TileId {
  int64_t layer;
  int64_t tile;
};

// The ranks among which weights may be shared.
struct PlacementGroup {
  int num_ranks = 1;
  int64_t num_layers = 0;
};

class Placement {
 public:
  virtual ~Placement() = default;
  virtual std::string_view name() const = 0;
  // Ranks that own the tile, ascending; never none.
  virtual std::vector<int> Holders(const TileId& tile, const PlacementGroup& group) const = 0;
  // Where `reader` takes the tile from: itself if it owns it, else the nearest holder counted upwards, wrapping round.
  int Source(int reader, const TileId& tile, const PlacementGroup& group) const;
};

// "replicated": every rank owns every tile. kUnknownPlacement lists the names.
base::Result<const Placement*> FindPlacement(std::string_view name);

}  // namespace forebay::weights

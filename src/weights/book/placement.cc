#include "weights/book/placement.h"

#include <array>

#include "base/check.h"
#include "base/part.h"

namespace forebay::weights {
namespace {

class Replicated final : public Placement {
 public:
  std::string_view name() const override { return "replicated"; }
  bool pools() const override { return false; }

 protected:
  bool PoolHolds(int, const TileId&, const PlacementGroup&) const override { return true; }
};

class ByLayer final : public Placement {
 public:
  std::string_view name() const override { return "by_layer"; }

 protected:
  bool PoolHolds(int rank, const TileId& tile, const PlacementGroup& group) const override {
    return rank == group.pool_index[tile.layer] % group.num_ranks;
  }
};

class Striped final : public Placement {
 public:
  std::string_view name() const override { return "striped"; }

 protected:
  bool PoolHolds(int rank, const TileId& tile, const PlacementGroup& group) const override {
    const int64_t leaf = group.layer.tiles[tile.tile].leaf;
    return rank == base::PartOf(group.layer.num_leaves, group.num_ranks, leaf);
  }
};

class Sharded final : public Placement {
 public:
  std::string_view name() const override { return "sharded"; }

 protected:
  bool PoolHolds(int rank, const TileId& tile, const PlacementGroup& group) const override {
    const auto tiles = static_cast<int64_t>(group.layer.tiles.size());
    return rank == base::PartOf(tiles, group.num_ranks, tile.tile);
  }
};

}  // namespace

uint64_t LayerTiles::bytes() const {
  uint64_t sum = 0;
  for (const Tile& tile : tiles) sum += tile.bytes;
  return sum;
}

std::vector<int32_t> SpreadPool(int64_t num_layers, int64_t pooled) {
  FB_CHECK(0 <= pooled && pooled <= num_layers, "{} of {} layers are pooled", pooled, num_layers);
  std::vector<int32_t> index(static_cast<size_t>(num_layers), -1);
  for (int64_t p = 0; p < pooled; ++p) index[(2 * p + 1) * num_layers / (2 * pooled)] = static_cast<int32_t>(p);
  return index;
}

std::vector<int> Placement::Holders(const TileId& tile, const PlacementGroup& group) const {
  std::vector<int> holders;
  for (int rank = 0; rank < group.num_ranks; ++rank) {
    if (Holds(rank, tile, group)) holders.push_back(rank);
  }
  return holders;
}

bool Placement::Holds(int rank, const TileId& tile, const PlacementGroup& group) const {
  return group.pool_index[tile.layer] < 0 || PoolHolds(rank, tile, group);
}

int Placement::Source(int reader, const TileId& tile, const PlacementGroup& group) const {
  for (int distance = 0; distance < group.num_ranks; ++distance) {
    const int rank = (reader + distance) % group.num_ranks;
    if (Holds(rank, tile, group)) return rank;
  }
  FB_CHECK(false, "nobody holds tile {} of layer {}", tile.tile, tile.layer);
  return -1;
}

base::Result<const Placement*> FindPlacement(std::string_view name) {
  static const Replicated replicated;
  static const ByLayer by_layer;
  static const Striped striped;
  static const Sharded sharded;
  std::string names;
  for (const Placement* placement : std::array<const Placement*, 4>{&replicated, &by_layer, &striped, &sharded}) {
    if (name == placement->name()) return placement;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", placement->name());
  }
  return base::Status(kUnknownPlacement, fmt::format("weights placement \"{}\" is unknown; expected one of {}", name, names));
}

}  // namespace forebay::weights

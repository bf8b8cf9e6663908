#include "weights/book/placement.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/check.h"
#include "base/part.h"

namespace forebay::weights {
namespace {

std::vector<int> AllRanks(const PlacementGroup& group) {
  std::vector<int> all(static_cast<size_t>(group.num_ranks));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

class Replicated final : public Placement {
 public:
  std::string_view name() const override { return "replicated"; }
  bool pools() const override { return false; }

 protected:
  std::vector<int> PoolHolders(const TileId&, const PlacementGroup& group) const override { return AllRanks(group); }
};

class ByLayer final : public Placement {
 public:
  std::string_view name() const override { return "by_layer"; }

 protected:
  std::vector<int> PoolHolders(const TileId& tile, const PlacementGroup& group) const override {
    return {group.pool_index[tile.layer] % group.num_ranks};
  }
};

class Striped final : public Placement {
 public:
  std::string_view name() const override { return "striped"; }

 protected:
  std::vector<int> PoolHolders(const TileId& tile, const PlacementGroup& group) const override {
    const int64_t leaf = group.layer.tiles[tile.tile].leaf;
    return {static_cast<int>(base::PartOf(group.layer.num_leaves, group.num_ranks, leaf))};
  }
};

class Sharded final : public Placement {
 public:
  std::string_view name() const override { return "sharded"; }

 protected:
  std::vector<int> PoolHolders(const TileId& tile, const PlacementGroup& group) const override {
    const auto tiles = static_cast<int64_t>(group.layer.tiles.size());
    return {static_cast<int>(base::PartOf(tiles, group.num_ranks, tile.tile))};
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
  return group.pool_index[tile.layer] < 0 ? AllRanks(group) : PoolHolders(tile, group);
}

bool Placement::Holds(int rank, const TileId& tile, const PlacementGroup& group) const {
  return std::ranges::count(Holders(tile, group), rank) > 0;
}

int Placement::Source(int reader, const TileId& tile, const PlacementGroup& group) const {
  const std::vector<int> holders = Holders(tile, group);
  return *std::ranges::min_element(holders, {}, [&](int holder) {
    return (holder - reader + group.num_ranks) % group.num_ranks;
  });
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

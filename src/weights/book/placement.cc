#include "weights/book/placement.h"

#include <numeric>

namespace forebay::weights {
namespace {

class Replicated : public Placement {
 public:
  std::string_view name() const override { return "replicated"; }
  std::vector<int> Holders(const TileId&, const PlacementGroup& group) const override {
    std::vector<int> all(static_cast<size_t>(group.num_ranks));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
};

}  // namespace

int Placement::Source(int reader, const TileId& tile, const PlacementGroup& group) const {
  const std::vector<int> holders = Holders(tile, group);
  int best = holders.front(), best_distance = group.num_ranks;
  for (const int holder : holders) {
    const int distance = (holder - reader + group.num_ranks) % group.num_ranks;
    if (distance < best_distance) {
      best = holder;
      best_distance = distance;
    }
  }
  return best;
}

base::Result<const Placement*> FindPlacement(std::string_view name) {
  static const Replicated replicated;
  if (name == replicated.name()) return &replicated;
  return base::Status(kUnknownPlacement, fmt::format("weights placement \"{}\" is unknown; expected replicated", name));
}

}  // namespace forebay::weights

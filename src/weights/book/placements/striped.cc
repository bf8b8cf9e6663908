// Each rank owns whole leaves of each layer.
#include "base/part.h"
#include "weights/book/placement.h"

namespace forebay::weights {
namespace {

class Striped final : public Placement {
 protected:
  bool PoolHolds(int rank, const RunId& run, const PlacementGroup& group) const override {
    const LayerRuns& layer = group.layer(run.layer);
    return rank == base::PartOf(layer.num_leaves, group.num_ranks, layer.runs[run.run].leaf);
  }
};

}  // namespace

extern const PlacementKind kStriped;
const PlacementKind kStriped{.name = "striped", .make = &Make<Striped>};

}  // namespace forebay::weights

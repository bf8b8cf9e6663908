// Each member owns whole leaves of each layer.
#include "base/part.h"
#include "weights/book/placement.h"

namespace forebay::weights {
namespace {

class Striped final : public Placement {
 protected:
  bool PoolHolds(int member, const RunId& run, const PlacementGroup& group) const override {
    const LayerRuns& layer = group.layer(run.layer);
    return member == base::PartOf(layer.num_leaves, group.num_members, layer.runs[run.run].leaf);
  }
};

}  // namespace

const PlacementKind kStriped{.name = "striped", .make = &Make<Striped>};

}  // namespace forebay::weights

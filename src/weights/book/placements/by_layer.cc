// Pooled layer p belongs to rank p mod ranks (SiDP, section 4.2).
#include "weights/book/placement.h"

namespace forebay::weights {
namespace {

class ByLayer final : public Placement {
 protected:
  bool PoolHolds(int rank, const RunId& run, const PlacementGroup& group) const override {
    return rank == group.pool_index[run.layer] % group.num_ranks;
  }
};

}  // namespace

extern const PlacementKind kByLayer;
const PlacementKind kByLayer{.name = "by_layer", .make = &Make<ByLayer>};

}  // namespace forebay::weights

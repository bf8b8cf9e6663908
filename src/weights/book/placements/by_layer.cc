// Pooled layer p belongs to member p mod members (SiDP, section 4.2).
#include "weights/book/placement.h"

namespace forebay::weights {
namespace {

class ByLayer final : public Placement {
 protected:
  bool PoolHolds(int member, const RunId& run, const PlacementGroup& group) const override {
    return member == group.pool_index[run.layer] % group.num_members;
  }
};

}  // namespace

const PlacementKind kByLayer{.name = "by_layer", .make = &Make<ByLayer>};

}  // namespace forebay::weights

// Every member owns every run.
#include "weights/book/placement.h"

namespace forebay::weights {
namespace {

class Replicated final : public Placement {
 protected:
  bool PoolHolds(int, const RunId&, const PlacementGroup&) const override { return true; }
};

}  // namespace

const PlacementKind kReplicated{.name = "replicated", .pools = false, .make = &Make<Replicated>};

}  // namespace forebay::weights

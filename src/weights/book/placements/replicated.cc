// Every rank owns every run.
#include "weights/book/placement.h"

namespace forebay::weights {
namespace {

class Replicated final : public Placement {
 public:
  bool pools() const override { return false; }

 protected:
  bool PoolHolds(int, const RunId&, const PlacementGroup&) const override { return true; }
};

}  // namespace

extern const PlacementKind kReplicated;
const PlacementKind kReplicated{.name = "replicated", .make = &Make<Replicated>};

}  // namespace forebay::weights

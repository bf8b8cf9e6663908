// Each layer's runs are split evenly (FSDP).
#include "base/part.h"
#include "weights/book/placement.h"

namespace forebay::weights {
namespace {

class Sharded final : public Placement {
 protected:
  bool PoolHolds(int rank, const RunId& run, const PlacementGroup& group) const override {
    const auto runs = static_cast<int64_t>(group.layer(run.layer).runs.size());
    return rank == base::PartOf(runs, group.num_ranks, run.run);
  }
};

}  // namespace

extern const PlacementKind kSharded;
const PlacementKind kSharded{.name = "sharded", .make = &Make<Sharded>};

}  // namespace forebay::weights

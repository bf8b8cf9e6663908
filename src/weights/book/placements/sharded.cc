// Each layer's bytes are split evenly (FSDP): a run belongs to the member in whose part its middle
// lies.
#include "base/part.h"
#include "weights/book/placement.h"

namespace forebay::weights {
namespace {

class Sharded final : public Placement {
 protected:
  bool PoolHolds(int member, const RunId& run, const PlacementGroup& group) const override {
    const LayerRuns& layer = group.layer(run.layer);
    const TileRun& tile = layer.runs[run.run];
    return member == base::PartOf(static_cast<int64_t>(layer.bytes()), group.num_members,
                                  static_cast<int64_t>(tile.before + tile.bytes / 2));
  }
};

}  // namespace

const PlacementKind kSharded{.name = "sharded", .make = &Make<Sharded>};

}  // namespace forebay::weights

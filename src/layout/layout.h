// How devices are cut into groups, replicas and ranks, and where the weights lie. Pure; validated
// once, at start.
//
//   device = (((group x dp + replica) x pp + stage) x sp + sp rank) x tp + tp rank; ranks count
//   devices within a group.
//   A replica's pp x sp x tp ranks take a step together. The pool lies along dp: rank (replica,
//   stage, t) pulls from (., stage, t).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "fabric/fabric.h"
#include "model/shard.h"
#include "weights/book/placement.h"

namespace forebay::layout {

inline constexpr base::ErrorCode kLayoutInvalid{"layout_invalid"};
inline constexpr base::ErrorCode kLayoutDevices{"layout_devices"};
inline constexpr base::ErrorCode kLayoutPool{"layout_pool"};

struct Layout {
  int groups = 1, dp = 1, tp = 1, pp = 1;
  // placements: of layers without experts, and of the others' experts
  weights::ChosenPlacement weights, experts;
  // how many layers without experts are pooled; unset: as many as serves the throughput ("auto")
  std::optional<int64_t> pool_layers;
  bool pool_attention = false;  // attention's matrices are pooled beside the FFN's
  // experts of a layer that a rank holds; 0: as few as can be ("least"); unset: as many as serve
  // the throughput ("auto")
  std::optional<int64_t> expert_size = 0;
  int sp = 1;  // ranks that cut the rows of a step among them

  model::Degrees degrees() const { return {sp, tp}; }
  int ranks_per_stage() const { return sp * tp; }
  int ranks_per_replica() const { return pp * ranks_per_stage(); }
  int ranks_per_group() const { return dp * ranks_per_replica(); }
  int num_devices() const { return groups * ranks_per_group(); }
  bool pools_layers() const { return weights.pools(); }
  bool pools_experts() const { return experts.pools(); }
  bool pools() const { return pools_layers() || pools_experts(); }
  // Ranks that cut rows share what they would all have; dp replicas are copies then.
  bool pools_along_sp() const { return sp > 1 && pools(); }
  int pool_ranks() const { return sp > 1 ? sp : dp; }
  friend bool operator==(const Layout&, const Layout&) = default;
};

// "groups=1,dp=4,sp=1,tp=2,pp=1,weights=by_layer,pool=auto,pool-attention=off,experts=by_expert,
// expert-size=64": any of them, in any order; "" is one rank. kLayoutInvalid names the key and what
// is accepted; weights::kUnknownPlacement.
base::Result<Layout> ParseLayout(std::string_view text);
// In the same form, all keys.
std::string FormatLayout(const Layout& layout);

// Whether the model can run so on so many devices. Messages name the two numbers that disagree:
// kLayoutDevices, kLayoutPool (pooled layers against layers, placement or sp), model::kShardHeads,
// kShardLeaves (also of a stripe's), kShardLayers; kQuantization (a cut within a block of scales).
base::Status ValidateLayout(const Layout& layout, const model::ModelConfig& config,
                            int num_devices);

// What ranks with unequal parts of the model lose, in a line; "": all parts are equal. REQUIRES:
// the layout is valid.
std::string FormatUneven(const Layout& layout, const model::ModelConfig& config);

// Where a rank of a group stands.
struct RankPlace {
  int replica = 0, stage = 0, tp_rank = 0, sp_rank = 0;
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};
RankPlace PlaceOf(const Layout& layout, int rank);
int RankOf(const Layout& layout, const RankPlace& place);

// The ranks that this one meets, as ranks of the group.
// In a mode: those with the rank's rows, and those with its weights.
fabric::Communicator TpRanks(const Layout& layout, int rank, const model::Degrees& mode);
fabric::Communicator SpRanks(const Layout& layout, int rank, const model::Degrees& mode);
fabric::Communicator RanksOfStage(const Layout& layout, int rank);  // by block (model/modes.h)
fabric::Communicator StageRanks(const Layout& layout, int rank);    // one for each stage, in order
// One for each replica, in order; with sp > 1 those that cut the replica's rows.
fabric::Communicator PoolRanks(const Layout& layout, int rank);
// Who computes with each other's rows, in the order of share::ShipPlan::leaves.
fabric::Communicator ShipRanks(const Layout& layout, int rank);

model::ReplicaCut CutOf(const Layout& layout, int rank);

// How many replicas of tp x pp ranks so many devices are; 0: they cannot all be used.
int ReplicasOn(int devices, int tp, int pp);

}  // namespace forebay::layout

// How devices are cut into groups, replicas and ranks, and where the weights lie. Pure; validated once, at start.
//
//   device = ((group x dp + replica) x pp + stage) x tp + tp rank; ranks count devices within a group.
//   A replica's tp x pp ranks take a step together. The pool lies along dp: rank (replica, stage, t) pulls from (., stage, t).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "fabric/fabric.h"
#include "model/shard.h"

namespace forebay::engine {

inline constexpr base::ErrorCode kLayoutInvalid{"layout_invalid"};
inline constexpr base::ErrorCode kLayoutDevices{"layout_devices"};
inline constexpr base::ErrorCode kLayoutPool{"layout_pool"};

struct Layout {
  int groups = 1, dp = 1, tp = 1, pp = 1;
  std::string weights = "replicated";  // a placement's name
  std::optional<int64_t> pool_layers;  // how many are pooled; unset: as many as serves the throughput ("auto")
  bool pool_attention = false;         // attention's matrices are pooled beside the FFN's

  int ranks_per_replica() const { return pp * tp; }
  int ranks_per_group() const { return dp * pp * tp; }
  int num_devices() const { return groups * ranks_per_group(); }
  bool pools() const { return weights != "replicated"; }
  friend bool operator==(const Layout&, const Layout&) = default;
};

// "groups=1,dp=4,tp=2,pp=1,weights=by_layer,pool=auto,pool-attention=off": any of them, in any order; "" is one rank.
// kLayoutInvalid names the key and what is accepted; weights::kUnknownPlacement.
base::Result<Layout> ParseLayout(std::string_view text);
// In the same form, all keys.
std::string FormatLayout(const Layout& layout);

// Whether the model can run so on so many devices. Messages name the two numbers that disagree: kLayoutDevices, kLayoutPool
// (pooled layers against layers or placement), model::kShardHeads, kShardLeaves (also of a stripe's), kShardLayers.
base::Status ValidateLayout(const Layout& layout, const model::ModelConfig& config, int num_devices);

// Where a rank of a group stands.
struct RankPlace {
  int replica = 0, stage = 0, tp_rank = 0;
  friend bool operator==(const RankPlace&, const RankPlace&) = default;
};
RankPlace PlaceOf(const Layout& layout, int rank);
int RankOf(const Layout& layout, const RankPlace& place);

// The ranks that this one meets, as ranks of the group.
fabric::Communicator TpRanks(const Layout& layout, int rank);
fabric::Communicator StageRanks(const Layout& layout, int rank);  // of all stages, in order
fabric::Communicator PoolRanks(const Layout& layout, int rank);   // of all replicas, in order
// Who computes with each other's rows, in the order of model::ShipPlan::leaves.
fabric::Communicator ShipRanks(const Layout& layout, int rank);

model::ReplicaCut CutOf(const Layout& layout, int rank);

}  // namespace forebay::engine

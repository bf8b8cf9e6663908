// How the FFN of a pooled layer is computed where its weights lie (SiDP, section 4.3): which leaves each rank computes with,
// and what memory that takes. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/part.h"
#include "model/pool_plan.h"

namespace forebay::model {

inline constexpr base::ErrorCode kCannotShip{"ship_cannot"};

struct ShipOptions {
  int32_t rows = 256;      // most rows of a rank in a shipped step
  bool fuse = true;        // an owner computes with the rows of all ranks at once; else with one rank's after the other's
  bool skip_idle = true;   // a rank without rows sends and gets nothing; else one row without meaning
  bool gather = false;     // FSDP instead: nobody ships, all ranks meet before each pooled layer and pull it
};

// Of one rank. Who computes: all ranks of the pools of a stage, the tp ranks of a replica too. They are numbered by tp rank, then by
// replica, in which order their leaves ascend.
struct ShipPlan {
  ShipOptions options;
  int num_ranks = 1;                            // replicas: of the pool
  int tp = 1, tp_rank = 0;
  int num_leaves = 1;                           // of the whole layer
  int leaves_before = 0;                        // of the whole layer, before those of this tp rank
  std::vector<std::vector<base::Part>> leaves;  // [layers][tp x num_ranks]: of the down projection; none: it is not pooled
  std::vector<int32_t> panel_of_leaf;           // [leaves of this tp rank + 1]: the first panel of gate and up that belongs to a leaf
  int max_planes = 0;                           // of partial sums that one rank computes of a layer
  int total_planes = 0;                         // that all ranks together do
  int max_owners = 0;                           // replicas that compute with one layer
  uint64_t rows_bytes = 0, sums_bytes = 0;      // staging regions of a rank: rows for the owners, partial sums for the others

  bool Ships(int64_t layer) const { return !leaves[layer].empty(); }
  int num_members() const { return tp * num_ranks; }
  int MemberOf(int replica) const { return tp_rank * num_ranks + replica; }
  // Of all ranks, in a shipped step.
  int64_t gathered_rows() const { return int64_t{options.rows} * num_ranks; }
};

// A tp rank of a stage as PlanShip sees it.
struct ShipMember {
  const PoolPlan* pool;        // of its replica 0
  const DecoderPlan* decoder;
};

// Of the tp ranks of a stage, in their order. kCannotShip: the placement cuts leaves, attention is pooled too, or more ranks would
// meet than can.
base::Result<std::vector<ShipPlan>> PlanShip(const ShipOptions& options, const std::vector<ShipMember>& stage);

}  // namespace forebay::model

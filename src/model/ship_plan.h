// How the FFN of a pooled layer is computed where its weights lie (SiDP, section 4.3): which leaves each rank computes with,
// and what memory that takes. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/part.h"
#include "cost/profile.h"
#include "model/pool_plan.h"

namespace forebay::model {

inline constexpr base::ErrorCode kCannotShip{"ship_cannot"};

struct ShipOptions {
  int32_t rows = 256;      // most rows of a rank in a shipped step
  bool fuse = true;        // an owner computes with the rows of all ranks at once; else with one rank's after the other's
  bool skip_idle = true;   // a rank without rows sends and gets nothing; else one row without meaning
  bool gather = false;     // FSDP instead: nobody ships, all ranks meet before each pooled layer and pull it
};

// The same for all ranks of a pool.
struct ShipPlan {
  ShipOptions options;
  int num_ranks = 1;
  int num_leaves = 1;
  std::vector<std::vector<base::Part>> leaves;  // [layers][ranks]: of the down projection; no ranks: it is not pooled
  std::vector<int32_t> panel_of_leaf;           // [num_leaves + 1]: the first panel of gate and up that belongs to a leaf
  int max_planes = 0;                           // of partial sums that one rank computes of a layer
  int total_planes = 0;                         // that all ranks together do
  uint64_t rows_bytes = 0, sums_bytes = 0;      // staging regions of a rank: rows for the owners, partial sums for the others

  bool Ships(int64_t layer) const { return !leaves[layer].empty(); }
  // Of all ranks, in a shipped step.
  int64_t gathered_rows() const { return int64_t{options.rows} * num_ranks; }
};

// kCannotShip: the placement cuts leaves, or attention is pooled too.
base::Result<ShipPlan> PlanShip(const ShipOptions& options, const PoolPlan& pool, const DecoderPlan& decoder);

// B_th: rows of each rank below which a step ships. From there on the copies of what the rank of `pool` lacks are hidden behind
// its step, or shipping takes as long as they do. Rows decode, each with `context` positions before it.
double ShipThreshold(const ShipPlan& plan, const PoolPlan& pool, const DecoderPlan& decoder, const cost::DeviceProfile& profile,
                     int64_t context);

}  // namespace forebay::model

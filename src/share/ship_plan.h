// How the FFN of a pooled layer is computed where its weights lie (SiDP, section 4.3): which leaves
// each rank computes with, and what memory that takes. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "base/part.h"
#include "forebay/step_mode.h"
#include "kernels/serve.h"
#include "share/pool_plan.h"

namespace forebay::share {

inline constexpr base::ErrorCode kCannotShip{"ship_cannot"};

struct ShipOptions {
  int32_t rows = 256;  // most rows of a rank in a shipped step
  // the same in a round of a layer with experts; 0: as many as a part of memory stages (group_plan)
  int32_t expert_rows = 0;
  // an owner computes with the rows of all ranks at once; else with one rank's after the other's
  bool fuse = true;
  // a rank without rows sends and gets nothing; else one row without meaning
  bool skip_idle = true;
  // Without data: rows go to experts in the format of their weights, and come back as one sum of
  // each rank, which is less than the exact exchange moves and other numbers.
  bool reduced_wire = false;
  // What experts made of a rank's rows comes home while the rank computes its shared expert; else
  // after it.
  bool hides_return = true;
};

// How one rank ships. All ranks of a stage's pools compute, the tp ranks of a replica too. They are
// numbered by tp rank, then by replica; their leaves ascend in that order.
struct ShipPlan {
  // The mode of the meetings: kShip, or kGather, in which ranks meet before each pooled layer and
  // pull it.
  StepMode mode{.ffn = FfnMode::kShip};
  ShipOptions options;
  int num_replicas = 1;  // in the pool
  int tp = 1, tp_rank = 0;
  // What the ranks do together for a layer.
  struct Layer {
    bool pooled = false;
    bool experts = false;
    int num_leaves = 1;     // the whole layer's
    int leaves_before = 0;  // the whole layer's before those of this tp rank
    // [tp x num_replicas]: of the down projection; none where rows do not go to owners
    std::vector<base::Part> leaves;
    // [leaves of this tp rank + 1]: the first panel of gate and up that belongs to a leaf
    std::vector<int32_t> panel_of_leaf;
    friend bool operator==(const Layer&, const Layer&) = default;
  };
  std::vector<Layer> layers;
  int max_planes = 0;    // planes of partial sums that one rank computes of a layer
  int total_planes = 0;  // that all ranks together do
  int max_owners = 0;    // replicas that compute with one layer
  // Owners in layers with experts, those of all tp ranks: [num_replicas, num_experts], which
  // replica computes an expert for whom where nothing is known of their rows.
  int32_t num_experts = 0, experts_per_token = 0;
  std::vector<uint8_t> expert_owners;
  // [num_experts], if an expert has several holders. A round's rows then choose
  // the computing one (kernels::ChooseOwners). Empty: expert_owners decide.
  std::vector<kernels::HolderMask> expert_holders;
  uint64_t sent_row_bytes = 0;  // a row on its way to experts
  // staging regions of a rank: rows for the owners, partial sums for the others
  uint64_t rows_bytes = 0, sums_bytes = 0;

  int num_members() const { return tp * num_replicas; }
  int MemberOf(int replica) const { return tp_rank * num_replicas + replica; }
  // What all ranks do together in a shipped step, or in a round.
  int64_t gathered_rows() const { return int64_t{options.rows} * num_replicas; }
  int64_t served_rows() const { return int64_t{options.expert_rows} * num_replicas; }
  // Where indices lie behind the rows in a rank's staging, and rows behind positions; behind these
  // the owners of a round, and what they are chosen by.
  uint64_t experts_offset = 0, outputs_offset = 0, owners_offset = 0, counts_offset = 0;
};

// A tp rank of a stage as PlanShip sees it.
struct ShipMember {
  const PoolPlan* pool;  // the plan of its replica 0
  const model::DecoderPlan* decoder;
};

// The plans of a stage's tp ranks, in their order. REQUIRES: mode.meets(). kCannotShip: the
// placement cuts leaves, attention is pooled too, or more ranks would meet than can.
base::Result<std::vector<ShipPlan>> PlanShip(const StepMode& mode, const ShipOptions& options,
                                             const std::vector<ShipMember>& stage);

}  // namespace forebay::share

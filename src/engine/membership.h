// A rank's part in its group: with whom it meets, and through which fabric.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/collectives.h"
#include "fabric/fabric.h"
#include "fabric/pace.h"
#include "kernels/route.h"
#include "kv/pull_parts.h"
#include "kv/tier/file_store.h"
#include "kv/tier/tier.h"
#include "model/activations.h"
#include "model/shard.h"

namespace forebay::engine {

struct Membership {
  model::ReplicaCut cut;             // its place in its replica
  fabric::Fabric* fabric = nullptr;  // outlives the rank; null: it is alone
  // The ranks that it synchronizes with in a mode: those of its stage with the same rows, and those
  // with the same weights, all by block.
  struct Mode {
    model::Degrees degrees;
    fabric::Communicator tensor, sequence;
    model::AllReducePlan all_reduce;  // among the first
  };
  // The layout's own, then each further one in which steps are taken.
  std::vector<Mode> modes = std::vector<Mode>(1);
  fabric::LinkPace pace;        // model::ReplicaLinks
  fabric::Communicator stage;   // all ranks of its stage, by block
  fabric::Communicator stages;  // its like in each stage
  // its like in each replica of the group, by replica: the pool
  fabric::Communicator peers;
  // The fabric through which lent KV is pulled; outlives the rank. By replica of the job: the parts
  // that the rank takes; empty for replicas that lend it nothing.
  fabric::Fabric* kv_fabric = nullptr;
  std::vector<std::vector<kv::PullPart>> lent;
  fabric::Communicator ship_members;  // the ranks that compute rows for each other
  uint64_t replica = 0;               // the number of its replica among the job's
  kv::FileOptions kv_file;            // where its KV lies below, if in a file
  kv::SlowUp slow_kv_up;              // trials
  // null: data say which experts rows go to
  std::shared_ptr<const kernels::RoutingSource> routing;
};

}  // namespace forebay::engine

// Ranks of a group that are processes of one host. What crosses between them is flat: names,
// offsets, numbers; each maps the others' memory where it likes. Pulls are one-sided, as between
// tasks.
#pragma once

#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "runtime/runtime.h"

namespace forebay::fabric {

inline constexpr base::ErrorCode kFabricFailed{"fabric_failed"};

// Memory files without a name. Processes inherit them or send them to each other; they end with the
// last process.
struct SharedGroup {
  int directory = -1;       // members, published regions, counters
  std::vector<int> memory;  // [ranks] CpuDeviceOptions::shared_memory of each
};
inline constexpr int kMaxSharedRanks = 8;

// The files are inherited by programs that this process starts. kInvalidArgument (ranks),
// kOutOfMemory.
base::Result<SharedGroup> CreateSharedGroup(int num_ranks);

// Makes this process the rank `rank`, until it ends; waits until all ranks have joined:
// kFabricFailed after `timeout`. From then on a rank whose process ends aborts the group with
// kFabricFailed, as soon as a stream awaits it.
base::Result<std::unique_ptr<Fabric>> JoinSharedGroup(runtime::Runtime& runtime,
                                                      const SharedGroup& group, int rank,
                                                      runtime::TimeNs timeout);

}  // namespace forebay::fabric

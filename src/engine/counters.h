// The declared table of the counters in EngineStats::mode_counters. A new counter is one row of it
// (docs/recipes/counter.md): the sum, the summary, Python's stats() and the test of the page
// follow.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/replica.h"
#include "forebay/engine.h"
#include "layout/job_plan.h"

namespace forebay::engine {

// What counters are read from: the replicas, and facts of the whole job.
struct CounterSources {
  std::span<const Replica* const> replicas;
  std::string isa;          // the kernels' set, or the name of the simulated machine
  int64_t pool_layers = 0;  // layers of the model that ranks share
  layout::ExpectedJob expected;
  int64_t least_steps = 0;  // 0: not known
  bool forced_offload = false;
};

// Sums over replicas; step_seconds are those of the replica that was busy longest. From any thread,
// also while a run goes on.
EngineStats ReadStats(const CounterSources& sources);

// As docs/formats/summary.md has them: <n> is a layout's number, <mode>, <cause> and <kernels> are
// names.
std::vector<std::string_view> CounterNames();

}  // namespace forebay::engine

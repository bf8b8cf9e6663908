// What this process may use of the machine: cores and memory, after affinity masks and container
// limits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forebay::runtime {

struct Topology {
  std::vector<int> cores;  // in the affinity mask, ascending
  // |cores|, or less where a cgroup's CPU quota says so (rounded up); at least 1
  int usable_cores = 1;
  uint64_t total_memory = 0;  // bytes: the machine's, or the tightest cgroup limit
  // bytes that can still be taken without swapping, page cache counted as free
  uint64_t available_memory = 0;
};

// Reads /proc and /sys/fs/cgroup (version 1 or 2), below `root` in tests. What cannot be read sets
// no limit.
Topology ReadTopology(const std::string& root = "");

// The processor's name with its family and model, as /proc/cpuinfo has them.
std::string CpuName();

}  // namespace forebay::runtime

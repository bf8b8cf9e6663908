// The rank and slot of each head: one table per layout, shared by all its modes. No code computes
// head = rank * n.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace forebay::model {

struct HeadPlace {
  int32_t rank;
  int32_t slot;  // position among the rank's heads
};

// Logical head -> where it lies. A KV head may have replicas (where there are fewer KV heads than
// ranks).
struct HeadMap {
  std::vector<HeadPlace> query;            // [heads]
  std::vector<std::vector<HeadPlace>> kv;  // [kv heads][replicas]

  // All heads on one rank, in logical order.
  static HeadMap SingleRank(int64_t heads, int64_t kv_heads);
  // The logical heads of a rank, in the order of their slots.
  std::vector<int32_t> QueryHeadsOf(int rank) const;
  std::vector<int32_t> KvHeadsOf(int rank) const;
  // The heads of several ranks in order; a KV head that two neighbours hold comes
  // once.
  std::vector<int32_t> QueryHeadsOf(std::span<const int> ranks) const;
  std::vector<int32_t> KvHeadsOf(std::span<const int> ranks) const;
};

}  // namespace forebay::model

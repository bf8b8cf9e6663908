// Where pooled tiles lie, in the owners' pool regions and in the readers' slots, and what the pull of a piece copies.
// Pure: owners and readers agree because they compute the same.
//
//   pool region of a rank: the pooled tiles that it holds, by (layer, tile), one behind the other
//   slot of a reader:      the tiles of one piece of one layer that it lacks, by tile, one behind the other
#pragma once

#include <cstdint>
#include <vector>

#include "weights/book/placement.h"

namespace forebay::weights {

// Consecutive tiles that lie one behind the other in the source's pool region and in the reader's slot.
struct PullSpan {
  int32_t source;
  int64_t first_tile, num_tiles;
  uint64_t offset;       // in the source's pool region
  uint64_t slot_offset;
  uint64_t bytes;
};

class PoolBook {
 public:
  static constexpr uint64_t kNotHeld = UINT64_MAX;

  PoolBook(const Placement& placement, PlacementGroup group);

  const PlacementGroup& group() const { return group_; }
  // Bytes of the rank's pool region.
  uint64_t held_bytes(int rank) const { return held_bytes_[rank]; }
  // Where the tile lies in the rank's pool region; kNotHeld also for a layer that is not pooled.
  uint64_t OffsetOf(int rank, const TileId& tile) const;
  // What `reader` copies to have the piece of a pooled layer; empty: it has all of it. By tile.
  std::vector<PullSpan> Pulls(int reader, int64_t layer, int32_t piece) const;
  uint64_t PullBytes(int reader, int64_t layer, int32_t piece) const;
  // Of one step: what the rank must pull.
  uint64_t StepBytes(int reader) const;
  // The largest piece that the rank pulls.
  uint64_t SlotBytes(int reader) const;

 private:
  size_t Index(int rank, int64_t pool_layer) const;

  const Placement& placement_;
  const PlacementGroup group_;
  std::vector<int64_t> layers_;              // [pooled layers] -> layer
  std::vector<std::vector<uint64_t>> offsets_;  // [ranks x pooled layers][tiles]
  std::vector<uint64_t> held_bytes_;         // [ranks]
};

}  // namespace forebay::weights

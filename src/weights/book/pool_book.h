// The places of pooled tiles in the owners' pool regions and the readers' slots, and the copies of
// a pull. Pure: owners and readers agree because they compute the same.
//
//   pool region of a member: the pooled runs that it holds, by (layer, run), one behind the other
//   slot of a reader:      the runs of one piece of one layer that it lacks, by run, one behind the
//                          other
//
// The book grows with the runs of a kind of layer and with the stretches of runs that a member
// holds of such a layer, not with tiles: DeepSeek-R1 has 21 million of these among 8 ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/part.h"
#include "weights/book/placement.h"

namespace forebay::weights {

// Consecutive runs that are contiguous in the source's pool region and in the reader's
// slot.
struct PullSpan {
  int32_t source;
  int64_t first_run, num_runs;
  uint64_t offset;  // in the source's pool region
  uint64_t slot_offset;
  uint64_t bytes;
};

class PoolBook {
 public:
  static constexpr uint64_t kNotHeld = UINT64_MAX;

  PoolBook(std::shared_ptr<const Placement> placement, PlacementGroup group);

  const PlacementGroup& group() const { return group_; }
  // Bytes of the member's pool region.
  uint64_t held_bytes(int member) const { return held_bytes_[member]; }
  // Where the run lies in the member's pool region; kNotHeld also for a layer that is not pooled.
  uint64_t OffsetOf(int member, const RunId& run) const;
  // The leaves of a pooled layer of which the member holds every run. Empty if these are not one
  // behind the other.
  const base::Part& LeavesOf(int member, int64_t layer) const {
    return HeldOf(member, layer).leaves;
  }
  // Where the reader takes the run from: itself if it holds it.
  int SourceOf(int reader, const RunId& run) const {
    return placement_->Source(reader, run, group_);
  }
  // What `reader` copies to have the piece of a pooled layer; empty: it has all of it. By run.
  std::vector<PullSpan> Pulls(int reader, int64_t layer, int32_t piece) const;
  uint64_t PullBytes(int reader, int64_t layer, int32_t piece) const {
    return HeldOf(reader, layer).lacked[static_cast<size_t>(piece)];
  }
  // Bytes that the member must pull in one step.
  uint64_t StepBytes(int reader) const;
  // The largest piece that the member pulls.
  uint64_t SlotBytes(int reader) const;

 private:
  // Runs [first, end) of a layer, which a member holds contiguously; `offset`: bytes of what it
  // holds of the layer before them.
  struct Stretch {
    int64_t first, end;
    uint64_t offset;
  };
  // What a member holds of layers of which it holds the same.
  struct Held {
    std::vector<Stretch> stretches;  // ascending
    uint64_t bytes = 0;
    std::vector<uint64_t> lacked;  // [pieces]: bytes of the other runs
    base::Part leaves;             // LeavesOf
  };
  // Of a pooled layer: what a member holds, from `offset` of its pool region on.
  struct HeldLayer {
    size_t held;
    uint64_t offset;
  };

  Held FindHeld(int member, int64_t layer) const;
  const HeldLayer& LayerOf(int member, int64_t layer) const;
  const Held& HeldOf(int member, int64_t layer) const { return held_[LayerOf(member, layer).held]; }

  const std::shared_ptr<const Placement> placement_;
  const PlacementGroup group_;
  std::vector<int64_t> layers_;  // [pooled layers] -> layer
  std::vector<Held> held_;
  std::vector<HeldLayer> held_layers_;  // [members x pooled layers]
  std::vector<uint64_t> held_bytes_;    // [members]
};

}  // namespace forebay::weights

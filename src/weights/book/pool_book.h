// The places of pooled tiles in the owners' pool regions and the readers' slots, and the copies of
// a pull. Pure: owners and readers agree because they compute the same.
//
//   pool region of a member: the pooled runs that it holds, by (layer, run), one behind the other
//   slot of a reader:      the runs of one piece of one layer that it lacks, by run, one behind the
//                          other
//
// The book grows with the runs of a kind of layer and with the stretches of runs of a member, not
// with tiles: DeepSeek-R1 has 21 million of these among 8 ranks.
#pragma once

#include <cstdint>
#include <vector>

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
  // Visits the layer's runs that the member does not hold, ascending.
  template <typename Visit>
  void ForEachLacked(int member, int64_t layer, Visit visit) const {
    const std::vector<TileRun>& runs = group_.layer(layer).runs;
    size_t run = 0;
    const auto visit_until = [&](size_t end) {
      for (; run < end; ++run) visit(runs[run]);
    };
    if (group_.pool_index[layer] >= 0) {
      for (const Stretch& held : StretchesOf(member, layer)) {
        visit_until(static_cast<size_t>(held.first));
        run = static_cast<size_t>(held.end);
      }
    }
    visit_until(runs.size());
  }
  // Where the reader takes the run from: itself if it holds it.
  int SourceOf(int reader, const RunId& run) const {
    return placement_->Source(reader, run, group_);
  }
  // What `reader` copies to have the piece of a pooled layer; empty: it has all of it. By run.
  std::vector<PullSpan> Pulls(int reader, int64_t layer, int32_t piece) const;
  uint64_t PullBytes(int reader, int64_t layer, int32_t piece) const;
  // Bytes that the member must pull in one step.
  uint64_t StepBytes(int reader) const;
  // The largest piece that the member pulls.
  uint64_t SlotBytes(int reader) const;

 private:
  // Runs [first, end) of a layer, which a member holds contiguously from `offset` on.
  struct Stretch {
    int64_t first, end;
    uint64_t offset;
  };

  const std::vector<Stretch>& StretchesOf(int member, int64_t layer) const;

  const std::shared_ptr<const Placement> placement_;
  const PlacementGroup group_;
  std::vector<int64_t> layers_;                  // [pooled layers] -> layer
  std::vector<std::vector<Stretch>> stretches_;  // [members x pooled layers], ascending
  std::vector<uint64_t> held_bytes_;             // [members]
};

}  // namespace forebay::weights

// The order in which a member of a pool pulls the pieces of a step, and their slots: pure functions
// of (member, layer, piece, phase).
//
// The copies of all steps are one endless sequence of fetches; fetch number g goes into slot g mod
// slots. The phase of a step is its first fetch's number mod slots. A slot's life (events of the
// device; the host enqueues in this order):
//
//   copy:     wait consumed[slot] | pull       | record ready[slot]
//   compute:  wait ready[slot]    | kernels    | record consumed[slot]
//
// So fetch g may be enqueued once the kernels that use fetch g - slots were, and `consumed`
// recorded after them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "weights/book/pool_book.h"

namespace forebay::weights {

inline constexpr base::ErrorCode kTooFewSlots{"pool_too_few_slots"};

// kAsUsed: in the order of the layers. kPeakShifted (SiDP, section 4.2), for whole layers with one
// owner each: a cycle has one pooled layer per member. In the cycle that begins at c, member r
// fetches c + r, c + r + 1, ..., wrapped.
enum class FetchOrder : uint8_t { kAsUsed, kPeakShifted };

struct Fetch {
  int64_t layer;
  int32_t piece;
  friend bool operator==(const Fetch&, const Fetch&) = default;
};

class PoolSchedule {
 public:
  // A schedule for `num_slots` slots. kTooFewSlots: the copies would wait for kernels that wait for
  // them; kPeakShifted needs a slot for each fetch of a cycle, kAsUsed at least one. With up to two
  // members both orders are one.
  static base::Result<PoolSchedule> Create(const PoolBook& book, int member, FetchOrder order,
                                           int64_t num_slots);

  // The least slots of an order.
  static int64_t MinSlots(const PoolBook& book, int member, FetchOrder order);

  int64_t num_slots() const { return num_slots_; }
  // The fetches of one step, in the order of the copies.
  const std::vector<Fetch>& fetches() const { return fetches_; }
  int64_t num_fetches() const { return static_cast<int64_t>(fetches_.size()); }
  // Which fetch of the step brings the piece; -1: nothing is lacking.
  int64_t FetchOf(int64_t layer, int32_t piece) const {
    return fetch_of_[layer * num_pieces_ + piece];
  }
  int64_t SlotOf(int64_t fetch, int64_t phase) const { return (phase + fetch) % num_slots_; }
  int64_t NextPhase(int64_t phase) const { return SlotOf(num_fetches(), phase); }
  // Phases 0, NextPhase(0), ... until they repeat.
  int64_t num_phases() const;
  // Phases are multiples of this.
  int64_t phase_step() const { return num_slots_ / num_phases(); }
  size_t PhaseIndex(int64_t phase) const { return static_cast<size_t>(phase / phase_step()); }

 private:
  int64_t num_slots_ = 1;
  int32_t num_pieces_ = 1;
  std::vector<Fetch> fetches_;
  std::vector<int64_t> fetch_of_;  // [layers x pieces]
};

// The slots, or fetches ahead, that the settings allow: as many as fit `budget_bytes` (0: the
// look-ahead), at most `look_ahead_bytes` or the fetches of `look_ahead_layers` layers ahead of the
// one in use (0: no bound), and at most a step's fetches. At least MinSlots and `least`, or
// kTooFewSlots with the bytes that these need.
struct SlotSettings {
  int64_t least = 1;
  uint64_t budget_bytes = 0;
  int64_t look_ahead_layers = 0;
  uint64_t look_ahead_bytes = 0;
};
base::Result<int64_t> ChooseSlots(const PoolBook& book, int member, FetchOrder order,
                                  const SlotSettings& settings);

// The host's side of the sequence of fetches: the ones that may be enqueued now. One per member;
// numbers never wrap.
class FetchWindow {
 public:
  explicit FetchWindow(const PoolSchedule& schedule)
      : schedule_(&schedule), used_(static_cast<size_t>(schedule.num_slots()), true) {}

  // The next fetch may be enqueued: its slot's last kernels were.
  bool CanFetch() const { return schedule_->num_fetches() > 0 && used_[next_ % used_.size()]; }
  // Enqueues the next fetch in name: which of a step's it is, and its slot.
  struct Next {
    int64_t fetch, slot, number;
  };
  Next TakeFetch();
  // The kernels that use `fetch` of the current step are enqueued, and `consumed` after them.
  void Use(int64_t fetch);
  // The current step is enqueued; what was fetched beyond it stays for the next. REQUIRES: all its
  // fetches were used.
  void EndStep();
  // Whether the fetch of the current step was taken, and where it lies.
  bool Fetched(int64_t fetch) const { return first_ + fetch < next_; }
  int64_t SlotOf(int64_t fetch) const { return (first_ + fetch) % schedule_->num_slots(); }
  int64_t phase() const { return first_ % schedule_->num_slots(); }
  // Fetches taken since the current step's first one.
  int64_t taken() const { return next_ - first_; }
  // Fetches taken for steps after the current one, or for the current one and not used yet.
  int64_t ahead() const { return next_ - first_ - used_in_step_; }

 private:
  const PoolSchedule* schedule_;
  // numbers of the current step's first fetch, of the next to be taken
  int64_t first_ = 0, next_ = 0;
  int64_t used_in_step_ = 0;
  std::vector<bool> used_;  // [slots] no enqueued operation needs its content
};

}  // namespace forebay::weights

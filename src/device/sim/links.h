// Links between simulated devices, as fluid flows: a flow moves bytes over two links at once, its source's egress and
// its destination's ingress, at a rate that changes only when some flow begins or ends.
//
// Invariants (CheckInvariants):
//  1. A link carries at most its capacity.
//  2. kFair: every moving flow has a link that is full and on which no flow is faster: the allocation is max-min fair.
//     kFifo: in the order of their start, each flow gets all that the earlier ones leave on its two links.
//  3. Bytes are conserved: what a link has carried, integrated over time, is what its flows have moved.
//  4. Time never runs backwards.
#pragma once

#include <cstdint>
#include <vector>

#include "device/sim/due_heap.h"

namespace forebay::device {

enum class LinkSharing : uint8_t { kFair, kFifo };

class Links {
 public:
  explicit Links(LinkSharing sharing) : sharing_(sharing) {}

  // Returns the link's number. REQUIRES: bytes_per_s > 0 and finite, no flow is active.
  int Add(double bytes_per_s);
  // A flow of `bytes` that moves from `begin` >= now on; at its end Pop returns `tag`. REQUIRES: source != target.
  void Start(TimePs now, TimePs begin, int source, int target, uint64_t bytes, uint64_t tag);
  // When the next flow begins to move or ends, after Settle.
  TimePs next() const { return next_; }
  // Takes what is due at next() == now: true and `tag` when a flow ended, false when one only began to move.
  bool Pop(TimePs now, uint64_t* tag);
  // Gives all flows their rates once everything at `now` has begun or ended; false: no rate has changed.
  bool Settle(TimePs now);

  // Bytes a second that the link carries now, after Settle.
  double load(int link) const { return links_[link].load * 1e12; }
  // Bytes that the link has carried until the last change of rates.
  double carried(int link) const { return links_[link].carried; }
  int64_t num_settles() const { return num_settles_; }
  // After Settle; FB_CHECKs the invariants above.
  void CheckInvariants() const;

 private:
  struct Link {
    double capacity;     // bytes a picosecond, as all rates here
    double load = 0;
    double carried = 0;
    double finished = 0;  // bytes of the flows that have ended
    // While rates are given: capacity not given yet, flows without a rate, and what is left for each of them.
    double left = 0, share = 0;
    int open = 0;
    bool full = false, touched = false;
  };
  struct Flow {
    int source, target;
    bool moving;
    double remaining;  // bytes at `since`
    double rate;
    double new_rate;   // while rates are given
    TimePs since;      // when `rate` began
    TimePs due;        // when it begins to move or ends; kNever: the rate is 0
    uint64_t bytes;
    uint64_t tag;
  };
  struct Gap {         // left by a flow that ended at this instant
    int source, target;
    double rate;
  };

  bool FillGap(Flow& flow);
  void ShareFairly();
  void ShareInOrder();
  void Carry(TimePs now);
  void FindNext();

  const LinkSharing sharing_;
  std::vector<Link> links_;
  std::vector<Flow> flows_;  // in the order of their start
  std::vector<Gap> gaps_;
  std::vector<Link*> open_links_;  // while rates are given
  std::vector<Flow*> open_flows_;
  bool changed_ = false;     // rates must be given anew
  TimePs carried_until_ = 0;
  TimePs next_ = kNever;
  int64_t num_settles_ = 0;
};

}  // namespace forebay::device

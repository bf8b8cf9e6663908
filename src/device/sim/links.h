// Links between simulated devices, as fluid flows: a flow moves bytes over two links at once, its
// source's egress and its destination's ingress, at a rate that changes only when some flow begins
// or ends.
//
// Invariants (CheckInvariants):
//  1. A link carries at most its capacity.
//  2. kFair: flows over the same two links are a pair and share the pair's rate, so the number of
//     slices of a copy does not matter. Every pair has a full link on which no pair is faster: the
//     allocation is max-min fair among pairs. kFifo: in the order of their start, each flow takes
//     all that earlier flows leave on its two links.
//  3. Bytes are conserved: a link's rate, integrated over time, equals the bytes of its
//     flows.
//  4. Time never runs backwards.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "device/sim/due_heap.h"

namespace forebay::device {

enum class LinkSharing : uint8_t { kFair, kFifo };

class Links {
 public:
  explicit Links(LinkSharing sharing) : sharing_(sharing) {}

  // Returns the link's number. REQUIRES: bytes_per_s > 0 and finite, no flow is active.
  int Add(double bytes_per_s);
  // A flow of `bytes` that moves from `begin` >= now on; at its end Pop returns `tag`. REQUIRES:
  // source != target.
  void Start(TimePs now, TimePs begin, int source, int target, uint64_t bytes, uint64_t tag);
  // When the next flow begins to move or ends, after Settle.
  TimePs next();
  // Takes the event due at next() == now: true and `tag` if a flow ended, false if one only began
  // to move.
  bool Pop(TimePs now, uint64_t* tag);
  // Gives all flows their rates once everything at `now` has begun or ended. The links whose load
  // has changed, until the next call.
  std::span<const int> Settle(TimePs now);

  // What a link has carried until now, and how much of that belongs to flows that have ended.
  struct Carried {
    double bytes = 0, finished = 0;
  };
  // A flow that has not ended.
  struct FlowState {
    int stream;  // the high half of its tag
    int pair;
    TimePs due_in;     // until it begins to move or ends; kNever: it stands
    double remaining;  // bytes
    auto operator<=>(const FlowState&) const = default;
  };
  // After Settle: all flows, in an order that does not depend on that of their starts, and what
  // each link has carried.
  void Observe(TimePs now, std::vector<FlowState>* flows, std::vector<Carried>* carried) const;
  // Lets `time` pass from `now` on. Every link carries `times` as much as since `before` was
  // observed, and all flows end as they are now. REQUIRES: Settle.
  void Skip(TimePs now, TimePs time, int64_t times, std::span<const Carried> before);

  // Bytes a second that the link carries now, after Settle.
  double load(int link) const { return links_[link].load * kPsPerSecond; }
  // Bytes that the link has carried until the last change of rates.
  double carried(int link) const { return CarriedBy(links_[link]); }
  // After Settle; FB_CHECKs the invariants above.
  void CheckInvariants() const;

 private:
  struct Link {
    double capacity;  // bytes a picosecond, as all rates here
    // kFair: what the link gives to each pair that no other link limits further; infinite if there
    // is none.
    double level = std::numeric_limits<double>::infinity();
    double load = 0;
    double carried = 0;      // until `since`
    TimePs since = 0;        // when `load` began
    double finished = 0;     // bytes of the flows that have ended
    std::vector<int> pairs;  // with flows that move, in any order
    bool queued = false;     // waits in queue_
    double left = 0;         // kFifo, while rates are given
  };
  // The flows over one source and one target. It stays on its links' lists from its first
  // moving flow to the Settle that finds none, so a flow that replaces another moves no other
  // pair.
  struct Pair {
    int source, target;
    std::vector<int> flows = {};  // that move, in any order
    double rate = 0;              // kFair: of all its flows together
    bool listed = false;          // on its links' lists
    bool changed = false;         // waits in changed_pairs_
  };
  struct Flow {
    int pair;
    bool active;  // begun and not ended
    bool moving;
    double remaining;  // bytes at `since`
    double rate;
    TimePs since;  // when `rate` began
    uint64_t bytes;
    uint64_t tag;
  };

  int PairOf(int source, int target);
  void BeginToMove(int number, TimePs now);
  void Change(int pair);
  void List(Pair& pair, int number);
  void ShareFairly(TimePs now);
  void ShareInOrder(TimePs now);
  double LevelOf(int link) const;
  void Queue(int link);
  int OtherLink(int pair, int link) const {
    return pairs_[pair].source ^ pairs_[pair].target ^ link;
  }
  void SetRate(int number, double rate, TimePs now);
  double LoadOf(const Pair& pair) const;
  void SetLoad(int number, TimePs now);
  double CarriedBy(const Link& link) const { return CarriedBy(link, settled_at_); }
  double CarriedBy(const Link& link, TimePs now) const {
    return link.carried + link.load * static_cast<double>(now - link.since);
  }

  const LinkSharing sharing_;
  std::vector<Link> links_;
  std::vector<Pair> pairs_;   // by number; never removed
  std::vector<int> pair_at_;  // [source][target]: the pair's number, or -1
  std::vector<Flow> flows_;   // by number
  // by number: when it begins to move or ends; kNever: not known, or there is no such flow
  std::vector<TimePs> due_;
  std::vector<int> order_;          // kFifo: numbers, in the order of their start
  std::vector<int> free_;           // numbers that are not in use
  std::vector<int> changed_pairs_;  // in which flows began or ended since the last Settle
  // links whose level must be found anew, and those of this Settle that are done
  std::vector<int> queue_;
  std::vector<int> changed_;  // what Settle returns
  bool next_known_ = true;
  TimePs next_ = kNever;
  size_t next_flow_ = 0;  // where next_known_ and next_ < kNever: the first that is due then
  TimePs settled_at_ = 0;
};

}  // namespace forebay::device

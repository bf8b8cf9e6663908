// The places in which states of layers are kept (kernels/delta_net.h): each is found by the key of
// the prefix behind which the state stands, as a block is. Pure book-keeping, like block_book.h.
//
// Invariants (CheckInvariants):
//  1. A place is free, kept (in the index) or loose (pinned, and in no index: it is being written,
//     or its key was forgotten).
//  2. A kept place that nobody pins can be evicted, the least recently used first; a loose one is
//     free when its last pin goes.
//  3. free + kept + loose = all places.
//
// After construction nothing allocates; each call costs O(1).
#pragma once

#include <cstdint>
#include <vector>

#include "kv/book/lru_list.h"
#include "kv/book/prefix_index.h"

namespace forebay::kv {

// Rows up to a position leave their state in a place.
struct StatePart {
  int64_t end;  // the first position behind them
  int32_t place;

  bool operator==(const StatePart&) const = default;
};

class StateBook {
 public:
  static constexpr int32_t kNone = -1;

  // Places `first` to first + count - 1; those before them are running choices' own.
  StateBook(int32_t first, int32_t count);

  // Whether the place is one of the book's.
  bool Has(int32_t place) const { return place >= first_; }
  // The place of that key; kNone: none is kept.
  int32_t Find(const PrefixKey& key) const;
  // A place for new content, pinned once: a free one, or else one that is evicted. kNone: all are
  // pinned.
  int32_t Take();
  // What the place has now stands behind this prefix. Where another place has that already, this
  // one stays loose. REQUIRES: it is loose.
  void Keep(int32_t place, const PrefixKey& key);
  // The prefix's last block was evicted: nobody can begin behind it any more.
  void Forget(const PrefixKey& key);
  // Somebody begins from the place: it keeps its content until the same number of Unpin.
  void Pin(int32_t place);
  void Unpin(int32_t place);

  int32_t kept() const { return index_.size(); }
  int64_t evictions() const { return evictions_; }
  // FB_CHECKs the invariants; for tests.
  void CheckInvariants() const;

 private:
  struct Place {
    PrefixKey key;
    int32_t pins = 0;
    bool kept = false;
  };

  Place& At(int32_t place);
  void Drop(int32_t place);  // it leaves the index

  const int32_t first_;
  std::vector<Place> places_;
  std::vector<int32_t> free_;  // a stack; counted from first_, as in the list and the index
  LruList evictable_;
  PrefixIndex index_;
  int64_t evictions_ = 0;
};

}  // namespace forebay::kv

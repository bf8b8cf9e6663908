// Blocks in the order of their last release: a list through an array of neighbours. Each operation
// is O(1), and nothing allocates after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "kv/book/prefix_index.h"

namespace forebay::kv {

class LruList {
 public:
  // For blocks 0 to num_blocks - 1, none of which is in the list.
  explicit LruList(int32_t num_blocks) : neighbours_(num_blocks) {}

  int32_t size() const { return size_; }
  // The one that has been in the list for the longest time; -1 if it is empty.
  BlockId oldest() const { return oldest_; }

  // REQUIRES: `id` is not in the list.
  void AddNewest(BlockId id) {
    neighbours_[id] = {.older = newest_};
    (newest_ >= 0 ? neighbours_[newest_].newer : oldest_) = id;
    newest_ = id;
    ++size_;
  }

  // REQUIRES: `id` is in the list.
  void Remove(BlockId id) {
    const Neighbours block = neighbours_[id];
    (block.older >= 0 ? neighbours_[block.older].newer : oldest_) = block.newer;
    (block.newer >= 0 ? neighbours_[block.newer].older : newest_) = block.older;
    --size_;
  }

  // Calls visit(id) from the oldest to the newest, and FB_CHECKs the list itself.
  template <typename Visit>
  void ForEach(Visit visit) const {
    int32_t count = 0;
    BlockId older = -1;
    for (BlockId id = oldest_; id >= 0; older = id, id = neighbours_[id].newer, ++count) {
      FB_CHECK(neighbours_[id].older == older && count < size_,
               "block {} is misplaced in LRU order", id);
      visit(id);
    }
    FB_CHECK(count == size_ && older == newest_, "{} blocks in LRU order, counted {}", count,
             size_);
  }

 private:
  struct Neighbours {
    BlockId older = -1, newer = -1;
  };

  std::vector<Neighbours> neighbours_;
  BlockId oldest_ = -1, newest_ = -1;
  int32_t size_ = 0;
};

}  // namespace forebay::kv

// The blocks below the device that are streamed. Each has one place in the window, in every layer
// and slot, while a running choice reads it. Pure book-keeping. Block tables name places beside
// kernels::kWindowBit.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "kv/book/prefix_index.h"

namespace forebay::kv {

// A block of the tier, and where it lies in each slot of the window.
struct StreamedBlock {
  int32_t place = 0;
  BlockId below = 0;
  // Another one for each time that a block of the tier gets a place: its content may differ.
  int64_t number = 0;

  bool operator==(const StreamedBlock&) const = default;
};

class StreamBook {
 public:
  explicit StreamBook(int32_t num_places);

  // One more choice reads the block. Returns its place, a new one for the first reader. REQUIRES:
  // room() > 0, or the block has a place.
  int32_t Take(BlockId below);
  // One fewer reads it.
  void Release(BlockId below);

  int32_t num_places() const { return num_places_; }
  int32_t room() const { return static_cast<int32_t>(free_.size()); }
  // Ascending places.
  std::span<const StreamedBlock> blocks();

 private:
  struct Readers {
    int32_t place = 0, count = 0;
    int64_t number = 0;
  };

  const int32_t num_places_;
  std::vector<int32_t> free_;  // a stack
  std::unordered_map<BlockId, Readers> readers_;
  std::vector<StreamedBlock> blocks_;
  int64_t taken_ = 0;     // places so far
  bool changed_ = false;  // since blocks_ was made
};

}  // namespace forebay::kv

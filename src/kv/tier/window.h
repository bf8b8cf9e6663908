// Streamed blocks lie in the tier below. In every step, layer by layer, one layer's part of each
// passes through one of a few slots.
//
//   region: slot 0, slot 1, ...; a slot: a layer's part of the block of place 0, of place 1, ...
//
// The copies of all steps are one endless sequence of fetches, a layer each. Fetch g goes into slot
// g mod slots. A slot's life (events of the device; the host enqueues in this order):
//
//   up:       wait consumed[slot] | copy      | record ready[slot]
//   compute:  wait ready[slot]    | attention | record consumed[slot]
//
// Fetches run ahead across the border of a step. Blocks streamed from the next step on
// are added to the slots that are already filled. Blocks no longer streamed stay there
// unread.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "kv/book/stream_book.h"
#include "kv/tier/tier.h"

namespace forebay::kv {

// Slots of a window: while one is read, the next is filled.
inline constexpr int64_t kWindowSlots = 2;

// The rank's control task calls; counters may be asked for from any thread. REQUIRES: the rank's
// layers are of one KV group.
class Window {
 public:
  // `region`: kWindowSlots * num_places * LayerBytes. The device must not run anything any more
  // when the window is destroyed; the others outlive it.
  Window(device::Device& device, const Cache& cache, Tier& tier, const device::Region& region,
         int32_t num_places);

  // Whether something that was fetched, and perhaps has not come, lies where these go down to.
  bool Reads(std::span<const TierMove> down) const;
  // Before a step is enqueued, after Tier::BeginStep: the blocks that its tables place in the
  // window, by ascending place. Without blocks the step fetches nothing.
  void BeginStep(std::span<const StreamedBlock> blocks);
  // The place of the layer's blocks, for operations enqueued before Release. Call for the step's
  // layers in order.
  kernels::KvLayer Acquire(int64_t layer);
  void Release(int64_t layer);

  // Blocks streamed in the steps so far, each once a step, and bytes fetched.
  int64_t block_steps() const { return block_steps_; }
  uint64_t bytes() const { return bytes_; }

 private:
  const std::vector<StreamedBlock>& blocks() const { return lists_[current_].blocks; }
  size_t SlotOf(int64_t fetch) const { return static_cast<size_t>(fetch % kWindowSlots); }
  std::byte* SlotAt(int64_t fetch) const { return slots_ + SlotOf(fetch) * slot_bytes_; }
  // Enqueues the copies of the fetch's layer.
  void Fetch(int64_t fetch, const std::vector<StreamedBlock>& blocks);
  void Pump();

  device::Device& device_;
  const Cache& cache_;
  Tier& tier_;
  const int64_t num_layers_;
  const uint64_t part_bytes_, slot_bytes_;
  std::byte* const slots_;
  // Lists that running copies read. A step's copies have ended when it ends, so two lists in turns
  // suffice.
  struct Lists {
    std::vector<StreamedBlock> blocks, added;
  };
  std::array<Lists, 2> lists_;
  size_t current_ = 0;
  // Numbers of fetches: the current step's first, the next to be taken, and the first whose
  // kernels were not enqueued.
  int64_t first_ = 0, next_ = 0, used_ = 0;
  std::array<std::unique_ptr<device::DeviceEvent>, kWindowSlots> ready_, consumed_;
  int64_t fetches_ = 0;  // so far, for trials
  std::atomic<int64_t> block_steps_{0};
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace forebay::kv

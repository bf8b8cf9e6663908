// The way of streamed blocks through a rank: they lie in the tier below, and one layer's part of
// each of them passes through one of a few slots, layer by layer, in every step.
//
//   region: slot 0, slot 1, ...; a slot: a layer's part of the block of place 0, of place 1, ...
//
// The copies of all steps are one endless row of fetches, a layer each; fetch g goes into slot g
// mod slots. A slot's life (events of the device; the host enqueues in this order):
//
//   up:       wait consumed[slot] | copy      | record ready[slot]
//   compute:  wait ready[slot]    | attention | record consumed[slot]
//
// Fetches run ahead over the border of a step. Blocks that are streamed from the next step on are
// brought after into the slots that are filled already; what is streamed no more stays there, and
// nobody looks at it.
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
  // Before a step is enqueued, after Tier::BeginStep: what its tables say lies in the window,
  // ascending places. None: the step fetches nothing.
  void BeginStep(std::span<const StreamedBlock> blocks);
  // Where the layer's blocks are, for what is enqueued between these two. The step's layers in
  // order.
  kernels::KvLayer Acquire(int64_t layer);
  void Release(int64_t layer);

  // Blocks that were streamed in the steps so far, each once a step, and bytes that were fetched.
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
  // What copies read that are under way: those of a step have come when it ends, so that two lists
  // in turns suffice.
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

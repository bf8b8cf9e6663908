// A rank's tier of KV in the memory of its host: where blocks lie below, and how they get there and
// back. Which do is decided by a book (kv/book/tier_book.h) that all ranks of a replica share.
//
//   a block below: the strips of the first KV group, of the second, ...   (kv/cache.h)
//
// Three streams meet. What goes down is read after the steps that wrote it, which have ended, and
// the next step waits for it (*stored*), since it may write over it. What comes up waits for what
// goes down before it, whose blocks it may take, and the step after waits for it (*ready*); so it
// has the time of a whole step. What goes down waits for what comes up: a block below is not
// written while it is read. What passes through a window (kv/tier/window.h) comes up in the same
// stream.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "kv/cache.h"

namespace forebay::kv {

// A block of a KV group, and where it lies below.
struct TierMove {
  int32_t group = 0;
  BlockId device = 0, below = 0;
};
struct TierMoves {
  std::vector<TierMove> down, up;

  bool empty() const { return down.empty() && up.empty(); }
  void Clear() {
    down.clear();
    up.clear();
  }
};

// The rank's control task calls; counters may be asked for from any thread.
class HostTier {
 public:
  // Takes `num_blocks` times the bytes of a block from the host. The device must not run anything
  // any more when the tier is destroyed; `cache` outlives it. Errors: kOutOfMemory.
  static base::Result<std::unique_ptr<HostTier>> Create(device::Device& device, const Cache& cache,
                                                        int32_t num_blocks);

  // At a step's border, before the step is enqueued: holds it until what came up before is there,
  // begins the moves, and holds it until what goes down is below. `after_window`: something that
  // is on its way up through the window lies where something goes down to.
  void BeginStep(const TierMoves& moves, bool after_window = false);
  // Blocks until nothing moves.
  void Quiesce();

  // A layer's part of block 0, where `layer` counts in the first KV group, and how far the next
  // block's is.
  const std::byte* LayerBelow(int64_t layer) const {
    return region_->data + layer * cache_.view().groups[0].layout.LayerBytes();
  }
  uint64_t block_bytes() const { return block_bytes_; }
  // What went down before the step that began last is there.
  const device::DeviceEvent& stored() const { return *stored_; }

  uint64_t bytes_down() const { return bytes_down_; }
  uint64_t bytes_up() const { return bytes_up_; }
  // Processor time of the copies, where cores copy.
  double core_seconds() const;

 private:
  HostTier(device::Device& device, const Cache& cache);
  // Enqueues copies one way; returns their bytes.
  uint64_t Copy(device::Stream& stream, std::span<const TierMove> moves, bool down);

  device::Device& device_;
  const Cache& cache_;
  std::vector<uint64_t> group_offsets_;  // in a block below
  uint64_t block_bytes_ = 0;
  std::unique_ptr<device::Arena> arena_;
  const device::Region* region_ = nullptr;
  const std::unique_ptr<device::DeviceEvent> stored_, ready_, streamed_;
  device::Stream &down_, &up_;
  bool coming_up_ = false;  // since the last step that waited for `ready_`
  std::atomic<uint64_t> bytes_down_{0}, bytes_up_{0};
};

}  // namespace forebay::kv

// A rank's tier of KV below its device: how blocks get there and back in the order of steps. Where
// they lie is a store's business (kv/tier/store.h); which do is decided by a book
// (kv/book/tier_book.h) that all ranks of a replica share.
//
// Three streams meet. What goes down is read after the steps that wrote it, which have ended, and
// the next step waits until it may be written over (*stored*). What comes up waits for what goes
// down before it, whose blocks it may take, and the step after waits for it (*ready*); so it has
// the time of a whole step, unless it is wanted at once. What goes down waits for what comes up: a
// block below is not written while it is read. What passes through a window (kv/tier/window.h)
// comes up in the same stream.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>

#include "device/device.h"
#include "fabric/pace.h"
#include "kv/cache.h"
#include "kv/tier/file_store.h"
#include "kv/tier/store.h"

namespace forebay::kv {

// Trials: KV that comes up more slowly than it could.
struct SlowUp {
  fabric::LinkPace link;  // without a runtime nothing is slow
  // The window's fetch of this number, from 0 on, stands still for so long; 0: none does.
  runtime::TimeNs stall = 0;
  int64_t stall_at = 0;
};

// The rank's control task calls; counters may be asked for from any thread.
class Tier {
 public:
  // The device must not run anything any more when the tier is destroyed; `cache` outlives it.
  // Errors: those of the stores. REQUIRES: there is a block.
  static base::Result<std::unique_ptr<Tier>> Create(device::Device& device, const Cache& cache,
                                                    const TierBlocks& blocks,
                                                    const FileOptions& file = {},
                                                    const SlowUp& slow_up = {});

  // At a step's border, before the step is enqueued: begins the moves. The step then waits until
  // earlier copies up have ended, the blocks that go down may be overwritten, and the blocks that
  // it reads at once have come up. `after_window`: a copy up through the window still reads a place
  // that a block goes down to.
  void BeginStep(const TierMoves& moves, bool after_window = false);
  // Begins to bring up what lies in another rank's memory below, whose layers and heads are the
  // same; the next step waits for it. REQUIRES: it stands there, and stays.
  void UpFrom(const HostStore& other, std::span<const TierMove> moves);
  // Blocks until nothing moves.
  void Quiesce();
  // Blocks until what comes up is there. False: it is not there after `timeout`.
  bool WaitUp(runtime::TimeNs timeout);

  const SlowUp& slow_up() const { return slow_up_; }
  Store& store() { return *store_; }
  const Store& store() const { return *store_; }
  // What went down before the step that began last can be read from the first level.
  const device::DeviceEvent& readable() const {
    return store_->near() != nullptr ? *stored_ : *written_;
  }

  // Its copies', up and down.
  std::array<const device::Stream*, 2> streams() const { return {&up_, &down_}; }

  uint64_t bytes_down() const { return bytes_down_; }
  uint64_t bytes_up() const { return bytes_up_; }
  // Processor time of the copies, where cores copy.
  double core_seconds() const;

 private:
  Tier(device::Device& device, const Cache& cache, const SlowUp& slow_up);
  // *ready* comes after everything on the up stream.
  void EndUp(std::span<const TierMove> moves);
  // That go from the device or to it.
  uint64_t BytesOf(std::span<const TierMove> moves) const;

  device::Device& device_;
  const Cache& cache_;
  const SlowUp slow_up_;
  std::unique_ptr<Store> store_;
  const std::unique_ptr<device::DeviceEvent> stored_, written_, ready_, streamed_;
  device::Stream &down_, &up_;
  bool coming_up_ = false;  // since the last step that waited for `ready_`
  std::atomic<uint64_t> bytes_down_{0}, bytes_up_{0};
};

}  // namespace forebay::kv

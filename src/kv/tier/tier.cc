#include "kv/tier/tier.h"

#include "kv/tier/chain_store.h"
#include "kv/tier/host_store.h"
#include "kv/tier/strip_copies.h"

namespace forebay::kv {

Tier::Tier(device::Device& device, const Cache& cache, const SlowUp& slow_up)
    : device_(device),
      cache_(cache),
      slow_up_(slow_up),
      stored_(device.NewEvent()),
      written_(device.NewEvent()),
      ready_(device.NewEvent()),
      streamed_(device.NewEvent()),
      down_(device.copy(device::CopyKind::kKvDown)),
      up_(device.copy(device::CopyKind::kKvUp)) {}

base::Result<std::unique_ptr<Tier>> Tier::Create(device::Device& device, const Cache& cache,
                                                 const TierBlocks& blocks, const FileOptions& file,
                                                 const SlowUp& slow_up) {
  std::unique_ptr<Tier> tier(new Tier(device, cache, slow_up));
  std::unique_ptr<HostStore> near;
  if (blocks.in_memory > 0) {
    FB_ASSIGN_OR_RETURN(near, HostStore::Create(device, cache, blocks.in_memory));
  }
  std::unique_ptr<FileStore> far;
  if (blocks.in_file > 0) {
    FileOptions options = file;
    options.near = near.get();
    FB_ASSIGN_OR_RETURN(far, FileStore::Create(device, cache, blocks.in_file, options));
  }
  if (near && far) {
    tier->store_ = std::make_unique<ChainStore>(std::move(near), blocks.in_memory, std::move(far));
  } else if (near) {
    tier->store_ = std::move(near);
  } else {
    tier->store_ = std::move(far);
  }
  return tier;
}

uint64_t Tier::BytesOf(std::span<const TierMove> moves) const {
  uint64_t bytes = 0;
  for (const TierMove& move : moves)
    bytes += move.from < 0 ? StripBytes(cache_.strips()[static_cast<size_t>(move.group)]) : 0;
  return bytes;
}

void Tier::BeginStep(const TierMoves& moves, bool after_window) {
  device::Stream& compute = device_.compute();
  // What the last step's moves bring up is run from this step on.
  if (coming_up_) compute.Wait(*ready_);
  coming_up_ = !moves.up.empty();
  if (!moves.down.empty()) {
    // A place below that is written now may have been given up while copies on their way up still
    // read it: by the last moves, or by the window's fetches, which are on the same stream.
    if (after_window) up_.Record(*streamed_);
    down_.Wait(after_window ? *streamed_ : *ready_);
    store_->Down(down_, moves.down, *stored_);
    down_.Record(*written_);
    // The step may write into the blocks that go down.
    compute.Wait(*stored_);
    bytes_down_ += BytesOf(moves.down);
  }
  if (!moves.up.empty()) {
    up_.Wait(store_->ReadsWritten(moves.up) ? *written_ : *stored_);
    store_->Up(up_, moves.up);
    EndUp(moves.up);
    if (moves.up_at_once) compute.Wait(*ready_);
  }
}

void Tier::EndUp(std::span<const TierMove> moves) {
  if (slow_up_.link.runtime != nullptr) {
    fabric::Hold(up_, *slow_up_.link.runtime, fabric::TimeOf(BytesOf(moves), slow_up_.link),
                 "kv_up, paced");
  }
  up_.Record(*ready_);
  bytes_up_ += BytesOf(moves);
}

void Tier::UpFrom(const HostStore& other, std::span<const TierMove> moves) {
  // The blocks may be those of the last moves down.
  up_.Wait(*stored_);
  for (const TierMove& move : moves)
    EnqueueUp(up_, cache_, move, other.PartAt(move.group, move.below));
  EndUp(moves);
  coming_up_ = true;
}

void Tier::Quiesce() {
  (void)device_.Synchronize(down_);
  (void)device_.Synchronize(up_);
}

bool Tier::WaitUp(runtime::TimeNs timeout) {
  return !coming_up_ || device_.WaitFor(*ready_, timeout);
}

double Tier::core_seconds() const { return device_.TimeOf(down_).core + device_.TimeOf(up_).core; }

}  // namespace forebay::kv

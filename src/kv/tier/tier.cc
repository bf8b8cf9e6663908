#include "kv/tier/tier.h"

#include "kv/tier/host_store.h"
#include "kv/tier/strip_copies.h"

namespace forebay::kv {

Tier::Tier(device::Device& device, const Cache& cache)
    : device_(device),
      cache_(cache),
      stored_(device.NewEvent()),
      written_(device.NewEvent()),
      ready_(device.NewEvent()),
      streamed_(device.NewEvent()),
      down_(device.copy(device::CopyKind::kKvDown)),
      up_(device.copy(device::CopyKind::kKvUp)) {}

base::Result<std::unique_ptr<Tier>> Tier::Create(device::Device& device, const Cache& cache,
                                                 int32_t num_blocks, const FileOptions& file) {
  std::unique_ptr<Tier> tier(new Tier(device, cache));
  FB_ASSIGN_OR_RETURN(tier->store_, file.path.empty()
                                        ? HostStore::Create(device, cache, num_blocks)
                                        : FileStore::Create(device, cache, num_blocks, file));
  return tier;
}

uint64_t Tier::BytesOf(std::span<const TierMove> moves) const {
  uint64_t bytes = 0;
  for (const TierMove& move : moves)
    bytes += StripBytes(cache_.strips()[static_cast<size_t>(move.group)]);
  return bytes;
}

void Tier::BeginStep(const TierMoves& moves, bool after_window) {
  device::Stream& compute = device_.compute();
  if (coming_up_) compute.Wait(*ready_);
  coming_up_ = !moves.up.empty();
  if (!moves.down.empty()) {
    if (after_window) up_.Record(*streamed_);
    down_.Wait(after_window ? *streamed_ : *ready_);
    store_->Down(down_, moves.down, *stored_);
    down_.Record(*written_);
    compute.Wait(*stored_);
    bytes_down_ += BytesOf(moves.down);
  }
  if (!moves.up.empty()) {
    up_.Wait(*written_);
    store_->Up(up_, moves.up);
    up_.Record(*ready_);
    bytes_up_ += BytesOf(moves.up);
  }
}

void Tier::Quiesce() {
  (void)device_.Synchronize(down_);
  (void)device_.Synchronize(up_);
}

bool Tier::WaitUp(runtime::TimeNs timeout) {
  return !coming_up_ || !store_->can_lose() || device_.WaitFor(*ready_, timeout);
}

double Tier::core_seconds() const { return device_.TimeOf(down_).core + device_.TimeOf(up_).core; }

}  // namespace forebay::kv

#include "kv/tier/host_tier.h"

#include <algorithm>

#include "base/units.h"
#include "device/copy.h"

namespace forebay::kv {

HostTier::HostTier(device::Device& device, const Cache& cache)
    : device_(device),
      cache_(cache),
      stored_(device.NewEvent()),
      ready_(device.NewEvent()),
      streamed_(device.NewEvent()),
      down_(device.copy(device::CopyKind::kKvDown)),
      up_(device.copy(device::CopyKind::kKvUp)) {
  for (const std::vector<Cache::Strip>& strips : cache.strips()) {
    group_offsets_.push_back(block_bytes_);
    for (const Cache::Strip& strip : strips) block_bytes_ += strip.bytes;
  }
}

base::Result<std::unique_ptr<HostTier>> HostTier::Create(device::Device& device, const Cache& cache,
                                                         int32_t num_blocks) {
  std::unique_ptr<HostTier> tier(new HostTier(device, cache));
  const uint64_t bytes = static_cast<uint64_t>(num_blocks) * tier->block_bytes_;
  tier->arena_ = device.NewHostArena(base::RoundUp(std::max(uint64_t{1}, bytes), 4 * base::kKiB));
  FB_ASSIGN_OR_RETURN(tier->region_, tier->arena_->Allocate("kv below", bytes));
  return tier;
}

uint64_t HostTier::Copy(device::Stream& stream, std::span<const TierMove> moves, bool down) {
  uint64_t bytes = 0;
  for (const TierMove& move : moves) {
    const auto group = static_cast<size_t>(move.group);
    std::byte* below =
        region_->data + static_cast<uint64_t>(move.below) * block_bytes_ + group_offsets_[group];
    for (const Cache::Strip& strip : cache_.strips()[group]) {
      std::byte* const above =
          cache_.region().data + strip.offset + static_cast<uint64_t>(move.device) * strip.bytes;
      stream.Enqueue(down ? device::MakeCopy("kv_down", below, above, strip.bytes)
                          : device::MakeCopy("kv_up", above, below, strip.bytes));
      below += strip.bytes;
      bytes += strip.bytes;
    }
  }
  return bytes;
}

void HostTier::BeginStep(const TierMoves& moves, bool after_window) {
  device::Stream& compute = device_.compute();
  if (coming_up_) compute.Wait(*ready_);
  coming_up_ = !moves.up.empty();
  if (!moves.down.empty()) {
    if (after_window) up_.Record(*streamed_);
    down_.Wait(after_window ? *streamed_ : *ready_);
    bytes_down_ += Copy(down_, moves.down, /*down=*/true);
    down_.Record(*stored_);
    compute.Wait(*stored_);
  }
  if (!moves.up.empty()) {
    up_.Wait(*stored_);
    bytes_up_ += Copy(up_, moves.up, /*down=*/false);
    up_.Record(*ready_);
  }
}

void HostTier::Quiesce() {
  (void)device_.Synchronize(down_);
  (void)device_.Synchronize(up_);
}

double HostTier::core_seconds() const {
  return device_.TimeOf(down_).core + device_.TimeOf(up_).core;
}

}  // namespace forebay::kv

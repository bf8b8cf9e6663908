#include "kv/tier/host_store.h"

#include <algorithm>

#include "base/units.h"

namespace forebay::kv {

base::Result<std::unique_ptr<HostStore>> HostStore::Create(device::Device& device,
                                                           const Cache& cache, int32_t num_blocks) {
  std::unique_ptr<HostStore> store(new HostStore(cache));
  const uint64_t bytes = static_cast<uint64_t>(num_blocks) * store->block_.bytes;
  store->arena_ = device.NewHostArena(base::RoundUp(std::max(uint64_t{1}, bytes), 4 * base::kKiB));
  FB_ASSIGN_OR_RETURN(store->region_, store->arena_->Allocate("kv below", bytes));
  return store;
}

std::byte* HostStore::PartAt(int32_t group, BlockId block) const {
  return region_->data + static_cast<uint64_t>(block) * block_.bytes +
         block_.offsets[static_cast<size_t>(group)];
}

void HostStore::Down(device::Stream& stream, std::span<const TierMove> moves,
                     device::DeviceEvent& stored) {
  for (const TierMove& move : moves)
    EnqueueDown(stream, cache_, move, PartAt(move.group, move.below));
  stream.Record(stored);
}

void HostStore::Up(device::Stream& stream, std::span<const TierMove> moves) {
  for (const TierMove& move : moves)
    EnqueueUp(stream, cache_, move, PartAt(move.group, move.below));
}

}  // namespace forebay::kv

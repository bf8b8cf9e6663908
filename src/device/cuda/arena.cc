#include "device/cuda/arena.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/units.h"

namespace forebay::device {
namespace {

constexpr uint64_t kCudaPage = 4 * base::kKiB;

}  // namespace

CudaArena::~CudaArena() {
  for (const Allocation& allocation : allocations_) {
    if (allocation.pinned) {
      driver_.MemFreeHost(allocation.data);
    } else {
      driver_.MemFree(reinterpret_cast<cu::DevicePtr>(allocation.data));
    }
  }
}

base::Result<CudaArena::Allocation> CudaArena::NewMemory(uint64_t bytes, bool pinned) {
  if (pinned) {
    void* data = nullptr;
    FB_RETURN_IF_ERROR(
        driver_.Check(driver_.MemHostAlloc(&data, bytes, cu::kHostPortable | cu::kHostMapped),
                      fmt::format("{} of pinned memory", base::FormatBytes(bytes))));
    std::memset(data, 0, bytes);
    return Allocation{static_cast<std::byte*>(data), true};
  }
  cu::DevicePtr address = 0;
  FB_RETURN_IF_ERROR(
      driver_.Check(driver_.MemAlloc(&address, bytes),
                    fmt::format("{} of the GPU's memory", base::FormatBytes(bytes))));
  const Allocation allocation{reinterpret_cast<std::byte*>(address), false};
  // No stream of the device waits for the default one, so the host does.
  base::Status cleared = driver_.Check(driver_.MemsetD8(address, 0, bytes), "clearing memory");
  if (cleared.ok()) cleared = driver_.Check(driver_.StreamSynchronize(nullptr), "clearing memory");
  if (!cleared.ok()) {
    driver_.MemFree(address);
    return cleared;
  }
  return allocation;
}

base::Result<const Region*> CudaArena::Allocate(std::string name, uint64_t bytes, MemoryUse use) {
  const uint64_t committed =
      bytes > budget_ ? bytes : std::max(kCudaPage, base::RoundUp(bytes, kCudaPage));
  if (committed > budget_ - used_) {
    std::string held;
    for (const auto& region : regions_) {
      held += fmt::format("{}'{}' {}", held.empty() ? "" : ", ", region->name,
                          base::FormatBytes(region->bytes));
    }
    return base::Status(
        kArenaFull,
        fmt::format("rank {}: region '{}' needs {} ({} bytes), but of the memory budget of {} only "
                    "{} ({} bytes) are left; it holds {}",
                    rank_, name, base::FormatBytes(bytes), bytes, base::FormatBytes(budget_),
                    base::FormatBytes(budget_ - used_), budget_ - used_,
                    held.empty() ? "nothing" : held));
  }
  base::Result<Allocation> allocation = NewMemory(committed, pinned_ || use == MemoryUse::kControl);
  if (!allocation.ok())
    return allocation.status().WithContext(fmt::format("rank {}: region '{}'", rank_, name));
  allocations_.push_back(*allocation);
  used_ += committed;
  return regions_
      .emplace_back(std::make_unique<Region>(Region{.rank = rank_,
                                                    .id = static_cast<int>(regions_.size()),
                                                    .name = std::move(name),
                                                    .data = allocation->data,
                                                    .bytes = bytes}))
      .get();
}

}  // namespace forebay::device

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
  context_->Enter();
  for (const Allocation& allocation : allocations_) {
    if (allocation.pinned) {
      driver_.MemFreeHost(allocation.data);
    } else {
      driver_.MemFree(reinterpret_cast<cu::DevicePtr>(allocation.data));
    }
  }
}

base::Result<std::byte*> CudaArena::NewMemory(uint64_t bytes, unsigned flags) {
  if (flags != 0) {
    void* data = nullptr;
    FB_RETURN_IF_ERROR(driver_.Check(driver_.MemHostAlloc(&data, bytes, flags),
                                     fmt::format("{} of pinned memory", base::FormatBytes(bytes))));
    std::memset(data, 0, bytes);
    allocations_.push_back({static_cast<std::byte*>(data), true});
    return allocations_.back().data;
  }
  cu::DevicePtr address = 0;
  FB_RETURN_IF_ERROR(
      driver_.Check(driver_.MemAlloc(&address, bytes),
                    fmt::format("{} of the GPU's memory", base::FormatBytes(bytes))));
  allocations_.push_back({reinterpret_cast<std::byte*>(address), false});
  // No stream of the device waits for the default one, so the host does.
  FB_RETURN_IF_ERROR(driver_.Check(driver_.MemsetD8(address, 0, bytes), "clearing memory"));
  FB_RETURN_IF_ERROR(driver_.Check(driver_.StreamSynchronize(nullptr), "clearing memory"));
  return allocations_.back().data;
}

base::Result<std::byte*> CudaArena::NewRegion(uint64_t bytes, MemoryUse use) {
  if (pinned_) return NewMemory(bytes, cu::kHostPortable | cu::kHostMapped);
  FB_ASSIGN_OR_RETURN(std::byte* const device, NewMemory(bytes, 0));
  if (use == MemoryUse::kData) return device;
  FB_ASSIGN_OR_RETURN(std::byte* const host, NewMemory(bytes, cu::kHostPortable));
  mirrors_.push_back({host, bytes, device});
  return host;
}

const void* CudaArena::OnDevice(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  for (const Mirror& mirror : mirrors_) {
    if (at >= mirror.host && at < mirror.host + mirror.bytes)
      return mirror.device + (at - mirror.host);
  }
  return address;
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
  const base::Result<std::byte*> data = NewRegion(committed, use);
  if (!data.ok())
    return data.status().WithContext(fmt::format("rank {}: region '{}'", rank_, name));
  used_ += committed;
  return regions_
      .emplace_back(std::make_unique<Region>(Region{.rank = rank_,
                                                    .id = static_cast<int>(regions_.size()),
                                                    .name = std::move(name),
                                                    .data = *data,
                                                    .bytes = bytes}))
      .get();
}

}  // namespace forebay::device

#include "device/cpu/arena.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/units.h"

namespace forebay::device {
namespace {

constexpr uint64_t kPage = 4 * base::kKiB;
constexpr uint64_t kHugePage = 2 * base::kMiB;

}  // namespace

CpuArena::~CpuArena() {
  for (const Mapping& mapping : mappings_) munmap(mapping.address, mapping.bytes);
}

base::Result<const Region*> CpuArena::Allocate(std::string name, uint64_t bytes, MemoryUse use) {
  // before rounding, which could overflow
  if (bytes > budget_ - used_) return FullError(name, bytes);
  // A region without bytes takes none, unless another process maps it.
  const uint64_t committed = std::max(shared_memory_ < 0 ? 0 : kPage, base::RoundUp(bytes, kPage));
  if (committed > budget_ - used_) return FullError(name, bytes);

  // | unused, up to 2 MiB | the region, from a multiple of 2 MiB | guard page |; all but the region
  // is inaccessible.
  const uint64_t reserved = kHugePage + committed + kPage;
  void* const mapping =
      mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return base::Status(base::kOutOfMemory,
                        fmt::format("rank {}: no address space for region '{}' of {}: {}", rank_,
                                    name, base::FormatBytes(bytes), strerror(errno)));
  }
  mappings_.push_back({mapping, reserved});
  auto* const data =
      reinterpret_cast<std::byte*>(base::RoundUp(reinterpret_cast<uintptr_t>(mapping), kHugePage));
  const bool usable = use == MemoryUse::kControl || bytes <= max_usable_bytes_;
  if (usable && !Commit(data, committed)) {
    return base::Status(base::kOutOfMemory,
                        fmt::format("rank {}: no memory for region '{}' of {}: {}", rank_, name,
                                    base::FormatBytes(bytes), strerror(errno)));
  }
  // A partial huge page at the end would commit more than the region's share of the budget.
  if (const uint64_t huge = committed / kHugePage * kHugePage;
      usable && huge > 0 && shared_memory_ < 0) {
    madvise(data, huge, MADV_HUGEPAGE);
  }

  const int64_t shared_offset = shared_memory_ < 0 ? -1 : static_cast<int64_t>(used_);
  used_ += committed;
  const int id = static_cast<int>(regions_.size());
  return regions_
      .emplace_back(
          std::make_unique<Region>(Region{rank_, id, std::move(name), data, bytes, shared_offset}))
      .get();
}

bool CpuArena::Commit(std::byte* data, uint64_t bytes) {
  if (shared_memory_ < 0) return mprotect(data, bytes, PROT_READ | PROT_WRITE) == 0;
  if (ftruncate(shared_memory_, static_cast<off_t>(used_ + bytes)) != 0) return false;
  void* const mapped = mmap(data, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                            shared_memory_, static_cast<off_t>(used_));
  return mapped == data;
}

base::Status CpuArena::FullError(const std::string& name, uint64_t bytes) const {
  std::string held = regions_.empty() ? "nothing" : "";
  for (const auto& region : regions_) {
    held += fmt::format("{}'{}' {}", held.empty() ? "" : ", ", region->name,
                        base::FormatBytes(region->bytes));
  }
  return {kArenaFull,
          fmt::format(
              "rank {}: region '{}' needs {} ({} bytes), but of the memory budget of {} only {} "
              "({} bytes) are left; it holds {}",
              rank_, name, base::FormatBytes(bytes), bytes, base::FormatBytes(budget_),
              base::FormatBytes(budget_ - used_), budget_ - used_, held)};
}

}  // namespace forebay::device

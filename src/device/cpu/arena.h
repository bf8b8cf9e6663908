#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"

namespace forebay::device {

// Memory, one mapping a region: address space is reserved region by region, pages are committed
// when touched. Data regions of more than `max_usable_bytes` are address space alone: touching one
// faults. With a `shared_memory` file, which only this arena extends, regions lie in it in order
// (shared memory gets no huge pages on a stock Debian).
class CpuArena : public Arena {
 public:
  CpuArena(int rank, uint64_t budget, uint64_t max_usable_bytes = UINT64_MAX,
           int shared_memory = -1)
      : rank_(rank),
        budget_(budget),
        max_usable_bytes_(max_usable_bytes),
        shared_memory_(shared_memory) {}
  ~CpuArena() override;

  uint64_t budget() const override { return budget_; }
  uint64_t used() const override { return used_; }
  base::Result<const Region*> Allocate(std::string name, uint64_t bytes,
                                       MemoryUse use = MemoryUse::kData) override;
  std::span<const std::unique_ptr<Region>> regions() const override { return regions_; }

 private:
  struct Mapping {
    void* address;
    uint64_t bytes;
  };

  // Makes the reserved range usable.
  bool Commit(std::byte* data, uint64_t bytes);
  base::Status FullError(const std::string& name, uint64_t bytes) const;

  const int rank_;
  const uint64_t budget_, max_usable_bytes_;
  const int shared_memory_;
  uint64_t used_ = 0;
  std::vector<std::unique_ptr<Region>> regions_;
  std::vector<Mapping> mappings_;
};

}  // namespace forebay::device

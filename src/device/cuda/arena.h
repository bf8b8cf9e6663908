#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/cuda/driver.h"
#include "device/device.h"

namespace forebay::device {

// One allocation of the driver a region: data in the GPU's memory, which the host cannot touch,
// control memory pinned in the host's. A `pinned` arena has all of its regions there. REQUIRES of
// all calls: the context is current on the thread.
class CudaArena final : public Arena {
 public:
  CudaArena(const Driver& driver, int rank, uint64_t budget, bool pinned)
      : driver_(driver), rank_(rank), budget_(budget), pinned_(pinned) {}
  ~CudaArena() override;

  uint64_t budget() const override { return budget_; }
  uint64_t used() const override { return used_; }
  base::Result<const Region*> Allocate(std::string name, uint64_t bytes, MemoryUse use) override;
  std::span<const std::unique_ptr<Region>> regions() const override { return regions_; }

 private:
  struct Allocation {
    std::byte* data;
    bool pinned;
  };
  // Zeroed memory.
  base::Result<Allocation> NewMemory(uint64_t bytes, bool pinned);

  const Driver& driver_;
  const int rank_;
  const uint64_t budget_;
  const bool pinned_;
  uint64_t used_ = 0;
  std::vector<std::unique_ptr<Region>> regions_;
  std::vector<Allocation> allocations_;
};

}  // namespace forebay::device

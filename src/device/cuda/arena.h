#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "device/cuda/context.h"
#include "device/device.h"

namespace forebay::device {

// Data regions lie in the GPU's memory, which the host cannot touch. Control memory is pinned in
// the host's, and a region of as many bytes on the GPU mirrors it; that one counts. A `pinned`
// arena has all of its regions in the host's memory, which kernels reach. REQUIRES of calls: the
// context is current on the thread.
class CudaArena final : public Arena {
 public:
  CudaArena(SharedContext context, int rank, uint64_t budget, bool pinned)
      : context_(std::move(context)),
        driver_(context_->driver()),
        rank_(rank),
        budget_(budget),
        pinned_(pinned) {}
  ~CudaArena() override;

  uint64_t budget() const override { return budget_; }
  uint64_t used() const override { return used_; }
  base::Result<const Region*> Allocate(std::string name, uint64_t bytes, MemoryUse use) override;
  std::span<const std::unique_ptr<Region>> regions() const override { return regions_; }

  // Where the GPU has what lies at this address of control memory; any other address is returned.
  const void* OnDevice(const void* address) const;

 private:
  struct Allocation {
    std::byte* data;
    bool pinned;
  };
  struct Mirror {
    const std::byte* host;
    uint64_t bytes;
    const std::byte* device;
  };
  // Zeroed memory. `flags`: of pinned memory, 0: the GPU's.
  base::Result<std::byte*> NewMemory(uint64_t bytes, unsigned flags);
  base::Result<std::byte*> NewRegion(uint64_t bytes, MemoryUse use);

  const SharedContext context_;
  const Driver& driver_;
  const int rank_;
  const uint64_t budget_;
  const bool pinned_;
  uint64_t used_ = 0;
  std::vector<std::unique_ptr<Region>> regions_;
  std::vector<Allocation> allocations_;
  std::vector<Mirror> mirrors_;
};

}  // namespace forebay::device

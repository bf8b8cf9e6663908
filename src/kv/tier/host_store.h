// Blocks below in the memory of the host.
//
//   a block below: the strips of the first KV group, of the second, ...   (kv/cache.h)
#pragma once

#include <memory>
#include <vector>

#include "kv/cache.h"
#include "kv/tier/store.h"

namespace forebay::kv {

class HostStore final : public Store {
 public:
  // `cache` outlives it. Errors: kOutOfMemory.
  static base::Result<std::unique_ptr<HostStore>> Create(device::Device& device, const Cache& cache,
                                                         int32_t num_blocks);

  void Down(device::Stream& stream, std::span<const TierMove> moves,
            device::DeviceEvent& stored) override;
  void Up(device::Stream& stream, std::span<const TierMove> moves) override;
  void UpLayer(device::Stream& stream, const LayerFetch& fetch) override {
    EnqueueGather(stream, fetch,
                  {.data = region_->data + static_cast<uint64_t>(fetch.layer) * fetch.part_bytes,
                   .below_stride = block_bytes_});
  }
  const HostStore* near() const override { return this; }
  uint64_t block_bytes() const override { return block_bytes_; }
  // Where a group's part of a block lies, all in one piece.
  std::byte* PartAt(int32_t group, BlockId block) const;

 private:
  explicit HostStore(const Cache& cache);

  const Cache& cache_;
  std::vector<uint64_t> group_offsets_;  // in a block below
  uint64_t block_bytes_ = 0;
  std::unique_ptr<device::Arena> arena_;
  const device::Region* region_ = nullptr;
};

}  // namespace forebay::kv

// Blocks below in the memory of the host.
//
//   a block below: the strips of the first KV group, of the second, ...; or a part of a state
//   (kv/cache.h)
#pragma once

#include <memory>

#include "kv/cache.h"
#include "kv/tier/store.h"
#include "kv/tier/strip_copies.h"

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
                   .below_stride = block_.bytes});
  }
  const HostStore* near() const override { return this; }
  uint64_t block_bytes() const override { return block_.bytes; }
  // Where a group's part of a block lies, all in one piece.
  std::byte* PartAt(int32_t group, BlockId block) const;

 private:
  explicit HostStore(const Cache& cache) : cache_(cache), block_(cache, /*alignment=*/1) {}

  const Cache& cache_;
  const BlockBelow block_;
  std::unique_ptr<device::Arena> arena_;
  const device::Region* region_ = nullptr;
};

}  // namespace forebay::kv

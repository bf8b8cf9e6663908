// A chain of two stores: blocks [0, near) lie in host memory, the blocks from `near` on in a
// file.
//
//   down: near blocks -> staging | device's blocks -> near | *stored* | staging -> file
//   up:   near -> the device's blocks | file -> staging -> the device's blocks
//
// A block that moves to the file is copied to staging before its place is overwritten. So a step
// never waits for the disk while staging has room.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kv/tier/file_store.h"
#include "kv/tier/host_store.h"

namespace forebay::kv {

class ChainStore final : public Store {
 public:
  // `near` has `near_blocks` blocks; `far` takes the blocks that `near` gives up.
  ChainStore(std::unique_ptr<HostStore> near, int32_t near_blocks, std::unique_ptr<FileStore> far);

  void Down(device::Stream& stream, std::span<const TierMove> moves,
            device::DeviceEvent& stored) override;
  void Up(device::Stream& stream, std::span<const TierMove> moves) override;
  void UpLayer(device::Stream& stream, const LayerFetch& fetch) override {
    near_->UpLayer(stream, fetch);
  }
  bool ReadsWritten(std::span<const TierMove> up) const override;
  const HostStore* near() const override { return near_.get(); }
  uint64_t block_bytes() const override { return near_->block_bytes(); }
  bool can_lose() const override { return true; }
  LostBlocks TakeLost() override;
  std::span<const KeptBlock> kept() const override { return kept_; }
  uint64_t bytes_written() const override { return far_->bytes_written(); }
  uint64_t bytes_read() const override { return far_->bytes_read(); }

 private:
  // Divides moves, by their blocks below, into near_moves_ and, as the file numbers them,
  // far_moves_.
  void Divide(std::span<const TierMove> moves);

  const std::unique_ptr<HostStore> near_;
  const int32_t near_blocks_;
  const std::unique_ptr<FileStore> far_;
  std::vector<KeptBlock> kept_;
  std::vector<TierMove> near_moves_, far_moves_;
};

}  // namespace forebay::kv

#include "kv/tier/chain_store.h"

#include <algorithm>
#include <utility>

namespace forebay::kv {

ChainStore::ChainStore(std::unique_ptr<HostStore> near, int32_t near_blocks,
                       std::unique_ptr<FileStore> far)
    : near_(std::move(near)), near_blocks_(near_blocks), far_(std::move(far)) {
  for (KeptBlock block : far_->kept()) {
    block.below += near_blocks_;
    kept_.push_back(block);
  }
}

void ChainStore::Divide(std::span<const TierMove> moves) {
  near_moves_.clear();
  far_moves_.clear();
  for (TierMove move : moves) {
    const bool is_far = move.below >= near_blocks_;
    if (is_far) move.below -= near_blocks_;
    (is_far ? far_moves_ : near_moves_).push_back(move);
  }
}

void ChainStore::Down(device::Stream& stream, std::span<const TierMove> moves,
                      device::DeviceEvent& stored) {
  Divide(moves);
  const auto near_down = [&] { near_->Down(stream, near_moves_, stored); };
  if (far_moves_.empty()) return near_down();
  // What is demoted is read from near memory before anything new is written there.
  far_->Down(stream, far_moves_, near_down);
}

void ChainStore::Up(device::Stream& stream, std::span<const TierMove> moves) {
  Divide(moves);
  near_->Up(stream, near_moves_);
  far_->Up(stream, far_moves_);
}

bool ChainStore::ReadsWritten(std::span<const TierMove> up) const {
  return std::ranges::any_of(up,
                             [this](const TierMove& move) { return move.below >= near_blocks_; });
}

LostBlocks ChainStore::TakeLost() {
  LostBlocks lost = far_->TakeLost();
  for (BlockId& block : lost.blocks) block += near_blocks_;
  return lost;
}

}  // namespace forebay::kv

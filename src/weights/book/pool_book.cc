#include "weights/book/pool_book.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace forebay::weights {

PoolBook::PoolBook(const Placement& placement, PlacementGroup group) : placement_(placement), group_(std::move(group)) {
  for (int64_t layer = 0; layer < group_.num_layers(); ++layer) {
    if (group_.pool_index[layer] >= 0) layers_.push_back(layer);
  }
  for (int rank = 0; rank < group_.num_ranks; ++rank) {
    uint64_t end = 0;
    for (const int64_t layer : layers_) {
      std::vector<uint64_t>& offsets = offsets_.emplace_back();
      for (size_t tile = 0; tile < group_.layer.tiles.size(); ++tile) {
        const bool held = placement_.Holds(rank, {layer, static_cast<int64_t>(tile)}, group_);
        offsets.push_back(held ? end : kNotHeld);
        if (held) end += group_.layer.tiles[tile].bytes;
      }
    }
    held_bytes_.push_back(end);
  }
}

size_t PoolBook::Index(int rank, int64_t pool_layer) const {
  FB_CHECK(0 <= rank && rank < group_.num_ranks && pool_layer >= 0, "rank {} of {}, pooled layer {}", rank,
           group_.num_ranks, pool_layer);
  return static_cast<size_t>(rank) * layers_.size() + static_cast<size_t>(pool_layer);
}

uint64_t PoolBook::OffsetOf(int rank, const TileId& tile) const {
  const int32_t pool_layer = group_.pool_index[tile.layer];
  return pool_layer < 0 ? kNotHeld : offsets_[Index(rank, pool_layer)][tile.tile];
}

std::vector<PullSpan> PoolBook::Pulls(int reader, int64_t layer, int32_t piece) const {
  std::vector<PullSpan> spans;
  uint64_t slot_offset = 0;
  for (size_t i = 0; i < group_.layer.tiles.size(); ++i) {
    const LayerTiles::Tile& tile = group_.layer.tiles[i];
    const TileId id{layer, static_cast<int64_t>(i)};
    if (tile.piece != piece || OffsetOf(reader, id) != kNotHeld) continue;
    const int source = placement_.Source(reader, id, group_);
    const uint64_t offset = OffsetOf(source, id);
    const bool follows = !spans.empty() && spans.back().source == source && spans.back().offset + spans.back().bytes == offset &&
                         spans.back().first_tile + spans.back().num_tiles == id.tile;
    if (!follows) spans.push_back({source, id.tile, 0, offset, slot_offset, 0});
    ++spans.back().num_tiles;
    spans.back().bytes += tile.bytes;
    slot_offset += tile.bytes;
  }
  return spans;
}

uint64_t PoolBook::PullBytes(int reader, int64_t layer, int32_t piece) const {
  uint64_t sum = 0;
  for (size_t tile = 0; tile < group_.layer.tiles.size(); ++tile) {
    if (group_.layer.tiles[tile].piece != piece) continue;
    if (OffsetOf(reader, {layer, static_cast<int64_t>(tile)}) == kNotHeld) sum += group_.layer.tiles[tile].bytes;
  }
  return sum;
}

uint64_t PoolBook::StepBytes(int reader) const {
  return layers_.size() * group_.layer.bytes() - held_bytes(reader);
}

uint64_t PoolBook::SlotBytes(int reader) const {
  uint64_t most = 0;
  for (const int64_t layer : layers_) {
    for (int32_t piece = 0; piece < group_.layer.num_pieces; ++piece) most = std::max(most, PullBytes(reader, layer, piece));
  }
  return most;
}

}  // namespace forebay::weights

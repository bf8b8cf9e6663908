#include "weights/book/pool_book.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace forebay::weights {

PoolBook::PoolBook(std::shared_ptr<const Placement> placement, PlacementGroup group)
    : placement_(std::move(placement)), group_(std::move(group)) {
  for (int64_t layer = 0; layer < group_.num_layers(); ++layer) {
    if (group_.pool_index[layer] >= 0) layers_.push_back(layer);
  }
  for (int member = 0; member < group_.num_members; ++member) {
    uint64_t end = 0;
    for (const int64_t layer : layers_) {
      std::vector<Stretch>& stretches = stretches_.emplace_back();
      const std::vector<TileRun>& runs = group_.layer(layer).runs;
      for (int64_t run = 0; run < static_cast<int64_t>(runs.size()); ++run) {
        if (!placement_->Holds(member, {layer, run}, group_)) continue;
        if (stretches.empty() || stretches.back().end != run) stretches.push_back({run, run, end});
        ++stretches.back().end;
        end += runs[run].bytes;
      }
    }
    held_bytes_.push_back(end);
  }
}

const std::vector<PoolBook::Stretch>& PoolBook::StretchesOf(int member, int64_t layer) const {
  const int32_t pool_layer = group_.pool_index[layer];
  FB_CHECK(0 <= member && member < group_.num_members && pool_layer >= 0,
           "rank {} of {}, pooled layer {}", member, group_.num_members, pool_layer);
  return stretches_[static_cast<size_t>(member) * layers_.size() + static_cast<size_t>(pool_layer)];
}

uint64_t PoolBook::OffsetOf(int member, const RunId& run) const {
  if (group_.pool_index[run.layer] < 0) return kNotHeld;
  const std::vector<Stretch>& stretches = StretchesOf(member, run.layer);
  const auto next = std::ranges::upper_bound(stretches, run.run, {}, &Stretch::first);
  if (next == stretches.begin() || run.run >= std::prev(next)->end) return kNotHeld;
  const std::vector<TileRun>& runs = group_.layer(run.layer).runs;
  return std::prev(next)->offset + runs[run.run].before - runs[std::prev(next)->first].before;
}

std::vector<PullSpan> PoolBook::Pulls(int reader, int64_t layer, int32_t piece) const {
  std::vector<PullSpan> spans;
  uint64_t slot_offset = 0;
  const std::vector<TileRun>& runs = group_.layer(layer).runs;
  for (size_t i = 0; i < runs.size(); ++i) {
    const RunId id{layer, static_cast<int64_t>(i)};
    if (runs[i].piece != piece || OffsetOf(reader, id) != kNotHeld) continue;
    const int source = placement_->Source(reader, id, group_);
    const uint64_t offset = OffsetOf(source, id);
    const bool follows = !spans.empty() && spans.back().source == source &&
                         spans.back().offset + spans.back().bytes == offset &&
                         spans.back().first_run + spans.back().num_runs == id.run;
    if (!follows) spans.push_back({source, id.run, 0, offset, slot_offset, 0});
    ++spans.back().num_runs;
    spans.back().bytes += runs[i].bytes;
    slot_offset += runs[i].bytes;
  }
  return spans;
}

uint64_t PoolBook::PullBytes(int reader, int64_t layer, int32_t piece) const {
  uint64_t sum = 0;
  ForEachLacked(reader, layer, [&](const TileRun& run) {
    if (run.piece == piece) sum += run.bytes;
  });
  return sum;
}

uint64_t PoolBook::StepBytes(int reader) const {
  uint64_t sum = 0;
  for (const int64_t layer : layers_) sum += group_.layer(layer).bytes();
  return sum - held_bytes(reader);
}

uint64_t PoolBook::SlotBytes(int reader) const {
  uint64_t most = 0;
  const std::vector<Stretch>* last = nullptr;
  for (const int64_t layer : layers_) {
    // Most layers are held as the one before, of which a member with many would ask again and
    // again.
    const std::vector<Stretch>& held = StretchesOf(reader, layer);
    const bool as_last = last != nullptr && group_.kinds.size() == 1 &&
                         std::ranges::equal(held, *last, [](const Stretch& a, const Stretch& b) {
                           return a.first == b.first && a.end == b.end;
                         });
    last = &held;
    if (as_last) continue;
    for (int32_t piece = 0; piece < group_.layer(layer).num_pieces; ++piece)
      most = std::max(most, PullBytes(reader, layer, piece));
  }
  return most;
}

}  // namespace forebay::weights

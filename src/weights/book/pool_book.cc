#include "weights/book/pool_book.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace forebay::weights {

PoolBook::PoolBook(std::shared_ptr<const Placement> placement, PlacementGroup group)
    : placement_(std::move(placement)), group_(std::move(group)) {
  for (int64_t layer = 0; layer < group_.num_layers(); ++layer) {
    if (group_.pool_index[layer] >= 0) layers_.push_back(layer);
  }
  for (int member = 0; member < group_.num_members; ++member) {
    std::map<std::pair<size_t, int32_t>, size_t> known;  // by what a placement goes by
    uint64_t end = 0;
    for (const int64_t layer : layers_) {
      const auto [alike, is_new] = known.try_emplace(
          {group_.KindOf(layer), group_.pool_index[layer] % group_.num_members}, held_.size());
      if (is_new) held_.push_back(FindHeld(member, layer));
      held_layers_.push_back({alike->second, end});
      end += held_[alike->second].bytes;
    }
    held_bytes_.push_back(end);
  }
}

PoolBook::Held PoolBook::FindHeld(int member, int64_t layer) const {
  const LayerRuns& layer_runs = group_.layer(layer);
  const std::vector<TileRun>& runs = layer_runs.runs;
  Held held{.lacked = std::vector<uint64_t>(static_cast<size_t>(layer_runs.num_pieces))};
  std::vector<Stretch>& stretches = held.stretches;
  std::vector<bool> owned(static_cast<size_t>(layer_runs.num_leaves), true);
  for (int64_t run = 0; run < static_cast<int64_t>(runs.size()); ++run) {
    const TileRun& tile = runs[static_cast<size_t>(run)];
    if (!placement_->Holds(member, {layer, run}, group_)) {
      held.lacked[static_cast<size_t>(tile.piece)] += tile.bytes;
      owned[static_cast<size_t>(tile.leaf)] = false;
      continue;
    }
    if (stretches.empty() || stretches.back().end != run)
      stretches.push_back({run, run, held.bytes});
    ++stretches.back().end;
    held.bytes += tile.bytes;
  }
  const auto first = std::ranges::find(owned, true), last = std::find(first, owned.end(), false);
  if (std::count(last, owned.end(), true) == 0)
    held.leaves = {first - owned.begin(), last - owned.begin()};
  return held;
}

const PoolBook::HeldLayer& PoolBook::LayerOf(int member, int64_t layer) const {
  const int32_t pool_layer = group_.pool_index[layer];
  FB_CHECK(0 <= member && member < group_.num_members && pool_layer >= 0,
           "rank {} of {}, pooled layer {}", member, group_.num_members, pool_layer);
  return held_layers_[static_cast<size_t>(member) * layers_.size() +
                      static_cast<size_t>(pool_layer)];
}

uint64_t PoolBook::OffsetOf(int member, const RunId& run) const {
  if (group_.pool_index[run.layer] < 0) return kNotHeld;
  const HeldLayer& of_layer = LayerOf(member, run.layer);
  const std::vector<Stretch>& stretches = held_[of_layer.held].stretches;
  const auto next = std::ranges::upper_bound(stretches, run.run, {}, &Stretch::first);
  if (next == stretches.begin() || run.run >= std::prev(next)->end) return kNotHeld;
  const std::vector<TileRun>& runs = group_.layer(run.layer).runs;
  return of_layer.offset + std::prev(next)->offset + runs[run.run].before -
         runs[std::prev(next)->first].before;
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

uint64_t PoolBook::StepBytes(int reader) const {
  uint64_t sum = 0;
  for (const int64_t layer : layers_) sum += group_.layer(layer).bytes();
  return sum - held_bytes(reader);
}

uint64_t PoolBook::SlotBytes(int reader) const {
  uint64_t most = 0;
  for (const int64_t layer : layers_)
    most = std::max(most, std::ranges::max(HeldOf(reader, layer).lacked));
  return most;
}

}  // namespace forebay::weights

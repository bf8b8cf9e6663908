#include "weights/book/pool_schedule.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/units.h"

namespace forebay::weights {
namespace {

// The pooled layers in the order in which the member fetches them.
std::vector<int64_t> LayersInOrder(const PlacementGroup& group, int member, FetchOrder order) {
  std::vector<int64_t> pooled;
  for (int64_t layer = 0; layer < group.num_layers(); ++layer) {
    if (group.pool_index[layer] >= 0) pooled.push_back(layer);
  }
  if (order == FetchOrder::kAsUsed || group.num_members <= 2) return pooled;
  const auto total = static_cast<int64_t>(pooled.size());
  for (int64_t begin = 0; begin < total; begin += group.num_members) {
    const int64_t cycle = std::min<int64_t>(group.num_members, total - begin);
    std::rotate(pooled.begin() + begin, pooled.begin() + begin + member % cycle,
                pooled.begin() + begin + cycle);
  }
  return pooled;
}

std::vector<Fetch> FetchesInOrder(const PoolBook& book, int member, FetchOrder order) {
  std::vector<Fetch> fetches;
  for (const int64_t layer : LayersInOrder(book.group(), member, order)) {
    for (int32_t piece = 0; piece < book.group().layer(layer).num_pieces; ++piece) {
      if (book.PullBytes(member, layer, piece) > 0) fetches.push_back({layer, piece});
    }
  }
  return fetches;
}

// The number of slots below which a copy may wait for kernels behind those that wait for it. Fetch
// i waits for the use of fetch i - slots: that must come before the use of each fetch from i on.
int64_t LeastSlots(const std::vector<Fetch>& fetches) {
  const auto rank_in_use = [](const Fetch& a, const Fetch& b) {
    return std::pair(a.layer, a.piece) < std::pair(b.layer, b.piece);
  };
  if (std::ranges::is_sorted(fetches, rank_in_use)) return 1;
  const auto count = static_cast<int64_t>(fetches.size());
  int64_t least = 1;
  for (int64_t i = 0; i < count; ++i) {
    // The earliest use from fetch i on; every fetch used after it must still have its slot.
    const Fetch& earliest = *std::min_element(fetches.begin() + i, fetches.end(), rank_in_use);
    for (int64_t before = 0; before < i; ++before) {
      if (!rank_in_use(earliest, fetches[before])) continue;
      least = std::max(least, i - before + 1);
      break;
    }
  }
  return least;
}

// The bytes of the layer of which the member fetches most.
uint64_t MostLayerBytes(const PoolBook& book, int member, const std::vector<Fetch>& fetches) {
  uint64_t most = 0;
  for (size_t i = 0; i < fetches.size();) {
    uint64_t bytes = 0;
    for (const int64_t layer = fetches[i].layer; i < fetches.size() && fetches[i].layer == layer;
         ++i) {
      bytes += book.PullBytes(member, layer, fetches[i].piece);
    }
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace

int64_t PoolSchedule::MinSlots(const PoolBook& book, int member, FetchOrder order) {
  return LeastSlots(FetchesInOrder(book, member, order));
}

base::Result<PoolSchedule> PoolSchedule::Create(const PoolBook& book, int member, FetchOrder order,
                                                int64_t num_slots) {
  PoolSchedule schedule;
  schedule.num_slots_ = num_slots;
  schedule.num_pieces_ = book.group().num_pieces();
  schedule.fetches_ = FetchesInOrder(book, member, order);
  schedule.fetch_of_.assign(static_cast<size_t>(book.group().num_layers() * schedule.num_pieces_),
                            -1);
  for (int64_t i = 0; i < schedule.num_fetches(); ++i) {
    const Fetch& fetch = schedule.fetches_[i];
    schedule.fetch_of_[fetch.layer * schedule.num_pieces_ + fetch.piece] = i;
  }
  const int64_t least = LeastSlots(schedule.fetches_);
  if (num_slots < least) {
    return base::Status(kTooFewSlots,
                        fmt::format("rank {} has {} weight slots, its order of fetches needs {}",
                                    member, num_slots, least));
  }
  return schedule;
}

int64_t PoolSchedule::num_phases() const {
  return num_slots_ / std::gcd(num_slots_, num_fetches());
}

base::Result<int64_t> ChooseSlots(const PoolBook& book, int member, FetchOrder order,
                                  const SlotSettings& settings) {
  const std::vector<Fetch> fetches = FetchesInOrder(book, member, order);
  const uint64_t slot_bytes = book.SlotBytes(member);
  const int64_t least = std::max(settings.least, LeastSlots(fetches));
  if (fetches.empty()) return least;
  auto slots = static_cast<int64_t>(fetches.size());
  // One slot is in use while the others are filled.
  if (settings.look_ahead_layers > 0) {
    const uint64_t bytes =
        static_cast<uint64_t>(settings.look_ahead_layers) * MostLayerBytes(book, member, fetches);
    slots = std::min<int64_t>(slots, bytes / slot_bytes + 1);
  }
  if (settings.look_ahead_bytes > 0)
    slots = std::min<int64_t>(slots, settings.look_ahead_bytes / slot_bytes + 1);
  slots = std::max(slots, least);
  if (settings.budget_bytes > 0)
    slots = std::min<int64_t>(slots, settings.budget_bytes / slot_bytes);
  if (slots >= least) return slots;
  return base::Status(kTooFewSlots, fmt::format("--pool-slots: a budget of {} holds {} slots "
                                                "of {} on rank {}; the group's order "
                                                "of fetches needs {}, {}",
                                                base::FormatBytes(settings.budget_bytes), slots,
                                                base::FormatBytes(slot_bytes), member, least,
                                                base::FormatBytes(least * slot_bytes)));
}

FetchWindow::Next FetchWindow::TakeFetch() {
  FB_CHECK(CanFetch(), "fetch {} needs a slot that is in use", next_);
  const int64_t number = next_++;
  const auto slot = static_cast<int64_t>(number % used_.size());
  used_[slot] = false;
  return {(number - first_) % schedule_->num_fetches(), slot, number};
}

void FetchWindow::Use(int64_t fetch) {
  const int64_t slot = SlotOf(fetch);
  FB_CHECK(Fetched(fetch) && !used_[slot], "fetch {} of the step is used, but not in its slot",
           fetch);
  used_[slot] = true;
  ++used_in_step_;
}

void FetchWindow::EndStep() {
  FB_CHECK(used_in_step_ == schedule_->num_fetches(), "{} of {} fetches were used in the step",
           used_in_step_, schedule_->num_fetches());
  first_ += used_in_step_;
  used_in_step_ = 0;
}

}  // namespace forebay::weights

#include "kv/tier/window.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace forebay::kv {
namespace {

// Labels of the copies into each slot.
constexpr std::array<const char*, kWindowSlots> kLabels = {"kv_stream, slot 0",
                                                           "kv_stream, slot 1"};

}  // namespace

Window::Window(device::Device& device, const Cache& cache, Tier& tier, const device::Region& region,
               int32_t num_places)
    : device_(device),
      cache_(cache),
      tier_(tier),
      num_layers_(std::ssize(cache.view().layers)),
      part_bytes_(static_cast<uint64_t>(cache.view().groups[0].layout.LayerBytes())),
      slot_bytes_(static_cast<uint64_t>(num_places) * part_bytes_),
      slots_(region.data) {
  FB_CHECK(cache.view().groups.size() == 1 && num_layers_ >= kWindowSlots &&
               region.bytes >= kWindowSlots * slot_bytes_,
           "a window of {} places for {} layers of {} KV groups, {} bytes", num_places, num_layers_,
           cache.view().groups.size(), region.bytes);
  for (Lists& lists : lists_) {
    lists.blocks.reserve(static_cast<size_t>(num_places));
    lists.added.reserve(static_cast<size_t>(num_places));
  }
  for (auto* events : {&ready_, &consumed_})
    std::ranges::generate(*events, [&] { return device.NewEvent(); });
}

bool Window::Reads(std::span<const TierMove> down) const {
  return std::ranges::any_of(down, [&](const TierMove& move) {
    return std::ranges::count(blocks(), move.below, &StreamedBlock::below) > 0;
  });
}

void Window::BeginStep(std::span<const StreamedBlock> blocks) {
  // A step that streamed nothing used no fetches.
  if (!this->blocks().empty()) first_ += num_layers_;
  FB_CHECK(used_ == first_, "layer {} of the last step was not used", used_ - first_);
  Lists& lists = lists_[1 - current_];
  lists.blocks.assign(blocks.begin(), blocks.end());
  lists.added.clear();
  std::ranges::set_difference(lists.blocks, this->blocks(), std::back_inserter(lists.added),
                              [](const StreamedBlock& a, const StreamedBlock& b) {
                                return std::pair(a.place, a.number) < std::pair(b.place, b.number);
                              });
  current_ = 1 - current_;
  if (blocks.empty()) {
    // What is on its way reads a list that another step will write.
    for (int64_t fetch = first_; fetch < next_; ++fetch)
      device_.compute().Wait(*ready_[SlotOf(fetch)]);
    next_ = first_;
    return;
  }
  block_steps_ += std::ssize(blocks);
  // Fetches that run ahead have brought what the last step read. What is new is brought after into
  // their slots, once it stands below.
  if (!lists.added.empty()) {
    device_.copy(device::CopyKind::kKvUp).Wait(tier_.readable());
    for (int64_t fetch = first_; fetch < next_; ++fetch) Fetch(fetch, lists.added);
  }
  Pump();
}

void Window::Fetch(int64_t fetch, const std::vector<StreamedBlock>& blocks) {
  const int64_t layer = (fetch - first_) % num_layers_;
  device::Stream& up = device_.copy(device::CopyKind::kKvUp);
  up.SetLayer(layer);
  up.Wait(*consumed_[SlotOf(fetch)]);
  tier_.store().UpLayer(up, {.blocks = blocks,
                             .layer = layer,
                             .slot = SlotAt(fetch),
                             .part_bytes = part_bytes_,
                             .label = kLabels[SlotOf(fetch)]});
  const uint64_t bytes = blocks.size() * part_bytes_;
  const SlowUp& slow = tier_.slow_up();
  if (slow.link.runtime != nullptr) {
    const runtime::TimeNs stall = fetches_++ == slow.stall_at ? slow.stall : 0;
    fabric::Hold(up, *slow.link.runtime, fabric::TimeOf(bytes, slow.link) + stall,
                 kLabels[SlotOf(fetch)]);
  }
  up.Record(*ready_[SlotOf(fetch)]);
  up.SetLayer(-1);
  bytes_ += bytes;
}

// A slot is fetched into once the kernels that read what it held were enqueued, and `consumed`
// behind them.
void Window::Pump() {
  while (next_ < used_ + kWindowSlots) Fetch(next_++, blocks());
}

kernels::KvLayer Window::Acquire(int64_t layer) {
  kernels::KvLayer bases = cache_.view().layers[static_cast<size_t>(layer)].bases;
  if (blocks().empty()) return bases;
  FB_CHECK(used_ == first_ + layer, "layer {} is used, {} is due", layer, used_ - first_);
  device_.compute().Wait(*ready_[SlotOf(used_)]);
  bases.window = SlotAt(used_);
  return bases;
}

void Window::Release(int64_t /*layer*/) {
  if (blocks().empty()) return;
  device_.compute().Record(*consumed_[SlotOf(used_)]);
  ++used_;
  Pump();
}

}  // namespace forebay::kv

#include "model/weight_pool.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::model {
namespace {

// Who has all of it; -1: several ranks.
int OwnerOf(const std::vector<weights::PullSpan>& pulls) {
  const int owner = pulls.front().source;
  const auto differs = [owner](const weights::PullSpan& span) { return span.source != owner; };
  return std::ranges::any_of(pulls, differs) ? -1 : owner;
}

}  // namespace

WeightPool::WeightPool(const PoolPlan& plan, const DecoderWeights& placed, device::Device& device, const device::Region& slots,
                       const device::Region& tables, fabric::Fabric& fabric, const fabric::Communicator& peers)
    : plan_(plan), device_(device), fabric_(fabric), peers_(peers), slots_(slots.data), window_(*plan_.schedule) {
  FB_CHECK(slots.bytes >= plan.slots_bytes(), "{} bytes of slots, the plan needs {}", slots.bytes, plan.slots_bytes());
  for (int64_t slot = 0; slot < plan_.schedule->num_slots(); ++slot) {
    ready_.push_back(device.NewEvent());
    consumed_.push_back(device.NewEvent());
  }
  device::RegionCutter cutter(tables);
  FillTables(placed, &cutter);
}

size_t WeightPool::IndexOf(LayerMatrix matrix) const {
  return static_cast<size_t>(std::ranges::find(plan_.matrices, matrix) - plan_.matrices.begin());
}

bool WeightPool::Pools(int64_t layer, LayerMatrix matrix) const {
  return plan_.book->group().pool_index[layer] >= 0 && IndexOf(matrix) < plan_.matrices.size();
}

bool WeightPool::Lacks(int64_t layer) const {
  for (int32_t piece = 0; piece < plan_.book->group().layer.num_pieces; ++piece) {
    if (plan_.schedule->FetchOf(layer, piece) >= 0) return true;
  }
  return false;
}

std::byte* WeightPool::SlotAt(int64_t fetch, int64_t phase) const {
  return slots_ + static_cast<uint64_t>(plan_.schedule->SlotOf(fetch, phase)) * plan_.slot_bytes;
}

kernels::PackedWeight& WeightPool::WeightOf(int64_t layer, int64_t phase, size_t matrix) {
  const auto pool_layer = static_cast<size_t>(plan_.book->group().pool_index[layer]);
  const auto phases = static_cast<size_t>(plan_.schedule->num_phases());
  return weights_[(pool_layer * phases + PhaseIndex(phase)) * plan_.matrices.size() + matrix];
}

void WeightPool::FillTables(const DecoderWeights& placed, device::RegionCutter* tables) {
  const weights::PoolBook& book = *plan_.book;
  const weights::PoolSchedule& schedule = *plan_.schedule;
  weights_.resize(static_cast<size_t>(plan_.options.layers * schedule.num_phases()) * plan_.matrices.size());
  for (int64_t layer = 0; layer < book.group().num_layers(); ++layer) {
    if (book.group().pool_index[layer] < 0) continue;
    for (int64_t phase = 0; phase < schedule.num_slots(); phase += phase_step()) {
      std::vector<const std::byte**> tile_entries;  // by the layer's tile
      for (size_t m = 0; m < plan_.matrices.size(); ++m) {
        kernels::PackedWeight weight = placed.layers[layer].matrix(plan_.matrices[m]);
        const auto count = static_cast<size_t>(weight.leaves.num_leaves) * static_cast<size_t>(weight.num_panels);
        auto** entries = reinterpret_cast<const std::byte**>(tables->Cut(count * sizeof(void*)));
        std::copy_n(weight.tiles, count, entries);
        for (size_t i = 0; i < count; ++i) tile_entries.push_back(entries + i);
        weight.tiles = entries;
        WeightOf(layer, phase, m) = weight;
      }
      for (int32_t piece = 0; piece < book.group().layer.num_pieces; ++piece) {
        const int64_t fetch = schedule.FetchOf(layer, piece);
        for (const weights::PullSpan& span : book.Pulls(plan_.rank, layer, piece)) {
          const std::byte* at = SlotAt(fetch, phase) + span.slot_offset;
          for (int64_t tile = span.first_tile; tile < span.first_tile + span.num_tiles; ++tile) {
            *tile_entries[tile] = at;
            at += book.group().layer.tiles[tile].bytes;
          }
        }
      }
    }
  }
}

int WeightPool::num_streams() const {
  return plan_.options.stream_per_owner ? std::min(device_.num_weight_copies(), std::max(1, plan_.num_ranks - 1)) : 1;
}

base::Status WeightPool::Connect(std::string_view region_name) {
  const weights::PoolSchedule& schedule = *plan_.schedule;
  std::vector<int> regions;
  for (const int peer : peers_.ranks) {
    FB_ASSIGN_OR_RETURN(const device::Region* region, fabric_.FindRegion(peer, region_name));
    regions.push_back(region->id);
  }
  for (int64_t fetch = 0; fetch < schedule.num_fetches(); ++fetch) {
    const auto& [layer, piece] = schedule.fetches()[fetch];
    fetch_bytes_.push_back(plan_.book->PullBytes(plan_.rank, layer, piece));
    const std::vector<weights::PullSpan> pulls = plan_.book->Pulls(plan_.rank, layer, piece);
    const int owner = OwnerOf(pulls);
    // What one owner has, has the owner's stream, and so pulls from as many owners as there are streams are under way at once. With one owner at a
    // time, ranks that run freely end up all at the same one: who waits for it is caught up with by the others.
    const int streams = owner < 0 ? 1 : num_streams();
    fetch_streams_.push_back(&device_.weight_copy((owner - plan_.rank + plan_.num_ranks) % plan_.num_ranks % streams));
    for (int64_t phase = 0; phase < schedule.num_slots(); phase += phase_step()) {
      fabric::CopyPlan copy;
      copy.slice_bytes = streams > 1 ? UINT64_MAX : plan_.options.slice_bytes;  // there is no other owner to turn to
      copy.order = plan_.options.rotate_peers ? fabric::PeerOrder::kRotated : fabric::PeerOrder::kAsListed;
      copy.requests_in_flight = (plan_.options.requests_in_flight + streams - 1) / streams;
      std::byte* const slot = SlotAt(fetch, phase);
      for (const weights::PullSpan& span : pulls) {
        copy.spans.push_back({.rank = peers_.ranks[span.source], .region = regions[span.source], .offset = span.offset,
                              .bytes = span.bytes, .destination = slot + span.slot_offset});
      }
      FB_ASSIGN_OR_RETURN(copies_.emplace_back(), fabric_.Prepare(copy));
    }
  }
  return base::Status::Ok();
}

void WeightPool::Pump() {
  const weights::PoolSchedule& schedule = *plan_.schedule;
  while (window_.CanFetch()) {
    const weights::FetchWindow::Next next = window_.TakeFetch();
    const int64_t slots = schedule.num_slots();
    const int64_t phase = ((next.slot - next.fetch) % slots + slots) % slots;
    device::Stream& copies = *fetch_streams_[next.fetch];
    copies.Wait(*consumed_[next.slot]);
    device::DeviceEvent* const ready = ready_[next.slot].get();
    const size_t copy = static_cast<size_t>(next.fetch * schedule.num_phases()) + PhaseIndex(phase);
    fabric_.Pull(copies, copies_[copy], {}, std::span(&ready, 1));
    bytes_ahead_ += fetch_bytes_[next.fetch];
  }
}

void WeightPool::BeginStep() { Pump(); }

const kernels::PackedWeight& WeightPool::Acquire(int64_t layer, LayerMatrix matrix) {
  const size_t index = IndexOf(matrix), piece = Piece(matrix);
  const int64_t fetch = plan_.schedule->FetchOf(layer, static_cast<int32_t>(piece));
  const bool first_of_piece = plan_.options.by_matrix || index == 0;
  if (fetch >= 0 && first_of_piece) device_.compute().Wait(*ready_[window_.SlotOf(fetch)]);
  return WeightOf(layer, window_.phase(), index);
}

void WeightPool::Release(int64_t layer, LayerMatrix matrix) {
  const size_t index = IndexOf(matrix), piece = Piece(matrix);
  const int64_t fetch = plan_.schedule->FetchOf(layer, static_cast<int32_t>(piece));
  const bool last_of_piece = plan_.options.by_matrix || index + 1 == plan_.matrices.size();
  if (fetch < 0 || !last_of_piece) return;
  device_.compute().Record(*consumed_[window_.SlotOf(fetch)]);
  window_.Use(fetch);
  bytes_ahead_ -= fetch_bytes_[fetch];
  Pump();
}

void WeightPool::EndStep() {
  window_.EndStep();
  ++steps_;
}

void WeightPool::Quiesce() {
  for (int i = 0; i < num_streams(); ++i) (void)device_.Synchronize(device_.weight_copy(i));
}

}  // namespace forebay::model

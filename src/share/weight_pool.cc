#include "share/weight_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace forebay::share {
namespace {

// Who has all of it; -1: several ranks.
int OwnerOf(const std::vector<weights::PullSpan>& pulls) {
  const int owner = pulls.front().source;
  const auto differs = [owner](const weights::PullSpan& span) { return span.source != owner; };
  return std::ranges::any_of(pulls, differs) ? -1 : owner;
}

}  // namespace

WeightPool::WeightPool(const PoolPlan& plan, const model::DecoderWeights& placed,
                       device::Device& device, const device::Region& slots,
                       const device::Region& tables, fabric::Fabric& fabric,
                       const fabric::Communicator& peers)
    : plan_(plan),
      device_(device),
      fabric_(fabric),
      peers_(peers),
      slots_(slots.data),
      window_(*plan_.schedule) {
  FB_CHECK(slots.bytes >= plan.slots_bytes(), "{} bytes of slots, the plan needs {}", slots.bytes,
           plan.slots_bytes());
  for (int64_t slot = 0; slot < plan_.schedule->num_slots(); ++slot) {
    ready_.push_back(device.NewEvent());
    consumed_.push_back(device.NewEvent());
  }
  device::RegionCutter cutter(tables);
  FillTables(placed, &cutter);
}

// The number of the layer's roles where it has none such.
size_t WeightPool::IndexOf(int64_t layer, const model::Role& role) const {
  const std::vector<model::Role>& roles = layers_[static_cast<size_t>(layer)].roles;
  return static_cast<size_t>(std::ranges::find(roles, role) - roles.begin());
}

bool WeightPool::Shares(int64_t layer, const model::Role& role) const {
  return IndexOf(layer, role) < layers_[static_cast<size_t>(layer)].roles.size();
}

bool WeightPool::Lacks(int64_t layer) const {
  for (int32_t piece = 0; piece < plan_.book->group().layer(layer).num_pieces; ++piece) {
    if (plan_.schedule->FetchOf(layer, piece) >= 0) return true;
  }
  return false;
}

std::byte* WeightPool::SlotAt(int64_t fetch, int64_t phase) const {
  return slots_ + static_cast<uint64_t>(plan_.schedule->SlotOf(fetch, phase)) * plan_.slot_bytes;
}

void WeightPool::FillTables(const model::DecoderWeights& placed, device::RegionCutter* tables) {
  const weights::PoolBook& book = *plan_.book;
  const weights::PoolSchedule& schedule = *plan_.schedule;
  layers_.resize(placed.layers.size());
  for (int64_t layer = 0; layer < book.group().num_layers(); ++layer) {
    Layer& pooled = layers_[static_cast<size_t>(layer)];
    model::LayerWeights own = placed.layers[layer];
    std::erase_if(own.matrices, &model::IsOwn<model::LoadedMatrix>);
    for (const model::LoadedMatrix& matrix : own.matrices) pooled.roles.push_back(matrix.role);
    if (pooled.roles.empty()) continue;
    for (int64_t phase = 0; phase < schedule.num_slots(); phase += phase_step()) {
      model::LayerWeights in_phase = own;
      for (model::LoadedMatrix& matrix : in_phase.matrices) {
        auto** pointers = reinterpret_cast<const std::byte**>(
            tables->Cut(weights::NumRuns(matrix.placed) * sizeof(void*)));
        matrix.placed = weights::WithOwnRuns(matrix.placed, pointers);
        pooled.weights.push_back(matrix.placed);
      }
      std::vector<std::pair<const weights::PlacedWeight*, weights::RunPlace>> runs;
      model::ForEachRun(in_phase, &model::IsPooled<model::LoadedMatrix>,
                        [&](const model::LoadedMatrix& matrix, const weights::RunPlace& run) {
                          runs.emplace_back(&matrix.placed, run);
                        });
      for (int32_t piece = 0; piece < book.group().layer(layer).num_pieces; ++piece) {
        const int64_t fetch = schedule.FetchOf(layer, piece);
        for (const weights::PullSpan& span : book.Pulls(plan_.rank, layer, piece)) {
          const std::byte* at = SlotAt(fetch, phase) + span.slot_offset;
          for (int64_t run = span.first_run; run < span.first_run + span.num_runs; ++run) {
            const auto& [weight, place] = runs[static_cast<size_t>(run)];
            weights::SetRun(*weight, place, at);
            at += place.bytes;
          }
        }
      }
    }
  }
}

int WeightPool::num_streams() const {
  return plan_.options.stream_per_owner
             ? std::min(device_.num_weight_copies(), std::max(1, plan_.num_ranks - 1))
             : 1;
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
    // What one owner has, has the owner's stream, and so pulls from as many owners as there are
    // streams are under way at once. With one owner at a time, ranks that run freely end up all at
    // the same one: who waits for it is caught up with by the others.
    const int streams = owner < 0 ? 1 : num_streams();
    fetch_streams_.push_back(
        &device_.weight_copy((owner - plan_.rank + plan_.num_ranks) % plan_.num_ranks % streams));
    for (int64_t phase = 0; phase < schedule.num_slots(); phase += phase_step()) {
      fabric::CopyPlan copy;
      // there is no other owner to turn to
      copy.slice_bytes = streams > 1 ? UINT64_MAX : plan_.options.slice_bytes;
      copy.order =
          plan_.options.rotate_peers ? fabric::PeerOrder::kRotated : fabric::PeerOrder::kAsListed;
      copy.requests_in_flight = (plan_.options.requests_in_flight + streams - 1) / streams;
      std::byte* const slot = SlotAt(fetch, phase);
      for (const weights::PullSpan& span : pulls) {
        copy.spans.push_back({.rank = peers_.ranks[span.source],
                              .region = regions[span.source],
                              .offset = span.offset,
                              .bytes = span.bytes,
                              .destination = slot + span.slot_offset});
      }
      FB_ASSIGN_OR_RETURN(copies_.emplace_back(), fabric_.Prepare(copy));
    }
  }
  return base::Status::Ok();
}

// Enqueues all copies that may be enqueued now, which is when the kernels that read what their
// slots held were enqueued: `consumed` was recorded behind those kernels, so a copy that waits for
// it cannot overtake them, and the host never waits for the device here. A step's addresses follow
// from its phase, the slot that its first fetch goes to; that of a copy ahead of its step is
// reckoned back from the copy's own slot, since the step itself has not begun.
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

const weights::PlacedWeight& WeightPool::Acquire(int64_t layer, const model::Role& role) {
  const Layer& pooled = layers_[static_cast<size_t>(layer)];
  const size_t index = IndexOf(layer, role);
  const int64_t fetch = plan_.schedule->FetchOf(layer, Piece(index));
  const bool first_of_piece = plan_.options.by_matrix || index == 0;
  if (fetch >= 0 && first_of_piece) device_.compute().Wait(*ready_[window_.SlotOf(fetch)]);
  return pooled.weights[PhaseIndex(window_.phase()) * pooled.roles.size() + index];
}

void WeightPool::Release(int64_t layer, const model::Role& role) {
  const size_t index = IndexOf(layer, role);
  const int64_t fetch = plan_.schedule->FetchOf(layer, Piece(index));
  const bool last_of_piece =
      plan_.options.by_matrix || index + 1 == layers_[static_cast<size_t>(layer)].roles.size();
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

}  // namespace forebay::share

#include "share/weight_pool.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/rng.h"

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
      shard_(placed.shard),
      window_(*plan_.schedule),
      num_parts_(plan.options.waits_by_part ? plan.num_members : 1),
      wanted_(static_cast<size_t>(plan_.schedule->num_slots())) {
  routed_.grouped = device.NewEvent();
  FB_CHECK(slots.bytes >= plan.slots_bytes(), "{} bytes of slots, the plan needs {}", slots.bytes,
           plan.slots_bytes());
  const auto new_event = [&] { return events_.emplace_back(device.NewEvent()).get(); };
  for (int64_t slot = 0; slot < plan_.schedule->num_slots(); ++slot) {
    for (int64_t part = 0; part < num_parts_; ++part) ready_.push_back(new_event());
    consumed_.push_back(new_event());
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
    pooled.experts = ExpertsOf(layer);
    // A table a phase: where a pulled run lies follows from the slot of its fetch, and that from
    // the phase. They are filled once, and a step only picks one.
    for (int64_t phase = 0; phase < schedule.num_slots(); phase += schedule.phase_step()) {
      model::LayerWeights in_phase = own;
      for (model::LoadedMatrix& matrix : in_phase.matrices) {
        auto** pointers = reinterpret_cast<const std::byte**>(
            tables->Cut(weights::NumRuns(matrix.placed) * sizeof(void*)));
        matrix.placed = weights::WithOwnRuns(matrix.placed, pointers);
        pooled.weights.push_back(matrix.placed);
      }
      ExpertMerge::Runs runs;
      model::ForEachRun(in_phase, &model::IsPooled<model::LoadedMatrix>,
                        [&](const model::LoadedMatrix& matrix, const weights::RunPlace& run) {
                          runs.emplace_back(&matrix.placed, run);
                        });
      for (int32_t piece = 0; piece < book.group().layer(layer).num_pieces; ++piece) {
        const int64_t fetch = schedule.FetchOf(layer, piece);
        for (const weights::PullSpan& span : book.Pulls(plan_.member, layer, piece)) {
          const std::byte* at = SlotAt(fetch, phase) + span.slot_offset;
          for (int64_t run = span.first_run; run < span.first_run + span.num_runs; ++run) {
            const auto& [weight, place] = runs[static_cast<size_t>(run)];
            weights::SetRun(*weight, place, at);
            at += place.bytes;
          }
        }
        if (plan_.options.merges_experts && fetch >= 0 &&
            book.group().layer(layer).tensors == weights::TensorKind::kExperts)
          merge_.Plan(CopyIndex(fetch, phase), runs, slots_ + plan_.merged_at());
      }
    }
  }
}

// The parts of a layer's experts; none: it has no experts. What a rank holds is one stretch.
std::vector<model::ExpertPart> WeightPool::ExpertsOf(int64_t layer) const {
  const weights::LayerRuns& runs = plan_.book->group().layer(layer);
  if (runs.tensors != weights::TensorKind::kExperts) return {};
  model::ExpertPart held{runs.num_leaves, 0};
  int32_t count = 0;
  for (int32_t expert = 0; expert < runs.num_leaves; ++expert) {
    if (plan_.book->OffsetOf(plan_.member, {layer, expert}) == weights::PoolBook::kNotHeld)
      continue;
    held = {std::min(held.begin, expert), expert + 1};
    ++count;
  }
  FB_CHECK(count == held.end - held.begin, "rank {} holds {} experts of layer {} in [{}, {})",
           plan_.member, count, layer, held.begin, held.end);
  std::vector<model::ExpertPart> parts = {held};
  if (held.begin > 0) parts.push_back({0, held.begin});
  if (held.end < runs.num_leaves) parts.push_back({held.end, runs.num_leaves});
  return parts;
}

// A source's experts are one stretch of the layer's. Parts come in the order in which `copy` ends
// them.
void WeightPool::SetParts(int64_t layer, const std::vector<weights::PullSpan>& pulls,
                          const fabric::PreparedPull& copy) {
  const weights::LayerRuns& runs = plan_.book->group().layer(layer);
  std::vector<model::ExpertPart> of_source(static_cast<size_t>(plan_.num_members));
  for (const weights::PullSpan& span : pulls) {
    const int32_t first = runs.runs[static_cast<size_t>(span.first_run)].leaf;
    of_source[static_cast<size_t>(span.source)] = {first,
                                                   first + static_cast<int32_t>(span.num_runs)};
  }
  Layer& pooled = layers_[static_cast<size_t>(layer)];
  const model::ExpertPart held = pooled.experts.front();
  pooled.parts = {held};
  pooled.part_events = {0};
  int32_t experts = held.end - held.begin;
  for (const fabric::PreparedPull::Slice& slice : copy.slices) {
    if (!slice.ends_part) continue;
    const auto source = static_cast<size_t>(slice.part);
    pooled.parts.push_back(of_source[source]);
    pooled.part_events.push_back(source);
    experts += of_source[source].end - of_source[source].begin;
  }
  FB_CHECK(experts == runs.num_leaves, "the parts of layer {} are {} of {} experts", layer, experts,
           runs.num_leaves);
}

int WeightPool::num_streams() const {
  return plan_.options.stream_per_owner
             ? std::min(device_.num_weight_copies(), std::max(1, plan_.num_members - 1))
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
    fetch_bytes_.push_back(plan_.book->PullBytes(plan_.member, layer, piece));
    const std::vector<weights::PullSpan> pulls = plan_.book->Pulls(plan_.member, layer, piece);
    const int owner = OwnerOf(pulls);
    // What one owner has, has the owner's stream, and so pulls from as many owners as there are
    // streams are under way at once. With one owner at a time, ranks that run freely end up all at
    // the same one: who waits for it is caught up with by the others.
    const int streams = owner < 0 ? 1 : num_streams();
    fetch_streams_.push_back(&device_.weight_copy((owner - plan_.member + plan_.num_members) %
                                                  plan_.num_members % streams));
    FB_RETURN_IF_ERROR(Prepare(pulls, regions, fetch)
                           .WithContext(fmt::format("layer {}", shard_.layers.begin + layer)));
    if (InParts(layer)) SetParts(layer, pulls, copies_.back().all.back());
  }
  return base::Status::Ok();
}

// The fetch's copies in all phases. Of experts consecutive ones of one matrix, which are equally
// large, are the items of a span.
base::Status WeightPool::Prepare(const std::vector<weights::PullSpan>& pulls,
                                 const std::vector<int>& regions, int64_t fetch) {
  const weights::PoolSchedule& schedule = *plan_.schedule;
  const int64_t layer = schedule.fetches()[fetch].layer;
  const std::vector<weights::TileRun>& runs = plan_.book->group().layer(layer).runs;
  const int streams = OwnerOf(pulls) < 0 ? 1 : num_streams();
  Copies& prepared = copies_.emplace_back();
  for (int64_t phase = 0; phase < schedule.num_slots(); phase += schedule.phase_step()) {
    fabric::CopyPlan copy;
    // there is no other owner to turn to
    copy.slice_bytes = streams > 1 ? UINT64_MAX : plan_.options.slice_bytes;
    copy.order = plan_.options.peers;
    copy.seed = base::Combine64(static_cast<uint64_t>(plan_.member), static_cast<uint64_t>(fetch));
    copy.requests_in_flight = (plan_.options.requests_in_flight + streams - 1) / streams;
    fabric::CopyPlan items = copy;
    std::byte* const slot = SlotAt(fetch, phase);
    for (const weights::PullSpan& span : pulls) {
      fabric::CopySpan whole{.rank = peers_.ranks[span.source],
                             .region = regions[span.source],
                             .offset = span.offset,
                             .bytes = span.bytes,
                             .destination = slot + span.slot_offset,
                             .part = InParts(layer) ? span.source : 0};
      copy.spans.push_back(whole);
      if (!HasExperts(fetch)) continue;
      for (int64_t run = span.first_run; run < span.first_run + span.num_runs; ++run) {
        const weights::TileRun& item = runs[static_cast<size_t>(run)];
        // Runs of a span come matrix by matrix, experts ascending in each: a lower one begins the
        // next matrix.
        const bool follows =
            run > span.first_run && runs[static_cast<size_t>(run) - 1].leaf < item.leaf;
        if (!follows) {
          items.spans.push_back(whole);
          items.spans.back().part = 0;
          items.spans.back().bytes = 0;
          items.spans.back().first_item = item.leaf;
          items.spans.back().num_items = 0;
        }
        items.spans.back().bytes += item.bytes;
        ++items.spans.back().num_items;
        whole.offset += item.bytes;
        whole.destination += item.bytes;
      }
    }
    FB_ASSIGN_OR_RETURN(prepared.all.emplace_back(), fabric_.Prepare(copy));
    FB_ASSIGN_OR_RETURN(prepared.wanted.emplace_back(), fabric_.Prepare(items));
  }
  return base::Status::Ok();
}

bool WeightPool::IsWanted(int64_t fetch) const {
  return routed_.on && !window_.Fetched(fetch) && HasExperts(fetch);
}

// In a routed step experts wait until it is known which are wanted, those of later steps too.
bool WeightPool::MayFetch() const {
  if (!window_.CanFetch()) return false;
  if (plan_.options.begins_cold && window_.taken() >= plan_.schedule->num_fetches()) return false;
  return !routed_.on || window_.taken() < routed_.fetches || !HasExperts(NextFetch());
}

// Enqueues all copies that may be enqueued now, which is when the kernels that read what their
// slots held were enqueued: `consumed` was recorded behind those kernels, so a copy that waits for
// it cannot overtake them, and the host never waits for the device here. A step's addresses follow
// from its phase, the slot that its first fetch goes to; that of a copy ahead of its step is
// reckoned back from the copy's own slot, since the step itself has not begun.
void WeightPool::Pump() {
  const weights::PoolSchedule& schedule = *plan_.schedule;
  while (MayFetch()) {
    const bool wanted = window_.taken() < schedule.num_fetches() && IsWanted(NextFetch());
    const weights::FetchWindow::Next next = window_.TakeFetch();
    const int64_t slots = schedule.num_slots();
    const int64_t phase = ((next.slot - next.fetch) % slots + slots) % slots;
    device::Stream& copies = *fetch_streams_[next.fetch];
    copies.SetLayer(shard_.layers.begin + schedule.fetches()[next.fetch].layer);
    copies.Wait(*consumed_[next.slot]);
    const std::span ready = std::span(ready_).subspan(static_cast<size_t>(next.slot * num_parts_));
    const auto& [all, items] = copies_[static_cast<size_t>(next.fetch)];
    wanted_[static_cast<size_t>(next.slot)] = wanted;
    if (wanted) {
      copies.Wait(*routed_.grouped);
      fabric_.Pull(copies, items[schedule.PhaseIndex(phase)], routed_.offsets, ready.first(1));
    } else {
      fabric_.Pull(copies, all[schedule.PhaseIndex(phase)], nullptr,
                   ready.first(static_cast<size_t>(num_parts_)));
      bytes_ahead_ += fetch_bytes_[next.fetch];
    }
  }
}

void WeightPool::BeginStep(const StepMode& mode) {
  routed_.on = mode.ffn == FfnMode::kRouted;
  routed_.fetches = 0;
  Pump();
}

kernels::LackedExperts WeightPool::Lacked(int64_t layer) const {
  const std::vector<model::ExpertPart>& experts = layers_[static_cast<size_t>(layer)].experts;
  if (experts.empty()) return {};
  const auto before = static_cast<int32_t>(shard_.experts.begin);
  kernels::LackedExperts lacked{.begin = before,
                                .end = before + plan_.book->group().layer(layer).num_leaves,
                                .held_begin = before + experts[0].begin,
                                .held_end = before + experts[0].end,
                                .unused = &bytes_unused_,
                                .wanted = &bytes_wanted_};
  for (const weights::TileRun& run : plan_.book->group().layer(layer).runs) {
    // A matrix is as large for each expert: the first stands for all.
    if (run.leaf != 0) continue;
    const int64_t fetch = plan_.schedule->FetchOf(layer, run.piece);
    if (fetch < 0) return {};
    (IsWanted(fetch) ? lacked.wanted_bytes : lacked.bytes) += static_cast<int64_t>(run.bytes);
  }
  return lacked;
}

bool WeightPool::PullWanted(int64_t layer, const int32_t* offsets) {
  const int64_t last =
      plan_.schedule->FetchOf(layer, plan_.book->group().layer(layer).num_pieces - 1);
  if (last < 0 || !IsWanted(last)) return false;
  // Behind the operation that groups the rows: copies that wait for it read offsets that stand.
  device_.compute().Record(*routed_.grouped);
  routed_.offsets = offsets;
  routed_.fetches = last + 1;
  Pump();
  return true;
}

bool WeightPool::HasWantedAlone(int64_t layer) const {
  const int64_t fetch = plan_.schedule->FetchOf(layer, 0);
  return fetch >= 0 && routed_.on && HasExperts(fetch) &&
         wanted_[static_cast<size_t>(window_.SlotOf(fetch))];
}

std::span<const model::ExpertPart> WeightPool::Parts(int64_t layer) const {
  const Layer& pooled = layers_[static_cast<size_t>(layer)];
  if (!HasWantedAlone(layer)) return pooled.parts;
  if (plan_.options.by_matrix || plan_.options.merges_experts) return {};
  return pooled.experts;
}

void WeightPool::AcquirePart(int64_t layer, size_t part) {
  const int64_t slot = window_.SlotOf(plan_.schedule->FetchOf(layer, 0));
  const Layer& pooled = layers_[static_cast<size_t>(layer)];
  device_.compute().Wait(Ready(slot, HasWantedAlone(layer) ? 0 : pooled.part_events[part]));
}

const weights::PlacedWeight& WeightPool::Acquire(int64_t layer, const model::Role& role) {
  const Layer& pooled = layers_[static_cast<size_t>(layer)];
  const size_t index = IndexOf(layer, role);
  const int64_t fetch = plan_.schedule->FetchOf(layer, Piece(index));
  const bool first_of_piece = plan_.options.by_matrix || index == 0;
  // All of a piece comes with one event: its first matrix waits for the others too.
  if (fetch >= 0 && first_of_piece && Parts(layer).empty()) {
    device_.compute().Wait(Ready(window_.SlotOf(fetch), 0));
    merge_.Enqueue(CopyIndex(fetch, window_.phase()), device_.compute());
  }
  return pooled.weights[plan_.schedule->PhaseIndex(window_.phase()) * pooled.roles.size() + index];
}

void WeightPool::Release(int64_t layer, const model::Role& role) {
  const size_t index = IndexOf(layer, role);
  const int64_t fetch = plan_.schedule->FetchOf(layer, Piece(index));
  const bool last_of_piece =
      plan_.options.by_matrix || index + 1 == layers_[static_cast<size_t>(layer)].roles.size();
  // The slot is free once the piece's last matrix was used.
  if (fetch < 0 || !last_of_piece) return;
  device_.compute().Record(*consumed_[window_.SlotOf(fetch)]);
  // What came because it was wanted never counted as ahead.
  if (!wanted_[static_cast<size_t>(window_.SlotOf(fetch))]) bytes_ahead_ -= fetch_bytes_[fetch];
  window_.Use(fetch);
  Pump();
}

void WeightPool::EndStep() {
  window_.EndStep();
  if (!routed_.on) ++steps_;
}

void WeightPool::Quiesce() {
  for (int i = 0; i < device_.num_weight_copies(); ++i)
    (void)device_.Synchronize(device_.weight_copy(i));
}

}  // namespace forebay::share

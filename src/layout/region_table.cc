#include "layout/region_table.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>

#include "model/weight_views.h"
#include "share/ship_plan.h"

namespace forebay::layout {
namespace {

// What the size of a region follows from.
struct Sizes {
  const MemoryRequest& request;
  const MemoryPlan& plan;

  const model::DecoderPlan& decoder() const { return *plan.decoder; }
  const model::ModelConfig& config() const { return plan.decoder->config; }
  // The plan holds for all members of the pool: it has room for the largest. Nothing: no pool.
  template <typename Bytes>
  std::optional<uint64_t> MostOfPools(Bytes bytes) const {
    std::optional<uint64_t> most;
    for (const share::PoolPlan& pool : request.pool)
      most = std::max(most.value_or(0), uint64_t{std::invoke(bytes, pool)});
    return most;
  }
  uint64_t OfShip(uint64_t share::ShipPlan::*bytes) const {
    const share::ShipPlan* const ship = request.pool.empty() ? nullptr : request.pool[0].ship.get();
    return ship ? ship->*bytes : 0;
  }
  uint64_t OwnWeights() const {
    const uint64_t pooled =
        request.pool.empty() ? 0 : share::PooledBytes(request.pool[0], decoder());
    return decoder().bytes(plan.max_model_len) - pooled;
  }
  uint64_t ViewTables() const {
    uint64_t bytes = 0;
    for (const auto& view : request.views) bytes += model::ModeTableBytes(*view);
    return bytes;
  }
  uint64_t ViewCopies() const {
    uint64_t bytes = 0;
    for (const auto& view : request.views)
      bytes += request.copies_views ? model::ModeCopyBytes(*view) : 0;
    return bytes;
  }
  uint64_t Chosen() const {
    if (!request.record_routing || !config().moe) return 0;
    return static_cast<uint64_t>(ChosenElements(plan) * plan.steps_in_flight) * sizeof(uint16_t);
  }
  uint64_t KvWindow() const {
    return static_cast<uint64_t>(plan.streamed_blocks) * WindowPlaceBytes(plan);
  }
  uint64_t States() const {
    return static_cast<uint64_t>(plan.step_shape.sequences) * kv::PlaceBytes(plan.states) +
           plan.kept_state_bytes();
  }
  uint64_t Kv() const {
    return kv::KvCacheBytes(plan.kv_groups, static_cast<uint64_t>(plan.num_blocks),
                            request.digest) +
           64;
  }
};

// What staging takes; nothing: the rank has no peers of this kind.
std::optional<uint64_t> IfAny(uint64_t bytes) {
  return bytes == 0 ? std::nullopt : std::optional(bytes);
}

struct Row {
  RegionId id;
  const char* name;
  device::MemoryUse kind;
  RegionUse use;
  bool published;
  std::optional<uint64_t> (*bytes)(const Sizes& sizes);  // Nothing: the rank has no such region.
};

constexpr auto kData = device::MemoryUse::kData, kControl = device::MemoryUse::kControl;
using enum RegionUse;

// clang-format off
constexpr Row kRows[] = {
    {RegionId::kWeights, "weights", kData, kWeights, false, [](const Sizes& s) { return std::optional(s.OwnWeights()); }},
    {RegionId::kWeightTables, "weight tables", kControl, kTables, false, [](const Sizes& s) { return std::optional(s.decoder().table_bytes()); }},
    {RegionId::kModeWeights, "mode weights", kData, kModeWeights, false, [](const Sizes& s) { return IfAny(s.ViewCopies()); }},
    {RegionId::kModeTables, "mode tables", kControl, kTables, false, [](const Sizes& s) { return IfAny(s.ViewTables()); }},
    {RegionId::kWorkspace, "workspace", kData, kWorkspace, false, [](const Sizes& s) { return std::optional(model::ActivationBytes(s.config(), s.plan.dtype, s.plan.capacity, s.request.cut)); }},
    {RegionId::kStepBatch, "step batch", kControl, kWorkspace, false, [](const Sizes& s) { return std::optional(StepArrayBytes(s.plan.step_shape, s.plan.steps_in_flight)); }},
    {RegionId::kChosenExperts, "chosen experts", kControl, kWorkspace, false, [](const Sizes& s) { return IfAny(s.Chosen()); }},
    {RegionId::kKv, "kv", kData, kKv, true, [](const Sizes& s) { return std::optional(s.Kv()); }},
    {RegionId::kKvWindow, "kv window", kData, kKv, false, [](const Sizes& s) { return IfAny(s.KvWindow()); }},
    {RegionId::kLayerStates, "layer states", kData, kState, true, [](const Sizes& s) { return IfAny(s.States()); }},
    {RegionId::kWeightPool, "weight pool", kData, kPool, true, [](const Sizes& s) { return s.MostOfPools(&share::PoolPlan::pool_bytes); }},
    {RegionId::kWeightSlots, "weight slots", kData, kSlots, false, [](const Sizes& s) { return s.MostOfPools(&share::PoolPlan::slots_bytes); }},
    {RegionId::kPoolTables, "pool tables", kControl, kTables, false, [](const Sizes& s) { return s.MostOfPools(&share::PoolPlan::table_bytes); }},
    {RegionId::kTensorStaging, "tensor staging", kData, kStaging, true, [](const Sizes& s) { return IfAny(model::TensorStagingBytes(s.config(), s.plan.dtype, s.plan.capacity, s.request.cut)); }},
    {RegionId::kSequenceStaging, "sequence staging", kData, kStaging, true, [](const Sizes& s) { return IfAny(model::SequenceStagingBytes(s.config(), s.plan.dtype, s.plan.capacity, s.request.cut)); }},
    {RegionId::kHeadStaging, "head staging", kData, kStaging, true, [](const Sizes& s) { return IfAny(model::HeadStagingBytes(s.config(), s.plan.capacity, s.request.cut)); }},
    {RegionId::kStageStaging, "stage staging", kData, kStaging, true, [](const Sizes& s) { return IfAny(model::StageStagingBytes(s.config(), s.plan.dtype, s.plan.capacity, s.request.cut)); }},
    {RegionId::kShipRows, "ship rows", kData, kStaging, true, [](const Sizes& s) { return IfAny(s.OfShip(&share::ShipPlan::rows_bytes)); }},
    {RegionId::kShipSums, "ship sums", kData, kStaging, true, [](const Sizes& s) { return IfAny(s.OfShip(&share::ShipPlan::sums_bytes)); }},
};
// clang-format on

static_assert(
    [] {
      for (size_t i = 0; i < std::size(kRows); ++i) {
        if (static_cast<size_t>(kRows[i].id) != i) return false;
      }
      return std::size(kRows) == kNumRegions;
    }(),
    "rows are in the order of RegionId");

}  // namespace

const char* NameOf(RegionId id) { return kRows[static_cast<size_t>(id)].name; }

std::vector<Region> PlanRegions(const MemoryRequest& request, const MemoryPlan& plan) {
  std::vector<Region> regions;
  for (const Row& row : kRows) {
    if (const std::optional<uint64_t> bytes = row.bytes({request, plan})) {
      regions.push_back(
          {row.id, row.kind, row.use, row.published, base::RoundUp(*bytes, kRegionRounding)});
    }
  }
  return regions;
}

}  // namespace forebay::layout

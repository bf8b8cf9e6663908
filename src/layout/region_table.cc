#include "layout/region_table.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "model/weight_views.h"
#include "share/ship.h"
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
  uint64_t Kv() const {
    return static_cast<uint64_t>(plan.num_blocks) *
               kv::KvBlockBytes(plan.kv_groups, request.digest) +
           64;
  }
};

// What staging takes; nothing: the rank has no peers of this kind.
std::optional<uint64_t> IfAny(uint64_t bytes) {
  return bytes == 0 ? std::nullopt : std::optional(bytes);
}

struct Row {
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
    {"weights", kData, kWeights, false, [](const Sizes& s) { return std::optional(s.OwnWeights()); }},
    {"weight tables", kControl, kTables, false, [](const Sizes& s) { return std::optional(s.decoder().table_bytes()); }},
    {layout::kModeWeights, kData, kModeWeights, false, [](const Sizes& s) { return IfAny(s.ViewCopies()); }},
    {kModeTables, kControl, kTables, false, [](const Sizes& s) { return IfAny(s.ViewTables()); }},
    {"workspace", kData, kWorkspace, false, [](const Sizes& s) { return std::optional(model::ActivationBytes(s.config(), s.plan.dtype, s.plan.capacity, s.request.cut)); }},
    {"step batch", kControl, kWorkspace, false, [](const Sizes& s) { return std::optional(StepArrayBytes(s.plan.step_shape, s.plan.steps_in_flight)); }},
    {kChosenRegion, kControl, kWorkspace, false, [](const Sizes& s) { return IfAny(s.Chosen()); }},
    {kKvRegion, kData, kKv, true, [](const Sizes& s) { return std::optional(s.Kv()); }},
    {kKvWindow, kData, kKv, false, [](const Sizes& s) { return IfAny(s.KvWindow()); }},
    {kPoolRegion, kData, kPool, true, [](const Sizes& s) { return s.MostOfPools(&share::PoolPlan::pool_bytes); }},
    {kWeightSlots, kData, kSlots, false, [](const Sizes& s) { return s.MostOfPools(&share::PoolPlan::slots_bytes); }},
    {"pool tables", kControl, kTables, false, [](const Sizes& s) { return s.MostOfPools(&share::PoolPlan::table_bytes); }},
    {kTensorStaging, kData, kStaging, true, [](const Sizes& s) { return IfAny(model::TensorStagingBytes(s.config(), s.plan.dtype, s.plan.capacity, s.request.cut)); }},
    {kSequenceStaging, kData, kStaging, true, [](const Sizes& s) { return IfAny(model::SequenceStagingBytes(s.config(), s.plan.dtype, s.plan.capacity, s.request.cut)); }},
    {kHeadStaging, kData, kStaging, true, [](const Sizes& s) { return IfAny(model::HeadStagingBytes(s.config(), s.plan.capacity, s.request.cut)); }},
    {kStageStaging, kData, kStaging, true, [](const Sizes& s) { return IfAny(model::StageStagingBytes(s.config(), s.plan.dtype, s.plan.capacity, s.request.cut)); }},
    {share::ShippedFfn::kRowsRegion, kData, kStaging, true, [](const Sizes& s) { return IfAny(s.OfShip(&share::ShipPlan::rows_bytes)); }},
    {share::ShippedFfn::kSumsRegion, kData, kStaging, true, [](const Sizes& s) { return IfAny(s.OfShip(&share::ShipPlan::sums_bytes)); }},
};
// clang-format on

}  // namespace

std::vector<Region> PlanRegions(const MemoryRequest& request, const MemoryPlan& plan) {
  std::vector<Region> regions;
  for (const Row& row : kRows) {
    if (const std::optional<uint64_t> bytes = row.bytes({request, plan})) {
      regions.push_back(
          {row.name, row.kind, row.use, row.published, base::RoundUp(*bytes, kRegionRounding)});
    }
  }
  return regions;
}

}  // namespace forebay::layout

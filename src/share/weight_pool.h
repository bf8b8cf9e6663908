// A rank's view of the weights that its group shares: the tiles it owns, the tiles it pulls ahead
// of need, and the places of both in the current step. One per rank; its control task calls.
//
// Invariants:
//  1. A slot is written after its `consumed` and read after its `ready`; both are events of
//     streams, no call here blocks.
//  2. Copies run ahead across the border of a step. Pulls for a step that never comes count as
//     pulled.
//  3. Nothing allocates after Connect.
//
// In a routed step (FfnMode::kRouted) a layer's experts are fetched once the router has
// chosen, into the layer's usual slot, unless an earlier pulling step fetched all of them
// ahead. Experts of later steps are not fetched ahead, because the modes of those steps are
// unknown.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "fabric/fabric.h"
#include "model/shared_weights.h"
#include "share/expert_merge.h"
#include "share/pool_plan.h"

namespace forebay::share {

class WeightPool final : public model::SharedWeights {
 public:
  // `placed`: the rank's weights, without the runs that it does not own. `slots`:
  // plan.slots_bytes(). `tables`: control memory, plan.table_bytes(). `peers`: the ranks of the
  // pool; those and `owned`, the rank's pool region, in `fabric`.
  WeightPool(const PoolPlan& plan, const model::DecoderWeights& placed, device::Device& device,
             const device::Region& slots, const device::Region& tables, fabric::Fabric& fabric,
             const fabric::Communicator& peers);

  // After all ranks published their pool regions, under `region_name`.
  base::Status Connect(std::string_view region_name);

  bool Shares(int64_t layer, const model::Role& role) const override;
  bool Lacks(int64_t layer) const override;
  void BeginStep(const StepMode& mode) override;
  const weights::PlacedWeight& Acquire(int64_t layer, const model::Role& role) override;
  void Release(int64_t layer, const model::Role& role) override;
  void EndStep() override;
  kernels::LackedExperts Lacked(int64_t layer) const override;
  bool PullWanted(int64_t layer, const int32_t* offsets) override;
  std::span<const model::ExpertPart> Parts(int64_t layer) const override;
  void AcquirePart(int64_t layer, size_t part) override;
  // Blocks until all that the device's streams for weights copy has arrived, rows of shipped
  // experts too.
  void Quiesce();

  const PoolPlan& plan() const { return plan_; }
  bool pools_experts() const { return plan_.options.experts.pools(); }
  // Any thread may call the functions below. Steps that pulled everything they lacked.
  int64_t steps() const { return steps_; }
  // Bytes of fetches under way, or in slots and not used yet; between steps: for a step still to
  // come.
  uint64_t bytes_ahead() const { return bytes_ahead_; }
  // Bytes of experts that came because they had rows, and that came though they had none.
  int64_t bytes_wanted() const { return bytes_wanted_; }
  int64_t bytes_unused() const { return bytes_unused_; }
  // Bytes of experts that were copied into one buffer.
  uint64_t bytes_merged() const { return merge_.bytes(); }

 private:
  // A layer's part of the tables.
  struct Layer {
    std::vector<model::Role> roles;              // its pooled matrices, in order; none: no pool
    std::vector<weights::PlacedWeight> weights;  // [phases][roles]
    // Experts of the layer: the rank's own, then the others.
    std::vector<model::ExpertPart> experts;
    // In parts: what comes with which event, the first held; none: it is acquired as a whole.
    std::vector<model::ExpertPart> parts;
    std::vector<size_t> part_events;
  };
  // What a fetch copies, in each phase: all, or items that are the experts.
  struct Copies {
    std::vector<fabric::PreparedPull> all, wanted;
  };

  size_t IndexOf(int64_t layer, const model::Role& role) const;
  int32_t Piece(size_t index) const {
    return plan_.options.by_matrix ? static_cast<int32_t>(index) : 0;
  }
  // The place of what stands by fetch and phase.
  size_t CopyIndex(int64_t fetch, int64_t phase) const {
    return static_cast<size_t>(fetch * plan_.schedule->num_phases()) +
           plan_.schedule->PhaseIndex(phase);
  }
  std::byte* SlotAt(int64_t fetch, int64_t phase) const;
  void FillTables(const model::DecoderWeights& placed, device::RegionCutter* tables);
  bool InParts(int64_t layer) const {
    return plan_.options.waits_by_part &&
           plan_.book->group().layer(layer).tensors == weights::TensorKind::kExperts;
  }
  void SetParts(int64_t layer, const std::vector<weights::PullSpan>& pulls,
                const fabric::PreparedPull& copy);
  device::DeviceEvent& Ready(int64_t slot, size_t part) const {
    return *ready_[static_cast<size_t>(slot * num_parts_) + part];
  }
  int num_streams() const;
  std::vector<model::ExpertPart> ExpertsOf(int64_t layer) const;
  base::Status Prepare(const std::vector<weights::PullSpan>& pulls, const std::vector<int>& regions,
                       int64_t fetch);
  // The fetch of the step at hand, or of the next one, that comes after all that were taken.
  int64_t NextFetch() const { return window_.taken() % plan_.schedule->num_fetches(); }
  bool HasExperts(int64_t fetch) const {
    return !layers_[static_cast<size_t>(plan_.schedule->fetches()[fetch].layer)].experts.empty();
  }
  // Whether the fetch of the current step brings only the chosen experts.
  bool IsWanted(int64_t fetch) const;
  // Whether the layer's slot has such experts now.
  bool HasWantedAlone(int64_t layer) const;
  bool MayFetch() const;
  void Pump();

  const PoolPlan plan_;
  device::Device& device_;
  fabric::Fabric& fabric_;
  const fabric::Communicator peers_;
  std::byte* const slots_;
  const model::Shard shard_;  // the rank's part of the model
  weights::FetchWindow window_;
  std::vector<Layer> layers_;
  std::vector<Copies> copies_;                  // [fetches]
  std::vector<uint64_t> fetch_bytes_;           // [fetches]
  std::vector<device::Stream*> fetch_streams_;  // [fetches]
  ExpertMerge merge_;                           // by CopyIndex
  const int64_t num_parts_;                     // parts of a fetch that are waited for one by one
  std::vector<std::unique_ptr<device::DeviceEvent>> events_;
  std::vector<device::DeviceEvent*> ready_, consumed_;  // [slots][parts], [slots]
  std::vector<bool> wanted_;  // [slots]: the last fetch brought only chosen experts
  // The current step: whether only experts with rows are fetched, for how many of its fetches these
  // experts are known, by which offsets, and since when.
  struct {
    bool on = false;
    int64_t fetches = 0;
    const int32_t* offsets = nullptr;
    std::unique_ptr<device::DeviceEvent> grouped;
  } routed_;
  std::atomic<int64_t> steps_{0};
  mutable std::atomic<int64_t> bytes_wanted_{0}, bytes_unused_{0};  // operations count
  std::atomic<uint64_t> bytes_ahead_{0};
};

}  // namespace forebay::share

// A rank's view of the weights that its group shares: what it owns, what it pulls ahead of need,
// and where both lie in the step at hand. One a rank; its control task calls.
//
// Invariants:
//  1. A slot is written after its `consumed` and read after its `ready`; both are events of
//     streams, no call here blocks.
//  2. Copies run ahead over the border of a step: what is pulled for a step that never comes is
//     counted as pulled.
//  3. Nothing allocates after Connect.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "model/shared_weights.h"
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
  void BeginStep() override;
  const weights::PlacedWeight& Acquire(int64_t layer, const model::Role& role) override;
  void Release(int64_t layer, const model::Role& role) override;
  void EndStep() override;
  // Blocks until all copies have arrived.
  void Quiesce();

  const PoolPlan& plan() const { return plan_; }
  // These two from any thread.
  int64_t steps() const { return steps_; }
  // Bytes of fetches that are under way or in slots and not used yet; between steps: for a step
  // that has not come.
  uint64_t bytes_ahead() const { return bytes_ahead_; }

 private:
  // A layer's part of the tables.
  struct Layer {
    std::vector<model::Role> roles;              // of its pooled matrices, in order; none: no pool
    std::vector<weights::PlacedWeight> weights;  // [phases][roles]
  };

  size_t IndexOf(int64_t layer, const model::Role& role) const;
  int32_t Piece(size_t index) const {
    return plan_.options.by_matrix ? static_cast<int32_t>(index) : 0;
  }
  // Phases are multiples of this.
  int64_t phase_step() const { return plan_.schedule->num_slots() / plan_.schedule->num_phases(); }
  size_t PhaseIndex(int64_t phase) const { return static_cast<size_t>(phase / phase_step()); }
  std::byte* SlotAt(int64_t fetch, int64_t phase) const;
  void FillTables(const model::DecoderWeights& placed, device::RegionCutter* tables);
  int num_streams() const;
  void Pump();

  const PoolPlan plan_;
  device::Device& device_;
  fabric::Fabric& fabric_;
  const fabric::Communicator peers_;
  std::byte* const slots_;
  weights::FetchWindow window_;
  std::vector<Layer> layers_;
  std::vector<fabric::PreparedPull> copies_;                            // [fetches][phases]
  std::vector<uint64_t> fetch_bytes_;                                   // [fetches]
  std::vector<device::Stream*> fetch_streams_;                          // [fetches]
  std::vector<std::unique_ptr<device::DeviceEvent>> ready_, consumed_;  // [slots]
  std::atomic<int64_t> steps_{0};
  std::atomic<uint64_t> bytes_ahead_{0};
};

}  // namespace forebay::share

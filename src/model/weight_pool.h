// A rank's view of the weights that its group shares: what it owns, what it pulls ahead of need, and where both lie in the
// step at hand. One a rank; its control task calls.
//
// Invariants:
//  1. A slot is written after its `consumed` and read after its `ready`; both are events of streams, no call here blocks.
//  2. Copies run ahead over the border of a step: what is pulled for a step that never comes is counted as pulled.
//  3. Nothing allocates after Connect.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "model/pool_plan.h"

namespace forebay::model {

class WeightPool {
 public:
  // `placed`: the rank's weights, with null tiles where it does not own them. `slots`: plan.slots_bytes(). `tables`: control
  // memory, plan.table_bytes(). `peers`: the ranks of the pool; those and `owned`, the rank's pool region, in `fabric`.
  WeightPool(const PoolPlan& plan, const DecoderWeights& placed, device::Device& device, const device::Region& slots,
             const device::Region& tables, fabric::Fabric& fabric, const fabric::Communicator& peers);

  // After all ranks published their pool regions, under `region_name`.
  base::Status Connect(std::string_view region_name);

  bool Pools(int64_t layer, LayerMatrix matrix) const;
  // Whether a step pulls something of the layer.
  bool Lacks(int64_t layer) const;
  // A step's uses, in the order of the layers: a weight is valid for what is enqueued between Acquire and Release.
  void BeginStep();
  const kernels::PackedWeight& Acquire(int64_t layer, LayerMatrix matrix);
  void Release(int64_t layer, LayerMatrix matrix);
  void EndStep();
  // Blocks until all copies have arrived.
  void Quiesce();

  const PoolPlan& plan() const { return plan_; }
  // These two from any thread.
  int64_t steps() const { return steps_; }
  // Bytes of fetches that are under way or in slots and not used yet; between steps: for a step that has not come.
  uint64_t bytes_ahead() const { return bytes_ahead_; }

 private:
  size_t IndexOf(LayerMatrix matrix) const;
  size_t Piece(LayerMatrix matrix) const { return plan_.options.by_matrix ? IndexOf(matrix) : 0; }
  // Phases are multiples of this.
  int64_t phase_step() const { return plan_.schedule->num_slots() / plan_.schedule->num_phases(); }
  size_t PhaseIndex(int64_t phase) const { return static_cast<size_t>(phase / phase_step()); }
  std::byte* SlotAt(int64_t fetch, int64_t phase) const;
  kernels::PackedWeight& WeightOf(int64_t layer, int64_t phase, size_t matrix);
  void FillTables(const DecoderWeights& placed, device::RegionCutter* tables);
  int num_streams() const;
  void Pump();

  const PoolPlan plan_;
  device::Device& device_;
  fabric::Fabric& fabric_;
  const fabric::Communicator peers_;
  std::byte* const slots_;
  weights::FetchWindow window_;
  std::vector<kernels::PackedWeight> weights_;        // [pooled layers][phases][matrices]
  std::vector<fabric::PreparedPull> copies_;          // [fetches][phases]
  std::vector<uint64_t> fetch_bytes_;                 // [fetches]
  std::vector<device::Stream*> fetch_streams_;        // [fetches]
  std::vector<std::unique_ptr<device::DeviceEvent>> ready_, consumed_;  // [slots]
  std::atomic<int64_t> steps_{0};
  std::atomic<uint64_t> bytes_ahead_{0};
};

}  // namespace forebay::model

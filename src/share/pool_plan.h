// Which matrices of a model the ranks of a group share, and what that takes of each rank's memory.
// Pure.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "fabric/fabric.h"
#include "model/decoder_weights.h"
#include "weights/book/pool_book.h"
#include "weights/book/pool_schedule.h"

namespace forebay::share {

struct PoolOptions {
  // Where the weights of layers without experts lie, and the experts of the others.
  weights::ChosenPlacement placement{&weights::kByLayer}, experts;
  int64_t layers = 0;      // how many of the layers without experts are pooled
  bool attention = false;  // qkv and output beside gate_up and down
  // Copies arrive matrix by matrix, each in a slot of its own; else a layer is one copy and one
  // slot, as in the paper.
  bool by_matrix = false;
  weights::FetchOrder order = weights::FetchOrder::kPeakShifted;
  weights::SlotSettings slots;
  // a copy is cut into slices; 0: 1 MiB, on simulated devices 64 MiB
  uint64_t slice_bytes = 0;
  // Which peers the slices of a pull come from in turn.
  fabric::PeerOrder peers = fabric::PeerOrder::kRotated;
  // Compute starts with the rank's own experts and takes each peer's as they arrive; else it starts
  // when all have arrived.
  bool waits_by_part = false;
  // No pull runs over the border of a step, as in DWDP's public code: each step begins cold.
  bool begins_cold = false;
  // Held and pulled experts are copied into one buffer first, as kernels need them that take one.
  bool merges_experts = false;
  // Slices of a pull that are under way at once, where devices have copy engines; 0: one a peer, at
  // least 2.
  int requests_in_flight = 0;
  // for what comes from one owner, where the device has streams for it
  bool stream_per_owner = true;
};

struct ShipPlan;

// What one rank pools: it is a member of the pool of its part of the model.
struct PoolPlan {
  PoolOptions options;
  int member = 0, num_members = 1;
  std::shared_ptr<const weights::PoolBook> book;
  std::shared_ptr<const weights::PoolSchedule> schedule;
  std::shared_ptr<const ShipPlan> ship;  // null: no step ships
  uint64_t pool_bytes = 0;               // runs that the rank owns
  uint64_t slot_bytes = 0;               // bytes of one slot
  uint64_t merge_bytes = 0;              // all experts of a layer, where they are merged
  uint64_t table_bytes = 0;              // control memory: where runs lie, by layer and phase

  // Slots, then the buffer of merged experts.
  uint64_t slots_bytes() const { return merged_at() + merge_bytes; }
  uint64_t merged_at() const { return slot_bytes * static_cast<uint64_t>(schedule->num_slots()); }
};

// Plans the shares of all ranks for `options.layers` pooled layers, and for the experts of all
// layers with experts unless these are replicated.
// Errors: weights::kCannotPlace, kTooFewSlots; base::kInvalidArgument: fewer
// layers have dense matrices, or options that exclude each other.
base::Result<std::vector<PoolPlan>> PlanPools(const PoolOptions& options, int num_members,
                                              const model::DecoderPlan& decoder);

// Marks the pooled matrices in `decoder`.
void MarkPooled(const PoolPlan& pool, model::DecoderPlan* decoder);
// By how much that makes decoder->bytes() less.
uint64_t PooledBytes(const PoolPlan& pool, const model::DecoderPlan& decoder);
// Where the rank keeps its part, for LoadDecoder; `region` is its pool region, plan.pool_bytes.
model::PooledRunAt OwnRuns(const PoolPlan& pool, const device::Region& region);

}  // namespace forebay::share

// A rank's part in computing pooled FFNs where their weights lie (SiDP's Compute-as-a-Service, section 4.3), with two meetings a
// layer (the decoder runs this on its compute stream):
//
//   each rank with rows   writes them, normed, into its staging                                       | all meet
//   each owner            gathers the rows of all ranks, computes gate_up and its leaves of down      | all meet
//   each rank with rows   copies its slices of the owners' partial sums, adds them in the fixed tree of all leaves
//
// Under tp the owners of a layer are ranks of each tp rank; rows are the same on all tp ranks of a replica, so each gives its own to
// the owner of its tp rank, and takes the sums of all owners: the second meeting is the replica's all-reduce too.
//
// The bytes are those of the layer computed at home, whoever owns how many leaves.
//
// Invariants:
//  1. All ranks of the pool run a round with the same rows, layer by layer, or a stream waits for ever. Who has no rows runs it
//     too: it serves what it owns.
//  2. Nothing here waits or allocates after Create.
#pragma once

#include <array>
#include <atomic>
#include <memory>

#include "fabric/collectives.h"
#include "model/decoder.h"
#include "model/ship_plan.h"

namespace forebay::model {

// How many rows each rank of the pool has in a step that they take together.
using ShipRows = std::array<int32_t, fabric::Exchange::kMaxRanks>;

struct ShipCounters {
  std::atomic<int64_t> steps{0};         // of this rank, with rows
  std::atomic<int64_t> rows{0};          // of these steps
  std::atomic<int64_t> rows_skipped{0};  // rows without meaning that ranks without rows did not send
  std::atomic<int64_t> bytes{0};         // copied from other ranks: rows and partial sums
};

class ShippedFfn {
 public:
  static constexpr char kRowsRegion[] = "ship rows", kSumsRegion[] = "ship sums";

  // All ranks have published their staging under these names: plan.rows_bytes and sums_bytes (0: there is none). `peers`: the ranks
  // of the pool; `members`: who computes, in the order of ShipPlan::leaves.
  static base::Result<std::unique_ptr<ShippedFfn>> Create(const ShipPlan& plan, fabric::Fabric& fabric,
                                                          const fabric::Communicator& peers, const fabric::Communicator& members);

  // The rows of all ranks in the step that comes, which this rank's control task agreed with the others.
  void Begin(const ShipRows& rows);
  bool Ships(int64_t layer) const { return plan_.Ships(layer); }
  bool gathers() const { return plan_.options.gather; }
  // Where this rank's normed rows [rows, hidden] T of the next layer belong.
  std::byte* input() const { return rows_.mine(); }
  // decoder.activations.residual += FFN(input) for the rank's `rows`; and what it owns of the layer for all others'.
  void Run(const Decoder& decoder, int64_t layer, const LayerWeights& weights, int32_t rows);
  // FSDP: all ranks are here before any pulls the layer.
  void Meet(device::Stream& stream) { rows_.Meet(stream); }

  const ShipCounters& counters() const { return counters_; }

 private:
  // Ranks whose rows are computed with at once, one behind the other.
  struct Batch {
    int first_rank, last_rank;
    int64_t first_row;
    int32_t rows;
  };

  ShippedFfn(const ShipPlan& plan, fabric::Exchange rows) : plan_(plan), rows_(std::move(rows)) {}
  Batch BatchOf(int rank) const;
  void Serve(const Decoder& decoder, const LayerWeights& weights, const base::Part& leaves, const Batch& batch);
  void AddSums(const Decoder& decoder, int64_t layer, const kernels::PackedWeight& down, int32_t rows);
  void Copy(const Decoder& decoder, const char* label, void* to, const std::byte* from, bool remote, uint64_t bytes);

  const ShipPlan plan_;
  fabric::Exchange rows_;
  std::unique_ptr<fabric::Exchange> sums_;
  std::array<int64_t, fabric::Exchange::kMaxRanks + 1> first_row_{};  // of each rank among all of the round
  ShipCounters counters_;
};

}  // namespace forebay::model

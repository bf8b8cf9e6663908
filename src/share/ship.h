// A rank's part in computing pooled FFNs where their weights lie (SiDP's Compute-as-a-Service,
// section 4.3), with two meetings a layer (the layer program enqueues this on its compute stream):
//
//   each rank with rows   writes them, normed, into its staging
//                           | all meet
//   each owner            gathers the rows of all ranks, computes gate_up and its leaves of down
//                           | all meet
//   each rank with rows   copies its slices of the owners' partial sums, adds them in the fixed
//                         tree of all leaves
//
// Under tp each tp rank has its own owners of a layer. All tp ranks of a replica have the same
// rows, so each sends its rows to the owner of its tp rank and takes the sums of all owners. The
// second meeting is also the replica's all-reduce.
//
// The result has the bytes of a layer computed at home, for any split of the leaves.
//
// A layer with experts runs in rounds of a bounded number of rows (DeepSeek's expert parallelism).
// The experts' rows come back, not partial sums:
//
//   each rank with rows   writes them, normed, and which experts they choose, into its staging
//                           | all meet
//   each rank             gathers all indices; where several ranks hold an expert, derives from
//                         them which rank computes which rows, as all ranks do; gathers the rows
//                         that its experts need, each once, and computes them
//                           | all meet; ranks with rows compute the shared expert meanwhile
//   each rank with rows   copies what the experts made of its rows, and combines it as at home
//
// The copies run on streams that copy weights, and so beside the shared expert as well.
//
// The number of rounds follows from the rows alone, and staging has room for all rows at one rank,
// so that routing costs time, never memory.
//
// Invariants:
//  1. All ranks of the pool run a round with the same rows, layer by layer, or a stream waits for
//     ever. A rank without rows runs it too and serves its own weights.
//  2. Nothing here waits after Create, or allocates beyond the steps with most rounds.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>

#include "fabric/collectives.h"
#include "kernels/serve.h"
#include "model/blocks/experts.h"
#include "model/remote_ffn.h"
#include "share/return_streams.h"
#include "share/ship_plan.h"

namespace forebay::share {

// How many rows each replica of the pool has in a step that they take together.
using ShipRows = std::array<int32_t, fabric::Exchange::kMostRanks>;
// Each replica's number of that step.
using ShipSteps = std::array<uint64_t, fabric::Exchange::kMostRanks>;
static_assert(kernels::kMaxServed == fabric::Exchange::kMostRanks);

struct ShipCounters {
  std::atomic<int64_t> rows{0};  // rows of this rank's steps
  // rows without meaning that ranks without rows did not send
  std::atomic<int64_t> rows_skipped{0};
  std::atomic<int64_t> bytes{0};  // copied from other ranks: rows and partial sums
  std::atomic<int64_t> meetings{0};
  // Rows of experts between ranks, in memory that kernels reach; null: there are no experts.
  kernels::ServedCounters* experts = nullptr;
};

// An owner computes its leaves of a layer without experts for `rows` rows in activations.gathered,
// and writes planes of partial sums into `sums`.
void ServeLeaves(const model::BlockContext& context, int64_t layer, const ShipPlan::Layer& plan,
                 const base::Part& leaves, int32_t rows, std::byte* sums);

class ShippedFfn final : public model::RemoteFfn {
 public:
  // The rank's staging, which all ranks have published under equal names.
  struct Staging {
    const device::Region& rows;  // plan.rows_bytes
    const device::Region* sums;  // plan.sums_bytes; null: there are none
  };
  // `peers`: the ranks of the pool; `members`: the computing ranks in the order of ShipPlan::Layer.
  static base::Result<std::unique_ptr<ShippedFfn>> Create(
      const ShipPlan& plan, device::Device& device, fabric::Fabric& fabric, const Staging& staging,
      const fabric::Communicator& peers, const fabric::Communicator& members);

  // The rows of all ranks in the step that comes, which this rank's control task agreed with the
  // others.
  void Begin(const ShipRows& rows, const ShipSteps& steps);
  // The mode in which Begin and Run take a step.
  const StepMode& mode() const { return plan_.mode; }
  void Meet(device::Stream& stream) override { Meet(stream, rows_); }
  bool Takes(int64_t layer) const override { return plan_.layers[layer].pooled; }
  int64_t KindOf(int64_t layer) const override { return kinds_[static_cast<size_t>(layer)]; }
  void Run(const model::BlockContext& context, int64_t layer, int32_t rows) override;
  Counts counts() const override;
  void Repeat(const Counts& before, int64_t times) override;

  const ShipCounters& counters() const { return counters_; }

 private:
  // Neighbouring replicas; their rows are packed in order and computed together.
  struct Batch {
    int first_replica, last_replica;
    int64_t first_row;
    int32_t rows;
  };

  ShippedFfn(const ShipPlan& plan, device::Device& device, fabric::Fabric& fabric,
             fabric::Exchange rows);
  // The tables that operations of rounds read, and the counters that they add to.
  base::Status MakeTables(device::Device& device);
  void Meet(device::Stream& stream, fabric::Exchange& exchange) {
    exchange.Meet(stream);
    ++counters_.meetings;
  }
  Batch BatchOf(int replica) const;
  void Serve(const model::BlockContext& context, int64_t layer, const base::Part& leaves,
             const Batch& batch);
  void AddSums(const model::BlockContext& context, int64_t layer, int32_t rows);
  // Computes a layer with experts in as many rounds as the busiest rank needs, each of at most
  // `expert_rows` rows of each rank.
  int64_t NumRounds() const;
  void RunExperts(const model::BlockContext& context, int64_t layer);
  void RunRound(const model::BlockContext& context, int64_t layer, int64_t number);
  struct Round {
    int64_t layer;
    kernels::ServedRanks ranks;
    kernels::RoutingSource::Draw draw;
    uint64_t row_bytes;
    std::byte* residual = nullptr;        // the own rows'
    const std::byte* normed = nullptr;    // own rows
    model::ExpertBuffers buffers;         // `experts`: chosen by own rows
    int32_t* gathered_experts = nullptr;  // those of all

    std::vector<kernels::ServedCounts> counts;  // [ranks], where there are no data
    uint8_t* owners = nullptr;                  // ranks.owners, where rows decide

    int32_t own() const { return ranks.rows(ranks.me); }
    // What rows of `rank` send to `to`; null: data say.
    const kernels::ServedCount* count(int rank, int to) const {
      return counts.empty() ? nullptr : &counts[rank][to];
    }
  };
  // What all ranks send to each other, by the routing's draws.
  void CountRound(const model::BlockContext& context, Round* round) const;
  void StageRows(const model::BlockContext& context, int64_t first, Round* round);
  void ServeRows(const model::BlockContext& context, const Round& round);
  void GatherRows(const model::BlockContext& context, const Round& round, int rank);
  void TakeOutputs(const model::BlockContext& context, const Round& round);
  void TakeOutputsBeside(const model::BlockContext& context, const Round& round);
  std::byte* ReturnRows(device::Stream& stream, const Round& round, int owner, std::byte* to);
  void Copy(const model::BlockContext& context, const char* label, void* to, const std::byte* from,
            bool remote, uint64_t bytes);

  const ShipPlan plan_;
  std::vector<int64_t> kinds_;  // [layers]
  fabric::Exchange rows_;
  std::unique_ptr<fabric::Exchange> sums_;
  ReturnStreams returns_;
  // Of layers with experts: in the host's memory, which kernels of every device reach.
  std::unique_ptr<device::Arena> host_;
  std::span<uint8_t> expert_owners_;
  std::span<kernels::HolderMask> expert_holders_;
  // The first row of each replica among all of the round.
  std::array<int64_t, fabric::Exchange::kMostRanks + 1> first_row_{};
  ShipRows step_rows_{};
  // What operations of rounds read when they run, by step: of more steps than are ever in flight.
  struct StepTable {
    std::vector<std::array<int32_t, fabric::Exchange::kMostRanks + 1>> first_rows;  // [rounds]
    ShipSteps steps{};
  };
  static constexpr size_t kStepsKept = 65;
  std::vector<StepTable> tables_ = std::vector<StepTable>(kStepsKept);
  size_t table_ = 0;  // of the step that comes
  ShipCounters counters_;
};

}  // namespace forebay::share

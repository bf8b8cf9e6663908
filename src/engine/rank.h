// One device with its copy of the model: builds a step's batch and enqueues the step. What to run
// is the replica's business.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "engine/step_buffers.h"
#include "kv/cache.h"
#include "kv/loan.h"
#include "kv/tier/host_tier.h"
#include "kv/tier/window.h"
#include "layout/memory_plan.h"
#include "model/decoder.h"
#include "sample/sampler.h"
#include "share/ship.h"
#include "share/weight_pool.h"

namespace forebay::engine {

inline constexpr base::ErrorCode kStepTimeout{"step_timeout"};

// What becomes of one row of logits.
struct LogitTask {
  // logits are filled in by the rank; params null: only the logprobs below
  sample::SampleInput input;
  int32_t slot = -1;             // whose last sampled token this is
  int32_t target = -1;           // prompt logprobs: the prompt's next token
  int32_t target_logprobs = -1;  // how many alternatives of it
  bool nan = false;              // the logits are NaN: nothing was drawn
  sample::SampleOutput sampled;
  PositionLogprobs target_output;
};

// A rank's part in its group.
struct Membership {
  model::ReplicaCut cut;             // its place in its replica
  fabric::Fabric* fabric = nullptr;  // outlives the rank; null: it is alone
  // the replica's ranks of its stage: those with its rows, those with its weights, all by block
  fabric::Communicator tensor, sequence, stage;
  int64_t one_meeting_rows = 0;  // of the first: ReplicaLinks
  // What these are in each further mode in which steps are taken.
  struct Mode {
    model::Degrees degrees;
    fabric::Communicator tensor, sequence;
    int64_t one_meeting_rows = 0;
  };
  std::vector<Mode> modes;
  fabric::Communicator stages;  // its like in each stage
  // its like in each replica of the group, by replica: the pool
  fabric::Communicator peers;
  // What KV is pulled through that is lent; outlives the rank. Its like in each of the job's
  // replicas, by replica: -1 in those that lend nothing to it.
  fabric::Fabric* kv_fabric = nullptr;
  std::vector<int> lenders;
  const share::PoolPlan* pool = nullptr;  // null: it shares no weights
  fabric::Communicator ship_members;      // who computes with each other's rows
  uint64_t replica = 0;                   // the number of its replica among the job's
  // null: data say which experts rows go to
  std::shared_ptr<const kernels::RoutingSource> routing;
};

class Rank {
 public:
  // Allocates the plan's regions and loads the weights with `load_threads` (no reader: shapes
  // only).
  static base::Result<std::unique_ptr<Rank>> Create(
      std::unique_ptr<device::Device> device, const model::ModelConfig& config,
      const layout::MemoryPlan& plan, bool digest, const kernels::KernelSet& kernels,
      const weights::TensorReader* reader, int load_threads, const Membership& membership = {});

  // Waits for what is enqueued: it uses everything below.
  ~Rank() { device_.reset(); }

  // After all ranks of the group were created, before the first step.
  base::Status Connect();
  // Waits for all that is enqueued, so that nobody reads a peer's memory any more.
  void Quiesce();
  const share::WeightPool* pool() const { return pool_.get(); }
  const kernels::RoutingCounters* routed() const { return routed_.get(); }  // null: no experts
  // Which experts the rows of a step that has ended chose, as BlockContext::chosen; null: nobody
  // keeps that. And by how many rows its layers stand apart.
  const uint16_t* chosen(int flight) const { return flights_[static_cast<size_t>(flight)].chosen; }
  int64_t chosen_rows() const { return decoder_.chosen_rows; }
  const model::Shard& shard() const { return decoder_.weights.shard; }
  const share::ShippedFfn* ship() const { return ship_.get(); }  // null: no step ships
  // What it exchanged in each mode, the layout's own first.
  struct ModeCounters {
    model::Degrees degrees;
    std::unique_ptr<model::ExchangeCounters> exchanged =
        std::make_unique<model::ExchangeCounters>();
  };
  std::span<const ModeCounters> modes() const { return mode_counters_; }
  int64_t switches() const { return switches_; }  // of the mode, from one step to the next
  // Its own steps that were taken in the mode.
  int64_t steps(const StepMode& mode) const { return steps_[static_cast<size_t>(mode.ffn)]; }
  // Asked for from other ranks so far; experts that come because they have rows are not in it.
  uint64_t bytes_pulled() const {
    const fabric::Fabric* const fabric = membership_.fabric;
    if (fabric == nullptr) return 0;
    return fabric->bytes_pulled() - (fabric == membership_.kv_fabric ? kv_->bytes_pulled() : 0);
  }

  kv::Cache& kv() { return *kv_; }
  const kv::Cache& kv() const { return *kv_; }
  kv::HostTier* tier() { return tier_.get(); }  // null: nothing lies below the device
  const kv::HostTier* tier() const { return tier_.get(); }
  kv::Window* window() { return window_.get(); }  // null: nothing is streamed
  const kv::Window* window() const { return window_.get(); }
  device::Device& device() { return *device_; }
  device::StreamTime compute_time() const { return device_->TimeOf(device_->compute()); }
  // The time of the first stream that copies weights; the only one where cores copy.
  device::StreamTime copy_time() const {
    return device_->TimeOf(device_->copy(device::CopyKind::kWeights));
  }
  const model::ReplicaCut& cut() const { return membership_.cut; }
  // Buffers of one step that may be in flight; tables and sampled tokens are those of all.
  StepBuffers& buffers(int flight = 0) { return flights_[static_cast<size_t>(flight)].buffers; }
  // Whether it computes logits of all of the vocabulary and draws tokens: of a replica one rank, on
  // the last stage.
  bool samples() const { return membership_.cut.last_stage() && membership_.cut.block() == 0; }
  // Enqueues the step that buffers(flight) holds, which is not in flight; tasks[i] belongs to logit
  // row i and must live until the wait. Only the rank that samples looks at them. `rows`: of all
  // ranks of the pool, where the mode meets, and `steps` the numbers of theirs.
  void EnqueueStep(std::vector<LogitTask>* tasks, const StepMode& mode = {},
                   const share::ShipRows& rows = {}, const share::ShipSteps& steps = {},
                   int flight = 0);
  // Enqueues this rank's part in a step that others take, in a mode that meets.
  void EnqueueService(const StepMode& mode, const share::ShipRows& rows,
                      const share::ShipSteps& steps);
  // Begins to pull blocks from this rank's like in the replica that lends them, as
  // kv::Cache::EnqueuePull says.
  base::Status EnqueueKvPull(const kv::KvLoan& loan, std::span<const kv::Cache::Move> moves) {
    return kv_->EnqueuePull(*membership_.kv_fabric,
                            membership_.lenders[static_cast<size_t>(loan.replica)], loan.num_blocks,
                            moves);
  }
  // Waits for the step's end, come what may; false: it has not come.
  bool StepEnded(runtime::TimeNs timeout, int flight) {
    return device_->WaitFor(*flights_[static_cast<size_t>(flight)].done, timeout);
  }
  // Waits for the step's end: kStepTimeout after `timeout`, or the fault that the device met.
  base::Status WaitStep(runtime::TimeNs timeout, int flight = 0);
  // Its group has failed: nobody waits for anybody any more.
  void Abort(const base::Status& why) {
    if (membership_.fabric) membership_.fabric->Abort(why);
  }
  const model::Decoder& decoder() const { return decoder_; }
  bool digests_on() const { return digests_on_; }

 private:
  // What each step in flight has of its own.
  struct Flight {
    StepBuffers buffers;
    std::unique_ptr<device::DeviceEvent> done;
    uint16_t* chosen = nullptr;
  };

  Rank() = default;
  // Allocates the plan's regions; peers find the published ones.
  base::Status AllocateRegions(const layout::MemoryPlan& plan);
  // Where the steps' choices of experts are kept, where the plan has room for them.
  void CutChosen(const layout::MemoryPlan& plan);
  // REQUIRES: the plan has it.
  const device::Region& region(std::string_view name) const;
  // The links of a mode in which it meets these ranks.
  base::Status LinkMode(const fabric::Communicator& tensor, const fabric::Communicator& sequence,
                        int tensor_channel, int sequence_channel, model::ReplicaLinks* links);
  const model::Decoder& DecoderOf(const StepMode& mode) const;
  void Sample(const StepBuffers& buffers, int32_t first, int32_t count, LogitTask* tasks);

  std::unique_ptr<device::Device> device_;
  std::vector<Flight> flights_;
  bool digests_on_ = false;
  std::unique_ptr<model::ModelConfig> config_;
  model::Decoder decoder_;
  std::unique_ptr<kernels::RoutingCounters> routed_;
  Membership membership_;
  std::unique_ptr<share::WeightPool> pool_;
  std::shared_ptr<const share::ShipPlan> ship_plan_;
  std::unique_ptr<share::ShippedFfn> ship_;
  std::optional<kv::Cache> kv_;
  std::unique_ptr<kv::HostTier> tier_;
  std::unique_ptr<kv::Window> window_;
  std::deque<fabric::Exchange> exchanges_;  // what decoders' links point to
  std::vector<ModeCounters> mode_counters_;
  std::vector<model::Decoder> shifted_;   // decoder_ in each further mode
  const model::Decoder* last_ = nullptr;  // of the last step
  std::atomic<int64_t> switches_{0};
  std::array<std::atomic<int64_t>, kNumFfnModes> steps_{};
  std::optional<fabric::Handover> from_last_stage_, to_next_stage_;
  std::vector<sample::SampleScratch> scratch_;  // one a worker
};

}  // namespace forebay::engine

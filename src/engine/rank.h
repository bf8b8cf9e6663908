// One device with its copy of the model: builds a step's batch and enqueues the step. What to run is the replica's business.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "device/device.h"
#include "engine/memory_plan.h"
#include "engine/step_buffers.h"
#include "kv/book/block_book.h"
#include "model/decoder.h"
#include "model/ship.h"
#include "sample/sampler.h"

namespace forebay::engine {

inline constexpr base::ErrorCode kStepTimeout{"step_timeout"};

// What becomes of one row of logits.
struct LogitTask {
  sample::SampleInput input;       // logits are filled in by the rank; params null: only the logprobs below
  int32_t slot = -1;               // whose last sampled token this is
  int32_t target = -1;             // prompt logprobs: the prompt's next token
  int32_t target_logprobs = -1;    // how many alternatives of it
  sample::SampleOutput sampled;
  PositionLogprobs target_output;
};

// A rank's part in its group.
struct Membership {
  model::ReplicaCut cut;                  // its place in its replica
  fabric::Fabric* fabric = nullptr;       // outlives the rank; null: it is alone
  fabric::Communicator tensor, stages;    // the replica's ranks of its stage; of its tp rank, stage by stage
  const model::PoolPlan* pool = nullptr;  // null: it shares no weights
  fabric::Communicator pool_peers;        // the ranks of the pool
  fabric::Communicator ship_members;      // who computes with each other's rows
};

class Rank {
 public:
  // Cuts the arena as the plan says and loads the weights with `load_threads` (no reader: shapes only).
  static base::Result<std::unique_ptr<Rank>> Create(std::unique_ptr<device::Device> device, const model::ModelConfig& config,
                                                    const MemoryPlan& plan, int32_t max_num_seqs, bool digest,
                                                    const kernels::KernelSet& kernels, const weights::TensorReader* reader,
                                                    int load_threads, const Membership& membership = {});

  // Waits for what is enqueued: it uses everything below.
  ~Rank() { device_.reset(); }

  // After all ranks of the group were created, before the first step.
  base::Status Connect();
  // Touches the first `bytes` of the KV cache, which is handed out in that order, with `threads`: pages are committed now, not in steps.
  void TouchKv(uint64_t bytes, int threads);
  // Waits for all that is enqueued, so that nobody reads a peer's memory any more.
  void Quiesce();
  const model::WeightPool* pool() const { return pool_.get(); }
  const model::ShippedFfn* ship() const { return ship_.get(); }  // null: no step ships
  // From other ranks so far.
  uint64_t bytes_pulled() const { return membership_.fabric ? membership_.fabric->bytes_pulled() - kv_bytes_pulled_ : 0; }

  device::Device& device() { return *device_; }
  device::StreamTime compute_time() const { return device_->TimeOf(device_->compute()); }
  // Of the first stream that copies weights; the only one where cores copy.
  device::StreamTime copy_time() const { return device_->TimeOf(device_->copy(device::CopyKind::kWeights)); }
  const model::ReplicaCut& cut() const { return membership_.cut; }
  // Of one of the steps that may be in flight; tables and sampled tokens are those of all.
  StepBuffers& buffers(int flight = 0) { return flights_[static_cast<size_t>(flight)].buffers; }
  // Whether it computes logits of all of the vocabulary and draws tokens: of a replica one rank, on the last stage.
  bool samples() const { return membership_.cut.last_stage() && membership_.cut.tp_rank == 0; }
  // Enqueues the step that buffers(flight) holds, which is not in flight; tasks[i] belongs to logit row i and must live until the wait. Only the rank that
  // samples looks at them. `ship`: the rows of all ranks of the pool, which take this step together; null: the replica takes it
  // alone.
  void EnqueueStep(std::vector<LogitTask>* tasks, const model::ShipRows* ship = nullptr, int flight = 0);
  // Enqueues this rank's part in a step that others take and ship.
  void EnqueueService(const model::ShipRows& ship);
  // Of a sequence in a KV group: its blocks at the rank that has them, and those that they go to.
  struct KvMove {
    std::span<const kv::BlockId> from, to;
  };
  // Begins to pull blocks from `peer`, whose KV cache is laid out as this rank's; by KV group. REQUIRES: the last pull was waited
  // for; nobody writes to the blocks meanwhile.
  base::Status EnqueueKvPull(int peer, std::span<const KvMove> moves);
  base::Status WaitKvPull(runtime::TimeNs timeout);
  // Bytes of the last pull.
  uint64_t kv_pull_bytes() const { return kv_pull_bytes_; }
  // Waits for the step's end, come what may; false: it has not come.
  bool StepEnded(runtime::TimeNs timeout, int flight) { return device_->WaitFor(*flights_[static_cast<size_t>(flight)].done, timeout); }
  // Waits for the step's end: kStepTimeout after `timeout`, or the fault that the device met.
  base::Status WaitStep(runtime::TimeNs timeout, int flight = 0);
  // Its group has failed: nobody waits for anybody any more.
  void Abort(const base::Status& why) { if (membership_.fabric) membership_.fabric->Abort(why); }
  // Sum of the digests of positions [begin, end) of the sequence whose table in the group this is.
  uint64_t KvDigest(int group, std::span<const kv::BlockId> table, int64_t begin, int64_t end) const;
  const model::Decoder& decoder() const { return decoder_; }
  bool digests_on() const { return digests_on_; }

 private:
  // What each step in flight has of its own.
  struct Flight {
    StepBuffers buffers;
    std::unique_ptr<device::DeviceEvent> done;
  };

  Rank() = default;
  base::Status PublishStaging(const MemoryPlan& plan);
  void PlaceKv(const MemoryPlan& plan, const device::Region& kv);
  void Sample(const StepBuffers& buffers, int32_t first, int32_t count, LogitTask* tasks);

  std::unique_ptr<device::Device> device_;
  std::vector<Flight> flights_;
  bool digests_on_ = false;
  std::unique_ptr<model::ModelConfig> config_;
  model::Decoder decoder_;
  Membership membership_;
  std::unique_ptr<model::WeightPool> pool_;
  std::shared_ptr<const model::ShipPlan> ship_plan_;
  std::unique_ptr<model::ShippedFfn> ship_;
  // Where KV blocks lie in their region.
  struct KvPlace {
    uint64_t blocks = 0, stride = 0;    // offset of the first; bytes
    uint64_t digests = 0, digest_bytes = 0;  // the same of their digests; none: 0 bytes
  };
  const device::Region* kv_region_ = nullptr;
  std::vector<KvPlace> kv_places_;      // by KV group
  std::unique_ptr<device::DeviceEvent> kv_pulled_;  // null: nothing was ever pulled
  uint64_t kv_pull_bytes_ = 0;
  std::atomic<uint64_t> kv_bytes_pulled_{0};
  std::optional<fabric::Exchange> tensor_exchange_;
  std::optional<fabric::Handover> from_last_stage_, to_next_stage_;
  std::vector<sample::SampleScratch> scratch_;  // one a worker
};

}  // namespace forebay::engine

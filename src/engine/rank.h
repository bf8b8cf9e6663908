// One device with its copy of the model: builds a step's batch and enqueues the step. What to run is the replica's business.
#pragma once

#include <memory>
#include <vector>

#include "device/device.h"
#include "engine/memory_plan.h"
#include "engine/step_buffers.h"
#include "kv/book/block_book.h"
#include "model/decoder.h"
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

// A rank's part in a group that shares weights.
struct PoolMembership {
  const model::PoolPlan* plan = nullptr;  // null: it shares nothing
  fabric::Fabric* fabric = nullptr;       // outlives the rank
  fabric::Communicator peers;             // the ranks of the pool
};

class Rank {
 public:
  // Cuts the arena as the plan says and loads the weights with `load_threads` (no reader: shapes only).
  static base::Result<std::unique_ptr<Rank>> Create(std::unique_ptr<device::Device> device, const model::ModelConfig& config,
                                                    const MemoryPlan& plan, int32_t max_num_seqs, bool digest,
                                                    const kernels::KernelSet& kernels, const weights::TensorReader* reader,
                                                    int load_threads, const PoolMembership& pool = {});

  // Waits for what is enqueued: it uses everything below.
  ~Rank() { device_.reset(); }

  // After all ranks of the pool were created, before the first step.
  base::Status ConnectPool();
  // Waits for all that is enqueued, so that nobody reads a peer's memory any more.
  void Quiesce();
  const model::WeightPool* pool() const { return pool_.get(); }
  // From other ranks so far.
  uint64_t bytes_pulled() const { return fabric_ ? fabric_->bytes_pulled() : 0; }

  device::Device& device() { return *device_; }
  StepBuffers& buffers() { return *buffers_; }
  // Enqueues the step that buffers() holds; tasks[i] belongs to logit row i and must live until the wait.
  void EnqueueStep(std::vector<LogitTask>* tasks);
  // Waits for the step's end: kStepTimeout after `timeout`, or the fault that the device met.
  base::Status WaitStep(runtime::TimeNs timeout);
  // Sum of the digests of positions [0, count) of the sequence whose table this is.
  uint64_t KvDigest(std::span<const kv::BlockId> table, int64_t count) const;
  const model::Decoder& decoder() const { return decoder_; }
  bool digests_on() const { return decoder_.kv.digests != nullptr; }

 private:
  Rank() = default;

  std::unique_ptr<device::Device> device_;
  std::unique_ptr<StepBuffers> buffers_;
  std::unique_ptr<device::DeviceEvent> step_done_;
  std::unique_ptr<model::ModelConfig> config_;
  model::Decoder decoder_;
  fabric::Fabric* fabric_ = nullptr;
  std::unique_ptr<model::WeightPool> pool_;
  std::vector<sample::SampleScratch> scratch_;  // one a worker
};

}  // namespace forebay::engine

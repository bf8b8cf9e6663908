// One device with its copy of the model: builds a step's batch and enqueues the step. What to run
// is the replica's business.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "engine/membership.h"
#include "engine/mode_decoders.h"
#include "engine/rank_regions.h"
#include "engine/step_buffers.h"
#include "kv/cache.h"
#include "kv/loan.h"
#include "kv/tier/tier.h"
#include "kv/tier/window.h"
#include "layout/memory_plan.h"
#include "model/decoder.h"
#include "sample/sampler.h"
#include "share/ship.h"
#include "share/weight_pool.h"

namespace forebay::engine {

struct Sequence;

inline constexpr base::ErrorCode kStepTimeout{"step_timeout"};

// What becomes of one row of logits.
struct Likely {
  const kernels::LikelyHead* head = nullptr;
  const kernels::LikelyToken* tokens = nullptr;
};
struct LogitTask {
  // logits are filled in by the rank; params null: only the logprobs below
  sample::SampleInput input;
  std::vector<int32_t> bans;    // input.banned, where bad words are among them
  int32_t sequence = -1;        // gets the drawn token as its last one
  int32_t target = -1;          // prompt logprobs: the prompt's next token
  int64_t target_position = 0;  // where it stands, or the row that is pooled
  // No logits: this sequence's vector is made of rows after the final norm, of which this is one.
  const Sequence* pooled = nullptr;
  int32_t target_logprobs = -1;  // how many alternatives of it
  bool nan = false;              // the logits are NaN: nothing was drawn
  // Of pooled rows, by the rank: the first row's task has the sum of that and of those that the
  // rank takes with it, or the vector where these are all; tasks of later rows have a row where it
  // is in no sum.
  std::vector<double> sum;
  std::vector<float> vector, row;
  const uint64_t* digest = nullptr;  // the logits', where the rank that draws them puts it
  // Kernels look at the row, and the host at nothing but this: where they put the token or
  // kNothingDrawn, and what the log probabilities of it and of the target follow from. Null: not
  // asked for.
  bool by_kernels = false;
  const int32_t* drawn = nullptr;
  Likely likely, target_likely;
  sample::SampleOutput sampled;
  PositionLogprobs target_output;
};

// What a rank is made from.
struct RankParts {
  const layout::MemoryPlan& memory;
  const kernels::KernelSet& kernels;
  const weights::TensorReader* reader = nullptr;  // null: shapes alone
  int load_threads = 1;
  bool digest = false;
  const share::PoolPlan* pool = nullptr;  // null: it shares no weights
};

class Rank {
 public:
  // Allocates the plan's regions and loads the weights. `parts.kernels` outlives the rank.
  static base::Result<std::unique_ptr<Rank>> Create(std::unique_ptr<device::Device> device,
                                                    const RankParts& parts,
                                                    const Membership& membership);

  // Waits for the enqueued operations: they use the members below.
  ~Rank() {
    (void)device_->Synchronize(device_->compute());
    host_.reset();
    device_.reset();
  }

  // After all ranks of the group were created, before the first step.
  base::Status Connect();
  // Waits for all enqueued operations. Then the rank reads no peer's memory any more.
  void Quiesce();
  const share::WeightPool* pool() const { return pool_.get(); }
  const kernels::RoutingCounters* routed() const { return routed_.get(); }  // null: no experts
  // Which experts the rows of a step that has ended chose, as BlockContext::chosen; null: nobody
  // keeps that. And by how many rows its layers stand apart.
  const uint16_t* chosen(int flight) const { return flights_[static_cast<size_t>(flight)].chosen; }
  int64_t chosen_rows() const { return decoder().chosen_rows; }
  const model::Shard& shard() const { return decoder().weights.shard; }
  const share::ShippedFfn* ship() const { return ship_.get(); }  // null: no step ships
  // Rows whose tokens kernels have drawn. Any thread. Nothing: its kernels draw none.
  std::optional<int64_t> rows_drawn() const {
    if (decoder().kernels->draw_rows == nullptr) return std::nullopt;
    return rows_drawn_.load(std::memory_order_relaxed);
  }
  const ModeDecoders& modes() const { return modes_; }
  // Asked for from other ranks so far; experts that come because they have rows are not in it.
  uint64_t bytes_pulled() const {
    const fabric::Fabric* const fabric = membership_.fabric;
    if (fabric == nullptr) return 0;
    return fabric->bytes_pulled() - (fabric == membership_.kv_fabric ? kv_->bytes_pulled() : 0);
  }

  // Commits the pages of the pool's slots, which the first steps fill, and of so much KV cache, in
  // the order in which it is handed out. REQUIRES: a device with real memory, before the first
  // step.
  void TouchPages(uint64_t kv_bytes, int threads);

  kv::Cache& kv() { return *kv_; }
  const kv::Cache& kv() const { return *kv_; }
  kv::Tier* tier() { return tier_.get(); }  // null: nothing lies below the device
  const kv::Tier* tier() const { return tier_.get(); }
  kv::Window* window() { return window_.get(); }  // null: nothing is streamed
  const kv::Window* window() const { return window_.get(); }
  device::Device& device() { return *device_; }
  device::StreamTime compute_time() const { return device_->TimeOf(device_->compute()); }
  // The time of the first stream that copies weights; the only one where cores copy.
  device::StreamTime copy_time() const {
    return device_->TimeOf(device_->copy(device::CopyKind::kWeights));
  }
  std::optional<device::LaunchCounts> launches() const { return device_->launches(); }
  const model::ReplicaCut& cut() const { return membership_.cut; }
  // Buffers of one step that may be in flight; tables and sampled tokens are those of all.
  StepBuffers& buffers(int flight = 0) { return flights_[static_cast<size_t>(flight)].buffers; }
  // One rank of each replica leads, on the last stage: a step's batch is built in its buffers.
  bool leads() const { return membership_.cut.last_stage() && membership_.cut.block() == 0; }
  // Enqueues the step that buffers(flight) holds, which is not in flight; tasks[i] belongs to logit
  // row i and must live until the wait. Only the rank that draws a row looks at it. `rows`: of all
  // ranks of the pool, where the mode meets, and `steps` the numbers of theirs.
  void EnqueueStep(std::vector<LogitTask>* tasks, const StepMode& mode = {},
                   const share::ShipRows& rows = {}, const share::ShipSteps& steps = {},
                   int flight = 0);
  // Enqueues this rank's part in a step that others take, in a mode that meets.
  void EnqueueService(const StepMode& mode, const share::ShipRows& rows,
                      const share::ShipSteps& steps);
  // Begins to pull its part of blocks from the replica that lends them, as kv::Cache::EnqueuePull
  // says.
  base::Status EnqueueKvPull(const kv::KvLoan& loan, std::span<const kv::Cache::Move> moves) {
    return kv_->EnqueuePull(*membership_.kv_fabric,
                            membership_.lent[static_cast<size_t>(loan.replica)], moves);
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
  const model::Decoder& decoder() const { return modes_.own(); }  // in the layout's own mode
  bool digests_on() const { return digests_on_; }
  // Of the rank's part of the states in a place. REQUIRES: no step that writes them is under way.
  uint64_t StateDigest(int32_t place, int64_t positions) const {
    return kv::StateDigest(states_, decoder().states, shard().layers.begin, place, positions,
                           device_.get());
  }

 private:
  // What each step in flight has of its own.
  struct Flight {
    StepBuffers buffers;
    std::unique_ptr<device::DeviceEvent> done;
    uint16_t* chosen = nullptr;
  };

  Rank(std::unique_ptr<device::Device> device, const Membership& membership);
  // Lets peers find the regions that the plan publishes.
  base::Status PublishRegions(const layout::MemoryPlan& plan);
  // Steps in flight have batches of their own, and one set of tables and sampled tokens.
  void CutFlights(const layout::MemoryPlan& plan);
  kv::StateView StatesOf(const layout::MemoryPlan& plan) const;
  // Memory for the logits that the host samples from, where it needs some.
  base::Status AllocateHostLogits(const layout::MemoryPlan& plan);
  // Lets kernels find the tables of weights, which nobody changes from here on.
  void SendWeightTables();
  // Makes the decoder of the layout's own mode. Pooled weights are loaded into the region that
  // peers read, as far as the rank owns them.
  base::Status LoadModel(const RankParts& parts);
  // Opens what lies below the device, and the window through which it is streamed.
  base::Status OpenTier(const layout::MemoryPlan& plan);
  void JoinPool(const share::PoolPlan& pool);
  // Further modes read the weights that are there, cut otherwise, unless they are to have copies.
  base::Status AddModes(const RankParts& parts);
  // Of `count` wanted rows from `first` on: computes logits and draws its share of tokens, or
  // takes the rows that are pooled.
  // decoder: of the step's mode.
  void Wanted(const model::Decoder& decoder, const StepBuffers& buffers, int32_t first,
              int32_t count, LogitTask* tasks);
  void TakeRows(int32_t count, LogitTask* tasks);
  // Draws the tokens of the rank's share of these wanted rows: kernels draw plain ones, the host's
  // workers the others.
  void Sample(const StepBuffers& buffers, int32_t first, int32_t count, LogitTask* tasks);
  // What kernels draw, before the step is sent to the device; and of these rows, behind them.
  void PlanDraws(const std::vector<LogitTask>& tasks, StepBuffers* buffers) const;
  void DrawPlain(const StepBuffers& buffers, int32_t first, int32_t count, LogitTask* tasks);
  // What the host draws of these rows of logits, once they are where it reaches them; returns
  // their number.
  int32_t BringLogits(int32_t count, const LogitTask* tasks);

  std::unique_ptr<device::Device> device_;
  RankRegions regions_;
  std::vector<Flight> flights_;
  bool digests_on_ = false;
  std::vector<kv::StateSpec> states_;               // By layer; empty: none keeps one.
  std::shared_ptr<const model::DecoderPlan> plan_;  // what the rank shares is marked in it
  std::unique_ptr<kernels::RoutingCounters> routed_;
  Membership membership_;
  std::unique_ptr<share::WeightPool> pool_;
  std::shared_ptr<const share::ShipPlan> ship_plan_;
  std::unique_ptr<share::ShippedFfn> ship_;
  std::optional<kv::Cache> kv_;
  std::unique_ptr<kv::Tier> tier_;
  std::unique_ptr<kv::Window> window_;
  ModeDecoders modes_;
  std::vector<sample::SampleScratch> scratch_;  // one a worker
  std::atomic<int64_t> rows_drawn_{0};
  // Where the device's logits come to be sampled, if the host does not reach them. It ends before
  // the device.
  std::unique_ptr<device::Arena> host_;
  const device::Region* host_logits_ = nullptr;
};

}  // namespace forebay::engine

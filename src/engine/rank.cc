#include "engine/rank.h"

#include <algorithm>

#include "device/touch_pages.h"
#include "model/routing.h"
#include "model/weight_views.h"
#include "sample/softmax.h"

namespace forebay::engine {
namespace {

// The draw of each row of a part of the logits, spread over the workers.
struct SampleArgs {
  LogitTask* tasks;
  sample::SampleScratch* scratch;  // [workers]
  const float* logits;             // [count, vocab]
  int32_t* sampled;                // StepBatch::sampled
  int32_t count;
  int64_t vocab;
};

void SampleRows(const SampleArgs& args, const device::WorkerContext& context) {
  sample::SampleScratch* scratch = &args.scratch[context.worker];
  for (int64_t i = context.ticket->fetch_add(1); i < args.count; i = context.ticket->fetch_add(1)) {
    LogitTask& task = args.tasks[i];
    const std::span<const float> logits(args.logits + i * args.vocab,
                                        static_cast<size_t>(args.vocab));
    task.nan = sample::AllNan(logits);
    if (task.nan) continue;
    if (task.target >= 0)
      task.target_output = sample::LogprobsOf(logits, task.target, task.target_logprobs, scratch);
    if (task.input.params == nullptr) continue;
    task.input.logits = logits;
    task.sampled = sample::Sample(task.input, scratch);
    args.sampled[task.sequence] = task.sampled.token;
  }
}

}  // namespace

base::Result<std::unique_ptr<Rank>> Rank::Create(std::unique_ptr<device::Device> device,
                                                 const model::ModelConfig& config,
                                                 const layout::MemoryPlan& plan, bool digest,
                                                 const kernels::KernelSet& kernels,
                                                 const weights::TensorReader* reader,
                                                 int load_threads, const Membership& membership) {
  std::unique_ptr<Rank> rank(new Rank());
  rank->device_ = std::move(device);
  rank->config_ = std::make_unique<model::ModelConfig>(config);
  rank->membership_ = membership;
  FB_RETURN_IF_ERROR(rank->AllocateRegions(plan));
  const device::Arena& arena = rank->device_->arena();

  // The plan has all weights of the rank. Those that it pools are loaded into the region that peers
  // read, and only as far as it owns them.
  const tensor::DType dtype = plan.dtype;
  model::DecoderPlan decoder_plan = *plan.decoder;
  decoder_plan.max_positions = plan.max_model_len;
  model::PooledRunAt pooled_at;
  const share::PoolPlan* pool = membership.pool;
  if (pool) {
    share::MarkPooled(*pool, &decoder_plan);
    pooled_at = share::OwnRuns(*pool, arena.region(layout::kPoolRegion));
  }
  model::Decoder& decoder = rank->modes_.own();
  FB_ASSIGN_OR_RETURN(decoder.weights,
                      model::LoadDecoder(decoder_plan, reader, arena.region("weights"),
                                         arena.region("weight tables"), pooled_at, load_threads));
  device::RegionCutter cutter(arena.region("workspace"));
  decoder.activations =
      model::CutActivations(config, dtype, plan.capacity, &cutter, membership.cut);
  device::RegionCutter batch_cutter(arena.region("step batch"));
  // Steps in flight have batches of their own, and one set of tables and sampled tokens.
  for (int32_t flight = 0; flight < plan.steps_in_flight; ++flight) {
    const StepBuffers* const shared = flight == 0 ? nullptr : &rank->flights_[0].buffers;
    StepBuffers buffers(plan.step_shape, &batch_cutter, shared);
    rank->flights_.push_back({std::move(buffers), rank->device_->NewEvent()});
  }

  decoder.config = rank->config_.get();
  decoder.dtype = dtype;
  decoder.kernels = &kernels;
  decoder.stream = &rank->device_->compute();
  decoder.capacity = plan.capacity;
  decoder.routing = membership.routing.get();
  rank->routed_ = model::RoutingCountersOf(config);
  decoder.routed = rank->routed_.get();
  decoder.replica = membership.replica;
  rank->CutChosen(plan);
  rank->kv_.emplace(*rank->device_, arena.region(layout::kKvRegion), plan.kv_groups,
                    plan.num_blocks, digest);
  if (plan.tier_blocks.all() > 0) {
    FB_ASSIGN_OR_RETURN(rank->tier_, kv::Tier::Create(*rank->device_, *rank->kv_, plan.tier_blocks,
                                                      membership.kv_file, membership.slow_kv_up));
  }
  decoder.kv = rank->kv_->view();
  if (plan.streamed_blocks > 0) {
    rank->window_ =
        std::make_unique<kv::Window>(*rank->device_, *rank->kv_, *rank->tier_,
                                     arena.region(layout::kKvWindow), plan.streamed_blocks);
    decoder.window = rank->window_.get();
  }
  rank->digests_on_ = digest;
  rank->modes_.SetOwn(membership.cut.degrees());
  if (pool) {
    rank->pool_ = std::make_unique<share::WeightPool>(
        *pool, decoder.weights, *rank->device_, arena.region(layout::kWeightSlots),
        arena.region("pool tables"), *membership.fabric, membership.peers);
    decoder.shared = rank->pool_.get();
    (void)rank->copy_time();  // the stream is there before any thread asks for its time
    rank->ship_plan_ = pool->ship;
  }
  rank->membership_.pool = nullptr;  // the pool has its copy
  // Further modes read the weights that are there, cut otherwise, unless they are to have copies.
  if (!plan.views.empty()) {
    model::ModeSource source{decoder_plan, decoder.weights, reader, load_threads,
                             device::RegionCutter(arena.region(layout::kModeTables))};
    if (plan.copies_views) source.copies.emplace(arena.region(layout::kModeWeights));
    for (const auto& view : plan.views) {
      model::Decoder& further = rank->modes_.Add(view->shard.mode);
      further.shared = nullptr;  // of what is pooled the rank owns what it reads
      FB_ASSIGN_OR_RETURN(further.weights, model::ModeWeights(*view, &source));
    }
  }
  rank->scratch_.resize(static_cast<size_t>(rank->device_->num_workers()));
  return rank;
}

base::Status Rank::AllocateRegions(const layout::MemoryPlan& plan) {
  for (const layout::Region& planned : plan.regions) {
    FB_ASSIGN_OR_RETURN(const device::Region* region,
                        device_->arena().Allocate(planned.name, planned.bytes, planned.kind));
    // The second fabric, where a job has roles, is for KV alone.
    if (planned.published && membership_.fabric)
      FB_RETURN_IF_ERROR(membership_.fabric->Publish(*region));
    fabric::Fabric* const kv_fabric = membership_.kv_fabric;
    if (kv_fabric && kv_fabric != membership_.fabric &&
        std::string_view(planned.name) == layout::kKvRegion)
      FB_RETURN_IF_ERROR(kv_fabric->Publish(*region));
  }
  return base::Status::Ok();
}

void Rank::CutChosen(const layout::MemoryPlan& plan) {
  const std::string_view name = layout::kChosenRegion;
  if (std::ranges::find(plan.regions, name, &layout::Region::name) == plan.regions.end()) return;
  modes_.own().chosen_rows = plan.capacity.rows;
  device::RegionCutter cutter(device_->arena().region(layout::kChosenRegion));
  const auto bytes = static_cast<uint64_t>(layout::ChosenElements(plan)) * sizeof(uint16_t);
  for (Flight& flight : flights_) flight.chosen = reinterpret_cast<uint16_t*>(cutter.Cut(bytes));
}

base::Status Rank::Connect() {
  if (pool_) FB_RETURN_IF_ERROR(pool_->Connect(layout::kPoolRegion));
  if (ship_plan_) {
    FB_ASSIGN_OR_RETURN(ship_,
                        share::ShippedFfn::Create(*ship_plan_, *device_, *membership_.fabric,
                                                  membership_.peers, membership_.ship_members));
    modes_.own().remote_ffn = ship_.get();
  }
  return modes_.Connect(membership_, device_->arena());
}

void Rank::TouchPages(uint64_t kv_bytes, int threads) {
  if (pool_ != nullptr) {
    const device::Region& slots = device_->arena().region(layout::kWeightSlots);
    device::TouchPages(slots, slots.bytes, threads);
  }
  device::TouchPages(kv_->region(), kv_bytes, threads);
}

void Rank::Quiesce() {
  (void)device_->Synchronize(device_->compute());
  if (pool_) pool_->Quiesce();
  kv_->Quiesce();
  if (tier_) tier_->Quiesce();
}

void Rank::EnqueueStep(std::vector<LogitTask>* tasks, const StepMode& mode,
                       const share::ShipRows& rows, const share::ShipSteps& steps, int flight) {
  StepBuffers& buffers = this->buffers(flight);
  const kernels::StepBatch& batch = buffers.Finish();
  FB_CHECK(tasks->size() == static_cast<size_t>(batch.num_logit_rows),
           "{} tasks for {} rows of logits", tasks->size(), batch.num_logit_rows);
  if (mode.meets()) ship_->Begin(rows, steps);
  const model::Decoder& decoder = modes_.Begin(mode, flights_[static_cast<size_t>(flight)].chosen);
  decoder.Forward(batch, buffers.context(), mode);
  const int32_t logit_rows = membership_.cut.last_stage() ? batch.num_logit_rows : 0;
  // Even parts: each reads all of the head.
  const auto most = static_cast<int32_t>(decoder.capacity.logit_rows),
             parts = (logit_rows + most - 1) / std::max(1, most);
  for (int32_t part = 0; part < parts; ++part) {
    const int32_t first = logit_rows * part / parts,
                  count = logit_rows * (part + 1) / parts - first;
    decoder.Logits(batch, first, count);
    Sample(buffers, first, count, tasks->data() + first);
  }
  decoder.stream->Record(*flights_[static_cast<size_t>(flight)].done);
}

void Rank::Sample(const StepBuffers& buffers, int32_t first, int32_t count, LogitTask* tasks) {
  const base::Part drawn = model::DrawnRows(count, cut().degrees(), cut().block());
  if (drawn.size() == 0) return;
  first += static_cast<int32_t>(drawn.begin), count = static_cast<int32_t>(drawn.size());
  tasks += drawn.begin;
  const int64_t vocab = config_->vocab_size;
  if (digests_on()) {
    uint64_t* const digests = buffers.logit_digests() + first;
    kernels::LogitsDigest(*decoder().stream, *decoder().kernels,
                          {.logits = decoder().activations.logits,
                           .stride = vocab,
                           .num_rows = count,
                           .vocab = static_cast<int32_t>(vocab),
                           .positions = buffers.logit_positions() + first,
                           .digests = digests});
    for (int32_t i = 0; i < count; ++i) tasks[i].digest = digests + i;
  }
  const auto draws = [](const LogitTask& task) {
    return task.input.params != nullptr && task.input.params->temperature > 0;
  };
  const SampleArgs args{
      tasks, scratch_.data(), decoder().activations.logits, buffers.batch().sampled, count, vocab};
  cost::OpDesc desc{
      .kind = cost::OpKind::kSample,
      .label = "sample",
      .rows = count,
      .columns = vocab,
      .read_bytes = static_cast<double>(count) * static_cast<double>(vocab) * sizeof(float),
      .drawn_rows = std::count_if(args.tasks, args.tasks + count, draws)};
  device::Operation operation = device::MakeOperation<&SampleRows>(desc, args);
  operation.Reads(args.logits, static_cast<uint64_t>(count * vocab) * sizeof(float));
  decoder().stream->Enqueue(operation);
}

void Rank::EnqueueService(const StepMode& mode, const share::ShipRows& rows,
                          const share::ShipSteps& steps) {
  // The batch is empty: the rows are those of others.
  buffers().Begin();
  ship_->Begin(rows, steps);
  decoder().Serve(mode);
  decoder().stream->Record(*flights_[0].done);
}

base::Status Rank::WaitStep(runtime::TimeNs timeout, int flight) {
  if (!StepEnded(timeout, flight)) {
    return base::Status(
        kStepTimeout,
        fmt::format("a step of {} rows did not finish in {}", buffers(flight).batch().num_rows,
                    base::FormatDuration(runtime::SecondsOf(timeout))));
  }
  return device_->FaultOf(*decoder().stream);
}

}  // namespace forebay::engine

#include "engine/rank.h"

#include <algorithm>

#include "runtime/parallel_for.h"

namespace forebay::engine {
namespace {

// Published for peers.
constexpr char kPoolRegion[] = "weight pool", kKvRegion[] = "kv", kTensorStaging[] = "tensor staging", kStageStaging[] = "stage staging";

// A transfer of KV is one turn: links are shared fluidly.
constexpr uint64_t kKvSlice = 64 << 20;

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
    const std::span<const float> logits(args.logits + i * args.vocab, static_cast<size_t>(args.vocab));
    if (task.target >= 0) task.target_output = sample::LogprobsOf(logits, task.target, task.target_logprobs, scratch);
    if (task.input.params == nullptr) continue;
    task.input.logits = logits;
    task.sampled = sample::Sample(task.input, scratch);
    args.sampled[task.slot] = task.sampled.token;
  }
}

}  // namespace

base::Result<std::unique_ptr<Rank>> Rank::Create(std::unique_ptr<device::Device> device, const model::ModelConfig& config,
                                                 const MemoryPlan& plan, int32_t max_num_seqs, bool digest,
                                                 const kernels::KernelSet& kernels, const weights::TensorReader* reader,
                                                 int load_threads, const Membership& membership) {
  std::unique_ptr<Rank> rank(new Rank());
  rank->device_ = std::move(device);
  rank->config_ = std::make_unique<model::ModelConfig>(config);
  rank->membership_ = membership;
  device::Arena& arena = rank->device_->arena();
  FB_ASSIGN_OR_RETURN(const device::Region* weight_region, arena.Allocate("weights", plan.weight_bytes));
  FB_ASSIGN_OR_RETURN(const device::Region* tables,
                      arena.Allocate("weight tables", plan.table_bytes, device::MemoryUse::kControl));
  FB_ASSIGN_OR_RETURN(const device::Region* workspace, arena.Allocate("workspace", plan.workspace_bytes));
  FB_ASSIGN_OR_RETURN(const device::Region* batch,
                      arena.Allocate("step batch", plan.batch_bytes, device::MemoryUse::kControl));
  FB_ASSIGN_OR_RETURN(const device::Region* kv, arena.Allocate(kKvRegion, plan.kv_bytes));

  const tensor::DType dtype = plan.dtype;
  model::DecoderPlan decoder_plan = model::PlanDecoder(config, dtype, plan.max_model_len, membership.cut);
  model::PoolShare share;
  const model::PoolPlan* pool = membership.pool;
  if (pool) {
    model::MarkPooled(*pool, &decoder_plan);
    FB_ASSIGN_OR_RETURN(share.region, arena.Allocate(kPoolRegion, plan.pool_bytes));
    share.book = pool->book.get();
    share.rank = pool->rank;
  }
  model::Decoder& decoder = rank->decoder_;
  FB_ASSIGN_OR_RETURN(decoder.weights, model::LoadDecoder(decoder_plan, reader, *weight_region, *tables, share, load_threads));
  device::RegionCutter cutter(*workspace);
  decoder.activations = model::CutActivations(config, dtype, plan.capacity, &cutter, membership.cut);
  device::RegionCutter batch_cutter(*batch);
  for (int32_t flight = 0; flight < plan.steps_in_flight; ++flight) {
    const StepBuffers* const shared = flight == 0 ? nullptr : &rank->flights_[0].buffers;
    StepBuffers buffers(plan, max_num_seqs, &batch_cutter, shared);
    rank->flights_.push_back({std::move(buffers), rank->device_->NewEvent()});
  }

  decoder.config = rank->config_.get();
  decoder.dtype = dtype;
  decoder.kernels = &kernels;
  decoder.stream = &rank->device_->compute();
  decoder.capacity = plan.capacity;
  decoder.kv = model::CutKvCache(plan.kv_groups, plan.num_blocks, digest, kv->data);
  rank->digests_on_ = digest;
  rank->PlaceKv(plan, *kv);
  if (membership.fabric) FB_RETURN_IF_ERROR(membership.fabric->Publish(*kv));
  if (pool) {
    FB_RETURN_IF_ERROR(membership.fabric->Publish(*share.region));
    FB_ASSIGN_OR_RETURN(const device::Region* slots, arena.Allocate("weight slots", plan.slot_bytes));
    FB_ASSIGN_OR_RETURN(const device::Region* pool_tables,
                        arena.Allocate("pool tables", plan.pool_table_bytes, device::MemoryUse::kControl));
    rank->pool_ = std::make_unique<model::WeightPool>(*pool, decoder.weights, *rank->device_, *slots, *pool_tables,
                                                      *membership.fabric, membership.pool_peers);
    decoder.pool = rank->pool_.get();
    (void)rank->copy_time();  // the stream is there before any thread asks for its time
    rank->ship_plan_ = pool->ship;
  }
  rank->membership_.pool = nullptr;  // the pool has its copy
  FB_RETURN_IF_ERROR(rank->PublishStaging(plan));
  rank->scratch_.resize(static_cast<size_t>(rank->device_->num_workers()));
  return rank;
}

void Rank::PlaceKv(const MemoryPlan& plan, const device::Region& kv) {
  kv_region_ = &kv;
  const auto blocks = static_cast<uint64_t>(plan.num_blocks);
  uint64_t offset = 0;
  for (const model::KvGroup& group : plan.kv_groups) {
    const auto stride = static_cast<uint64_t>(group.layout.block_stride);
    kv_places_.push_back({.blocks = offset, .stride = stride});
    offset += blocks * stride;
  }
  for (size_t i = 0; i < kv_places_.size(); ++i) {
    const uint64_t* const digests = decoder_.kv.groups[i].digests;
    if (digests == nullptr) continue;
    kv_places_[i].digests = static_cast<uint64_t>(reinterpret_cast<const std::byte*>(digests) - kv.data);
    kv_places_[i].digest_bytes = kernels::kBlockTokens * sizeof(uint64_t);
  }
}

base::Status Rank::EnqueueKvPull(int peer, std::span<const KvMove> moves) {
  FB_ASSIGN_OR_RETURN(const device::Region* theirs, membership_.fabric->FindRegion(peer, kKvRegion));
  fabric::CopyPlan plan{.spans = {}, .slice_bytes = kKvSlice};
  for (size_t group = 0; group < moves.size(); ++group) {
    const KvPlace& place = kv_places_[group];
    const KvMove& move = moves[group];
    const auto add = [&](uint64_t base, uint64_t bytes, size_t block) {
      if (bytes == 0) return;
      plan.spans.push_back({.rank = peer, .region = theirs->id, .offset = base + static_cast<uint64_t>(move.from[block]) * bytes,
                                .bytes = bytes, .destination = kv_region_->data + base + static_cast<uint64_t>(move.to[block]) * bytes});
    };
    for (size_t block = 0; block < move.to.size(); ++block) {
      add(place.blocks, place.stride, block);
      add(place.digests, place.digest_bytes, block);
    }
  }
  if (!kv_pulled_) kv_pulled_ = device_->NewEvent();
  const uint64_t before = membership_.fabric->bytes_pulled();
  device::Stream& stream = device_->copy(device::CopyKind::kKv);
  FB_RETURN_IF_ERROR(membership_.fabric->Pull(stream, plan, {}, {}));
  stream.Record(*kv_pulled_);
  kv_pull_bytes_ = membership_.fabric->bytes_pulled() - before;
  kv_bytes_pulled_ += kv_pull_bytes_;
  return base::Status::Ok();
}

base::Status Rank::WaitKvPull(runtime::TimeNs timeout) {
  if (!device_->WaitFor(*kv_pulled_, timeout)) {
    return base::Status(kStepTimeout, fmt::format("{} of KV cache did not arrive in {}", base::FormatBytes(kv_pull_bytes_),
                                                  base::FormatDuration(static_cast<double>(timeout) * 1e-9)));
  }
  return device_->Synchronize(device_->copy(device::CopyKind::kKv));
}

base::Status Rank::PublishStaging(const MemoryPlan& plan) {
  const std::pair<const char*, uint64_t> regions[] = {{kTensorStaging, plan.tensor_staging_bytes},
                                                      {kStageStaging, plan.stage_staging_bytes},
                                                      {model::ShippedFfn::kRowsRegion, plan.ship_rows_bytes},
                                                      {model::ShippedFfn::kSumsRegion, plan.ship_sums_bytes}};
  for (const auto& [name, bytes] : regions) {
    if (bytes == 0) continue;
    FB_ASSIGN_OR_RETURN(const device::Region* region, device_->arena().Allocate(name, bytes));
    FB_RETURN_IF_ERROR(membership_.fabric->Publish(*region));
  }
  return base::Status::Ok();
}

base::Status Rank::Connect() {
  if (pool_) FB_RETURN_IF_ERROR(pool_->Connect(kPoolRegion));
  if (ship_plan_) {
    FB_ASSIGN_OR_RETURN(ship_, model::ShippedFfn::Create(*ship_plan_, *membership_.fabric, membership_.pool_peers,
                                                                membership_.ship_members));
    decoder_.ship = ship_.get();
  }
  const model::ReplicaCut& cut = membership_.cut;
  if (cut.tp > 1) {
    FB_ASSIGN_OR_RETURN(const device::Region* staging, membership_.fabric->FindRegion(membership_.fabric->rank(), kTensorStaging));
    FB_ASSIGN_OR_RETURN(tensor_exchange_, fabric::Exchange::Create(*membership_.fabric, membership_.tensor, *staging,
                                                                   fabric::kTensorChannel));
    decoder_.links.tensor = &*tensor_exchange_;
  }
  const auto handover = [&](int from, int to) {
    const std::vector<int>& stages = membership_.stages.ranks;
    return fabric::Handover::Create(*membership_.fabric, stages[from], stages[to], kStageStaging);
  };
  if (!cut.first_stage()) {
    FB_ASSIGN_OR_RETURN(from_last_stage_, handover(cut.stage - 1, cut.stage));
    decoder_.links.last_stage = &*from_last_stage_;
  }
  if (!cut.last_stage()) {
    FB_ASSIGN_OR_RETURN(to_next_stage_, handover(cut.stage, cut.stage + 1));
    decoder_.links.next_stage = &*to_next_stage_;
  }
  return base::Status::Ok();
}

void Rank::TouchKv(uint64_t bytes, int threads) {
  constexpr int64_t kPiece = 2 << 20;
  const auto kv = std::ranges::find(device_->arena().regions(), "kv", [](const auto& region) { return region->name; });
  std::byte* const data = (*kv)->data;
  bytes = std::min(bytes, (*kv)->bytes);
  runtime::ParallelFor(threads, [&](runtime::Tickets& tickets) {
    for (int64_t at = tickets.Next() * kPiece; at < static_cast<int64_t>(bytes); at = tickets.Next() * kPiece) {
      for (int64_t i = at; i < std::min<int64_t>(at + kPiece, bytes); i += 4096) data[i] = std::byte{0};
    }
  });
}

void Rank::Quiesce() {
  (void)device_->Synchronize(device_->compute());
  if (pool_) pool_->Quiesce();
  if (kv_pulled_) (void)device_->Synchronize(device_->copy(device::CopyKind::kKv));
}

void Rank::EnqueueStep(std::vector<LogitTask>* tasks, const model::ShipRows* ship, int flight) {
  StepBuffers& buffers = this->buffers(flight);
  const kernels::StepBatch& batch = buffers.Finish();
  FB_CHECK(tasks->size() == static_cast<size_t>(batch.num_logit_rows), "{} tasks for {} rows of logits", tasks->size(),
           batch.num_logit_rows);
  if (ship) ship_->Begin(*ship);
  decoder_.Forward(batch, buffers.context(), ship ? model::StepMode::kShip : model::StepMode::kLocal);
  const int32_t logit_rows = membership_.cut.last_stage() ? batch.num_logit_rows : 0;
  // Even parts: each reads all of the head.
  const auto most = static_cast<int32_t>(decoder_.capacity.logit_rows), parts = (logit_rows + most - 1) / std::max(1, most);
  for (int32_t part = 0; part < parts; ++part) {
    const int32_t first = logit_rows * part / parts, count = logit_rows * (part + 1) / parts - first;
    decoder_.Logits(batch, first, count);
    if (samples()) Sample(buffers, first, count, tasks->data() + first);
  }
  decoder_.stream->Record(*flights_[static_cast<size_t>(flight)].done);
}

void Rank::Sample(const StepBuffers& buffers, int32_t first, int32_t count, LogitTask* tasks) {
  const int64_t vocab = config_->vocab_size;
  if (digests_on()) {
    kernels::LogitsDigest(*decoder_.stream, *decoder_.kernels,
                          {.logits = decoder_.activations.logits, .stride = vocab, .num_rows = count,
                           .vocab = static_cast<int32_t>(vocab), .positions = buffers.logit_positions() + first,
                           .digests = buffers.logit_digests() + first});
  }
  const auto draws = [](const LogitTask& task) { return task.input.params != nullptr && task.input.params->temperature > 0; };
  const SampleArgs args{tasks, scratch_.data(), decoder_.activations.logits, buffers.batch().sampled, count, vocab};
  cost::OpDesc desc{.kind = cost::OpKind::kSample, .label = "sample", .rows = count, .columns = vocab,
                    .read_bytes = static_cast<double>(count) * static_cast<double>(vocab) * sizeof(float),
                    .drawn_rows = std::count_if(args.tasks, args.tasks + count, draws)};
  device::Operation operation = device::MakeOperation<&SampleRows>(desc, args);
  operation.Reads(args.logits, static_cast<uint64_t>(count * vocab) * sizeof(float));
  decoder_.stream->Enqueue(operation);
}

void Rank::EnqueueService(const model::ShipRows& ship) {
  buffers().Begin();
  ship_->Begin(ship);
  decoder_.Serve();
  decoder_.stream->Record(*flights_[0].done);
}

base::Status Rank::WaitStep(runtime::TimeNs timeout, int flight) {
  if (!StepEnded(timeout, flight)) {
    return base::Status(kStepTimeout, fmt::format("a step of {} rows did not finish in {}", buffers(flight).batch().num_rows,
                                                  base::FormatDuration(static_cast<double>(timeout) * 1e-9)));
  }
  return device_->FaultOf(*decoder_.stream);
}

uint64_t Rank::KvDigest(int group, std::span<const kv::BlockId> table, int64_t begin, int64_t end) const {
  uint64_t sum = 0;
  const uint64_t* const digests = decoder_.kv.groups[group].digests;
  if (digests == nullptr) return 0;  // the rank has none of the group's layers
  for (int64_t position = begin; position < end; ++position) {
    sum += digests[table[position / kernels::kBlockTokens] * kernels::kBlockTokens +
                               position % kernels::kBlockTokens];
  }
  return sum;
}

}  // namespace forebay::engine

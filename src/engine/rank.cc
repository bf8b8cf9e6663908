#include "engine/rank.h"

#include <algorithm>
#include <utility>

#include "base/rng.h"
#include "device/copy.h"
#include "device/touch_pages.h"
#include "engine/choices/sequence.h"
#include "layout/region_table.h"
#include "model/make_decoder.h"
#include "model/routing.h"
#include "model/weight_views.h"
#include "sample/softmax.h"
#include "tensor/bf16.h"

namespace forebay::engine {
namespace {

using layout::RegionId;

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
    if (task.by_kernels) continue;
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

// Rows after the final norm that are pooled. Those of a sequence follow each other by position.
struct RowArgs {
  LogitTask* tasks;
  const std::byte* rows;  // [count, width]
  int32_t count;
  int64_t width;
  bool is_bf16;  // else fp32
};

// Rows [begin, end), which are of one sequence.
template <typename T>
void PoolRows(const RowArgs& args, int64_t begin, int64_t end) {
  const auto* const rows = reinterpret_cast<const T*>(args.rows);
  const auto width = static_cast<size_t>(args.width);
  LogitTask& first = args.tasks[begin];
  const Sequence& sequence = *first.pooled;
  const bool from_the_first = first.target_position == sequence.pooled_rows.begin;
  if (from_the_first) first.sum.assign(width, 0);
  for (int64_t i = begin; i < end; ++i) {
    LogitTask& task = args.tasks[i];
    if (!from_the_first) task.row.resize(width);
    for (size_t column = 0; column < width; ++column) {
      const float value = tensor::ToFloat(rows[i * args.width + static_cast<int64_t>(column)]);
      if (from_the_first) {
        first.sum[column] += value;
      } else {
        task.row[column] = value;
      }
    }
  }
  if (!from_the_first || end - begin < sequence.pooled_rows.size()) return;
  first.vector = sequence.VectorOf(first.sum);
}

void PoolAllRows(const RowArgs& args, const device::WorkerContext& context) {
  const auto sequence_of = [&](int64_t row) { return args.tasks[row].pooled; };
  for (int64_t i = context.ticket->fetch_add(1); i < args.count; i = context.ticket->fetch_add(1)) {
    if (i > 0 && sequence_of(i) == sequence_of(i - 1)) continue;  // that row's worker has it
    int64_t end = i + 1;
    while (end < args.count && sequence_of(end) == sequence_of(i)) ++end;
    args.is_bf16 ? PoolRows<tensor::BF16>(args, i, end) : PoolRows<float>(args, i, end);
  }
}

}  // namespace

Rank::Rank(std::unique_ptr<device::Device> device, const Membership& membership)
    : device_(std::move(device)),
      membership_(membership),
      scratch_(static_cast<size_t>(device_->num_workers())) {}

base::Result<std::unique_ptr<Rank>> Rank::Create(std::unique_ptr<device::Device> device,
                                                 const RankParts& parts,
                                                 const Membership& membership) {
  std::unique_ptr<Rank> rank(new Rank(std::move(device), membership));
  const layout::MemoryPlan& plan = parts.memory;
  FB_RETURN_IF_ERROR(rank->regions_.Allocate(plan, &rank->device_->arena()));
  FB_RETURN_IF_ERROR(rank->PublishRegions(plan));
  rank->CutFlights(plan);
  rank->kv_.emplace(*rank->device_, rank->regions_[RegionId::kKv], plan.kv_groups, plan.num_blocks,
                    parts.digest,
                    kv::StateRegion{.region = rank->regions_.Find(RegionId::kLayerStates),
                                    .place_bytes = kv::PlaceBytes(plan.states),
                                    .parts = plan.state_blocks});
  rank->digests_on_ = parts.digest;
  rank->states_ = plan.states;
  FB_RETURN_IF_ERROR(rank->LoadModel(parts));
  FB_RETURN_IF_ERROR(rank->AllocateHostLogits(plan));
  FB_RETURN_IF_ERROR(rank->OpenTier(plan));
  if (parts.pool) rank->JoinPool(*parts.pool);
  FB_RETURN_IF_ERROR(rank->AddModes(parts));
  rank->SendWeightTables();
  return rank;
}

base::Status Rank::PublishRegions(const layout::MemoryPlan& plan) {
  for (const layout::Region& planned : plan.regions) {
    const device::Region& region = regions_[planned.id];
    // The second fabric, where a job has roles, is for KV and states alone.
    if (planned.published && membership_.fabric)
      FB_RETURN_IF_ERROR(membership_.fabric->Publish(region));
    fabric::Fabric* const kv_fabric = membership_.kv_fabric;
    const bool of_choices = planned.id == RegionId::kKv || planned.id == RegionId::kLayerStates;
    if (kv_fabric && kv_fabric != membership_.fabric && of_choices)
      FB_RETURN_IF_ERROR(kv_fabric->Publish(region));
  }
  return base::Status::Ok();
}

void Rank::CutFlights(const layout::MemoryPlan& plan) {
  device::RegionCutter cutter(regions_[RegionId::kStepBatch]);
  for (int32_t flight = 0; flight < plan.steps_in_flight; ++flight) {
    const StepBuffers* const shared = flight == 0 ? nullptr : &flights_[0].buffers;
    StepBuffers buffers(plan.step_shape, &cutter, shared);
    flights_.push_back({std::move(buffers), device_->NewEvent()});
  }
  const device::Region* const chosen = regions_.Find(RegionId::kChosenExperts);
  if (chosen == nullptr) return;
  device::RegionCutter chosen_cutter(*chosen);
  const auto bytes = static_cast<uint64_t>(layout::ChosenElements(plan)) * sizeof(uint16_t);
  for (Flight& flight : flights_)
    flight.chosen = reinterpret_cast<uint16_t*>(chosen_cutter.Cut(bytes));
}

base::Status Rank::LoadModel(const RankParts& parts) {
  const layout::MemoryPlan& memory = parts.memory;
  plan_ = memory.decoder;
  model::PooledRunAt pooled_at;
  if (parts.pool) {
    auto marked = std::make_shared<model::DecoderPlan>(*plan_);
    share::MarkPooled(*parts.pool, marked.get());
    plan_ = std::move(marked);
    pooled_at = share::OwnRuns(*parts.pool, regions_[RegionId::kWeightPool]);
  }
  routed_ = model::RoutingCountersOf(plan_->config);
  model::Decoder& decoder = modes_.own();
  FB_ASSIGN_OR_RETURN(decoder, model::MakeDecoder(*plan_,
                                                  {.capacity = memory.capacity,
                                                   .max_positions = memory.max_model_len,
                                                   .weights = regions_[RegionId::kWeights],
                                                   .tables = regions_[RegionId::kWeightTables],
                                                   .pooled_at = pooled_at,
                                                   .workspace = regions_[RegionId::kWorkspace]},
                                                  {.kernels = parts.kernels,
                                                   .stream = device_->compute(),
                                                   .kv = kv_->view(),
                                                   .states = StatesOf(memory),
                                                   .device = device_.get(),
                                                   .routing = membership_.routing.get(),
                                                   .routed = routed_.get(),
                                                   .replica = membership_.replica},
                                                  parts.reader, parts.load_threads));
  if (regions_.Find(RegionId::kChosenExperts)) decoder.chosen_rows = memory.capacity.rows;
  modes_.SetOwn(membership_.cut.degrees());
  return base::Status::Ok();
}

kv::StateView Rank::StatesOf(const layout::MemoryPlan& plan) const {
  const device::Region* const region = regions_.Find(RegionId::kLayerStates);
  return region == nullptr ? kv::StateView{} : kv::CutStates(plan.states, region->data);
}

base::Status Rank::AllocateHostLogits(const layout::MemoryPlan& plan) {
  if (device_->host_reaches_data()) return base::Status::Ok();
  const uint64_t bytes = static_cast<uint64_t>(plan.capacity.logit_rows) *
                         static_cast<uint64_t>(plan_->config.vocab_size) * sizeof(float);
  host_ = device_->NewHostArena(base::RoundUp(bytes, layout::kRegionRounding));
  FB_ASSIGN_OR_RETURN(host_logits_, host_->Allocate("logits of the host", bytes));
  return base::Status::Ok();
}

base::Status Rank::OpenTier(const layout::MemoryPlan& plan) {
  if (plan.tier_blocks.all() > 0) {
    FB_ASSIGN_OR_RETURN(tier_, kv::Tier::Create(*device_, *kv_, plan.tier_blocks,
                                                membership_.kv_file, membership_.slow_kv_up));
  }
  if (plan.streamed_blocks > 0) {
    window_ = std::make_unique<kv::Window>(*device_, *kv_, *tier_, regions_[RegionId::kKvWindow],
                                           plan.streamed_blocks);
    modes_.own().window = window_.get();
  }
  return base::Status::Ok();
}

void Rank::JoinPool(const share::PoolPlan& pool) {
  model::Decoder& decoder = modes_.own();
  pool_ = std::make_unique<share::WeightPool>(
      pool, decoder.weights, *device_, regions_[RegionId::kWeightSlots],
      regions_[RegionId::kPoolTables], *membership_.fabric, membership_.peers);
  decoder.shared = pool_.get();
  (void)copy_time();  // the stream is there before any thread asks for its time
  ship_plan_ = pool.ship;
}

base::Status Rank::AddModes(const RankParts& parts) {
  if (parts.memory.views.empty()) return base::Status::Ok();
  model::ModeSource source{*plan_,        modes_.own().weights,
                           parts.reader,  parts.load_threads,
                           device_.get(), device::RegionCutter(regions_[RegionId::kModeTables])};
  if (parts.memory.copies_views) source.copies.emplace(regions_[RegionId::kModeWeights]);
  for (const auto& view : parts.memory.views) {
    model::Decoder& further = modes_.Add(view->shard.mode);
    further.shared = nullptr;  // the rank owns all pooled weights that the mode reads
    FB_ASSIGN_OR_RETURN(further.weights, model::ModeWeights(*view, &source));
  }
  return base::Status::Ok();
}

void Rank::SendWeightTables() {
  for (const RegionId id :
       {RegionId::kWeightTables, RegionId::kModeTables, RegionId::kPoolTables}) {
    const device::Region* const region = regions_.Find(id);
    if (region != nullptr) device_->compute().SendControl(region->data, region->bytes);
  }
}

base::Status Rank::Connect() {
  if (pool_) FB_RETURN_IF_ERROR(pool_->Connect(layout::NameOf(RegionId::kWeightPool)));
  if (ship_plan_) {
    const share::ShippedFfn::Staging staging{regions_[RegionId::kShipRows],
                                             regions_.Find(RegionId::kShipSums)};
    FB_ASSIGN_OR_RETURN(
        ship_, share::ShippedFfn::Create(*ship_plan_, *device_, *membership_.fabric, staging,
                                         membership_.peers, membership_.ship_members));
    modes_.own().remote_ffn = ship_.get();
  }
  return modes_.Connect(membership_, regions_);
}

void Rank::TouchPages(uint64_t kv_bytes, int threads) {
  if (!device_->host_reaches_data()) return;
  if (pool_ != nullptr) {
    const device::Region& slots = regions_[RegionId::kWeightSlots];
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
  if (digests_on()) buffers.TakeDigests();
  if (buffers.draws()) PlanDraws(*tasks, &buffers);
  if (mode.meets()) ship_->Begin(rows, steps);
  const model::Decoder& decoder = modes_.Begin(mode, flights_[static_cast<size_t>(flight)].chosen);
  this->buffers().SendTables(*decoder.stream);
  buffers.SendStep(*decoder.stream);
  decoder.Forward(batch, buffers.context(), mode);
  const int32_t wanted_rows = membership_.cut.last_stage() ? batch.num_logit_rows : 0;
  for (int32_t begin = 0, end = 0; begin < wanted_rows; begin = end) {
    const auto pools = [&](int32_t row) {
      return (*tasks)[static_cast<size_t>(row)].pooled != nullptr;
    };
    while (end < wanted_rows && pools(end) == pools(begin)) ++end;
    Wanted(decoder, buffers, begin, end - begin, tasks->data());
  }
  if (wanted_rows > 0) buffers.FetchResults(*decoder.stream);
  decoder.stream->Record(*flights_[static_cast<size_t>(flight)].done);
}

void Rank::Wanted(const model::Decoder& decoder, const StepBuffers& buffers, int32_t begin,
                  int32_t rows, LogitTask* tasks) {
  // Even parts: each reads all of the head.
  const auto most = static_cast<int32_t>(decoder.capacity.logit_rows),
             parts = (rows + most - 1) / most;
  for (int32_t part = 0; part < parts; ++part) {
    const int32_t first = begin + rows * part / parts,
                  count = begin + rows * (part + 1) / parts - first;
    decoder.WantedRows(buffers.batch(), first, count);
    if (tasks[first].pooled != nullptr) {
      TakeRows(count, tasks + first);
      continue;
    }
    decoder.Logits(count);
    Sample(buffers, first, count, tasks + first);
  }
}

void Rank::TakeRows(int32_t count, LogitTask* tasks) {
  const base::Part taken = model::DrawnRows(count, cut().degrees(), cut().block());
  if (taken.size() == 0) return;
  const int64_t width = decoder().config->hidden_size;
  const uint64_t row_bytes = tensor::BytesOf(decoder().dtype, static_cast<uint64_t>(width));
  const std::byte* rows =
      decoder().activations.head_input + static_cast<uint64_t>(taken.begin) * row_bytes;
  const uint64_t bytes = static_cast<uint64_t>(taken.size()) * row_bytes;
  // A row is no longer than its logits.
  if (host_logits_ != nullptr) {
    decoder().stream->Enqueue(device::MakeCopy("pooled_rows", host_logits_->data, rows, bytes));
    rows = host_logits_->data;
  }
  const RowArgs args{tasks + taken.begin, rows, static_cast<int32_t>(taken.size()), width,
                     decoder().dtype == tensor::DType::kBF16};
  cost::OpDesc desc{.kind = cost::OpKind::kSample,
                    .label = "pool",
                    .rows = taken.size(),
                    .columns = width,
                    .read_bytes = static_cast<double>(bytes)};
  device::Operation operation = device::MakeOperation<&PoolAllRows>(desc, args);
  operation.on_host = true;
  operation.Reads(args.rows, bytes);
  decoder().stream->Enqueue(operation);
}

void Rank::Sample(const StepBuffers& buffers, int32_t first, int32_t count, LogitTask* tasks) {
  const base::Part drawn = model::DrawnRows(count, cut().degrees(), cut().block());
  if (drawn.size() == 0) return;
  first += static_cast<int32_t>(drawn.begin), count = static_cast<int32_t>(drawn.size());
  tasks += drawn.begin;
  const int64_t vocab = decoder().config->vocab_size;
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
  DrawPlain(buffers, first, count, tasks);
  const int32_t of_host = BringLogits(count, tasks);
  if (of_host == 0) return;
  if (buffers.draws()) buffers.FetchSampled(*decoder().stream);
  const auto draws = [](const LogitTask& task) {
    return !task.by_kernels && task.input.params != nullptr && task.input.params->temperature > 0;
  };
  const float* const logits = host_logits_ == nullptr
                                  ? decoder().activations.logits
                                  : reinterpret_cast<const float*>(host_logits_->data);
  const SampleArgs args{tasks, scratch_.data(), logits, buffers.batch().sampled, count, vocab};
  cost::OpDesc desc{.kind = cost::OpKind::kSample,
                    .label = "sample",
                    .rows = of_host,
                    .columns = vocab,
                    .read_bytes = static_cast<double>(of_host) * vocab * sizeof(float),
                    .drawn_rows = std::count_if(args.tasks, args.tasks + count, draws)};
  device::Operation operation = device::MakeOperation<&SampleRows>(desc, args);
  operation.on_host = true;
  operation.Reads(args.logits, static_cast<uint64_t>(count * vocab) * sizeof(float));
  decoder().stream->Enqueue(operation);
  buffers.SendSampled(*decoder().stream);
}

void Rank::PlanDraws(const std::vector<LogitTask>& tasks, StepBuffers* buffers) const {
  const int64_t vocab = decoder().config->vocab_size;
  const auto listed = [&](bool asked, int32_t top_k) {
    return asked ? static_cast<int32_t>(std::min<int64_t>(top_k, vocab)) : -1;
  };
  for (size_t i = 0; i < tasks.size(); ++i) {
    const LogitTask& task = tasks[i];
    const SamplingParams* const params = task.input.params;
    const bool draws = params != nullptr, targets = task.target >= 0;
    if (task.pooled != nullptr || (!draws && !targets)) continue;
    if (draws && !sample::HasPlainDraw(task.input)) continue;
    const int32_t of_target = listed(targets, task.target_logprobs),
                  of_drawn = listed(draws && params->logprobs >= 0, draws ? params->logprobs : 0);
    if (!buffers->HasRoomForLikely(of_target, of_drawn)) continue;
    const auto row = static_cast<int32_t>(i);
    if (targets) buffers->AddLikely({.row = row, .token = task.target, .top_k = of_target});
    if (of_drawn >= 0) {
      const auto draw = static_cast<int32_t>(buffers->planned_draws().size());
      buffers->AddLikely({.row = row, .token = ~draw, .top_k = of_drawn});
    }
    if (!draws) continue;
    buffers->AddDraw({.unit = base::ToUnitDouble(sample::DrawBits(task.input.key)),
                      .temperature = params->temperature,
                      .min_p = params->min_p,
                      .top_p = params->top_p,
                      .top_k = params->top_k,
                      .row = row,
                      .sequence = task.sequence});
  }
  buffers->TakeDrawn();
}

void Rank::DrawPlain(const StepBuffers& buffers, int32_t first, int32_t count, LogitTask* tasks) {
  if (!buffers.draws()) return;
  const auto part_of = [&](auto planned) {
    using Row = std::remove_const_t<typename decltype(planned)::element_type>;
    const auto begin = std::ranges::lower_bound(planned, first, {}, &Row::row),
               end = std::ranges::lower_bound(planned, first + count, {}, &Row::row);
    return base::Part{begin - planned.begin(), end - planned.begin()};
  };
  const base::Part drawn = part_of(buffers.planned_draws()),
                   listed = part_of(buffers.planned_likely());
  for (int64_t i = drawn.begin; i < drawn.end; ++i) {
    LogitTask& task = tasks[buffers.planned_draws()[static_cast<size_t>(i)].row - first];
    task.by_kernels = true;
    task.drawn = buffers.drawn() + i;
  }
  for (int64_t i = listed.begin; i < listed.end; ++i) {
    const kernels::LikelyRow& row = buffers.planned_likely()[static_cast<size_t>(i)];
    LogitTask& task = tasks[row.row - first];
    task.by_kernels = true;
    (row.token >= 0 ? task.target_likely : task.likely) = {buffers.likely_heads() + i,
                                                           buffers.likely_tokens() + row.tokens};
  }
  const int64_t vocab = decoder().config->vocab_size;
  if (drawn.size() > 0) {
    const kernels::DrawRow* const draws = buffers.planned_draws().data() + drawn.begin;
    const auto weighs = [](const kernels::DrawRow& draw) { return draw.temperature > 0; };
    kernels::DrawRows(
        *decoder().stream, *decoder().kernels,
        {.logits = decoder().activations.logits,
         .stride = vocab,
         .vocab = static_cast<int32_t>(vocab),
         .first_row = first,
         .num_draws = static_cast<int32_t>(drawn.size()),
         .weighed_draws = static_cast<int32_t>(std::count_if(draws, draws + drawn.size(), weighs)),
         .draws = draws,
         .drawn = buffers.drawn() + drawn.begin,
         .sampled = buffers.batch().sampled});
    rows_drawn_ += drawn.size();
  }
  if (listed.size() == 0) return;
  kernels::LikelyRows(*decoder().stream, *decoder().kernels,
                      {.logits = decoder().activations.logits,
                       .stride = vocab,
                       .vocab = static_cast<int32_t>(vocab),
                       .first_row = first,
                       .num_rows = static_cast<int32_t>(listed.size()),
                       .rows = buffers.planned_likely().data() + listed.begin,
                       .drawn = buffers.drawn(),
                       .heads = buffers.likely_heads() + listed.begin,
                       .tokens = buffers.likely_tokens()});
}

int32_t Rank::BringLogits(int32_t count, const LogitTask* tasks) {
  const auto of_host = [](const LogitTask& task) { return !task.by_kernels; };
  const int64_t row_bytes = decoder().config->vocab_size * static_cast<int64_t>(sizeof(float));
  const auto* const logits = reinterpret_cast<const std::byte*>(decoder().activations.logits);
  const LogitTask* const end = tasks + count;
  int32_t brought = 0;
  // Rows that lie side by side come together.
  for (const LogitTask *begin = tasks, *next = tasks; begin != end; begin = next) {
    begin = std::find_if(begin, end, of_host);
    next = std::find_if_not(begin, end, of_host);
    if (begin == next) break;
    brought += static_cast<int32_t>(next - begin);
    if (host_logits_ == nullptr) continue;
    const int64_t at = (begin - tasks) * row_bytes;
    decoder().stream->Enqueue(device::MakeCopy("logits", host_logits_->data + at, logits + at,
                                               static_cast<uint64_t>((next - begin) * row_bytes)));
  }
  return brought;
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

#include "engine/replica.h"

#include <algorithm>
#include <utility>

#include "base/rng.h"

namespace forebay::engine {
namespace {

StepOffer OfferOf(std::span<const ChoiceRows> step, int64_t number,
                  const schedule::ModeRule& rule) {
  StepOffer offer{.step = static_cast<uint64_t>(number)};
  for (const ChoiceRows& rows : step) {
    offer.rows += static_cast<int32_t>(rows.count());
    if (!rows.is_decode()) offer.prefill_rows += static_cast<int32_t>(rows.count());
  }
  offer.wanted = rule.Of(offer.rows, number);
  return offer;
}

uint64_t PlanHash(std::span<const ChoiceRows> step, const kv::GroupBooks& book) {
  uint64_t hash = 0;
  for (const ChoiceRows& rows : step) {
    const uint64_t what = base::Combine64(static_cast<uint64_t>(rows.sequence->facts.job_order),
                                          static_cast<uint64_t>(rows.begin));
    const uint64_t held = base::Combine64(static_cast<uint64_t>(rows.count()),
                                          book.table(0, rows.sequence->id).size());
    hash = base::Combine64(hash, base::Combine64(what, held));
  }
  return hash;
}

LogitTask MakeTask(Sequence* sequence, int64_t position, bool sample, uint64_t job_seed) {
  const Request& request = sequence->request->request;
  LogitTask task;
  task.sequence = sequence->id;
  if (sequence->is_pooled()) {
    task.pooled = sequence;
    task.target_position = position;
    return task;
  }
  if (sequence->wanted_rows().contains(position)) {
    task.target = sequence->tokens[position + 1];
    task.target_position = position + 1;
    task.target_logprobs = request.sampling.prompt_logprobs;
  }
  if (!sample) return task;
  task.input.params = &request.sampling;
  if (sequence->facts.uses_counts) task.input.counts = &sequence->counts;
  task.input.banned = sequence->stop->banned();
  if (!request.sampling.bad_words.empty()) {
    task.bans.assign(task.input.banned.begin(), task.input.banned.end());
    sample::AppendBanned(request.sampling.bad_words, sequence->output(), &task.bans);
    task.input.banned = task.bans;
  }
  task.input.key = {
      .has_request_seed = request.sampling.seed.has_value(),
      .seed = request.sampling.seed ? static_cast<uint64_t>(*request.sampling.seed) : job_seed,
      .line = request.line,
      .choice = sequence->choice_index,
      .position = position + 1};
  // A device without data leaves it as it is. Answers of several choices differ, and so do their
  // blocks of KV.
  task.sampled.token = static_cast<uint8_t>(sequence->choice_index + 7 * (request.line & 0xFF));
  return task;
}

// In seconds by the profile, 0 without one.
double PriceOf(std::span<const ChoiceRows> step, const schedule::StepPrices* prices) {
  if (prices == nullptr) return 0;
  schedule::StepRows sum;
  for (const ChoiceRows& rows : step)
    sum = sum.With(rows.begin, rows.count(), rows.end == rows.sequence->known());
  return prices->Seconds(sum);
}

// Before the step is committed.
void MeasureStep(const std::vector<ChoiceRows>& rows, Meters* meters) {
  int64_t count = 0;
  for (const ChoiceRows& each : rows) {
    if (each.sequence == nullptr) continue;  // lost
    count += each.count();
    // Siblings, and who comes back after a preemption, would count one prompt several times.
    if (each.sequence->computed_peak == 0 && each.sequence->first_of_prompt())
      meters->prefix_queries += each.sequence->prompt_tokens;
  }
  if (count > 0) meters->step_rows.Add(static_cast<double>(count));
}

// Takes the rows of choices away from a step that has ended which were to read what was lost below.
void DropLost(const kv::LostBlocks& lost, Choices* choices, std::vector<ChoiceRows>* rows) {
  if (lost.blocks.empty()) return;
  choices->LoseBelow(lost);
  for (ChoiceRows& each : *rows) {
    if (!each.sequence->in_flight) each.sequence = nullptr;
  }
}

// What kernels have found out.
void ReadKernels(LogitTask* task) {
  const auto list = [&](const Likely& likely, PositionLogprobs* logprobs) {
    if (likely.head == nullptr) return;
    task->nan = likely.head->token == kernels::kNothingDrawn;
    if (!task->nan) *logprobs = sample::LogprobsOf(*likely.head, likely.tokens);
  };
  list(task->target_likely, &task->target_output);
  list(task->likely, &task->sampled.logprobs);
  if (task->drawn == nullptr) return;
  task->nan = *task->drawn == kernels::kNothingDrawn;
  task->sampled.token = *task->drawn;
}

}  // namespace

Replica::Replica(runtime::Runtime& runtime, std::vector<std::unique_ptr<Rank>> ranks,
                 std::unique_ptr<schedule::Policy> policy, const ReplicaOptions& options)
    : runtime_(runtime),
      policy_(std::move(policy)),
      options_(options),
      round_({.mode = options.mode.wanted}),
      choices_(options.choices,
               ranks.front()->digests_on()
                   ? [this](int group, std::span<const kv::BlockId> table, int64_t begin,
                            int64_t end) { return ranks_.KvDigest(group, table, begin, end); }
                   : Choices::KvDigest(),
               ranks.front()->digests_on()
                   ? [this](int32_t place,
                            int64_t positions) { return ranks_.StateDigest(place, positions); }
                   : Choices::StateDigest()),
      routing_(options.choices.replica, options.routing, options.routing_log),
      flights_(static_cast<size_t>(options.choices.steps_in_flight)),
      ranks_(runtime, std::move(ranks), options.stall_timeout, options.enqueue_waits) {
  const kv::Tier* const tier = ranks_.leader().tier();
  if (tier != nullptr) choices_.KeepBelow(tier->store().kept());
}

void Replica::Forecast(std::vector<schedule::DueWork> ahead, double now_seconds) {
  constexpr runtime::TimeNs kSecond = 1'000'000'000;
  next_forecast_ = runtime_.Now() + kSecond;
  std::vector<schedule::DueWork> work = choices_.Due();
  work.insert(work.end(), ahead.begin(), ahead.end());
  choices_.Hurry(schedule::HurriedUntil(std::move(work), batch_rate_, now_seconds));
}

StepEnd Replica::Step(std::vector<RequestResult>* finished, StepRecord* record) {
  choices_.DeliverEnded(finished);
  if (choices_.idle()) {
    Publish();
    return StepEnd::kIdle;
  }

  const auto most_in_flight = static_cast<int64_t>(flights_.size());
  if (in_flight() < most_in_flight) {
    base::Result<bool> begun = Begin(true);
    // What a part of the choices cannot do, for want of blocks that the others hold, all can.
    if (begun.ok() && !*begun && in_flight() == 0) begun = Begin(false);
    if (!begun.ok()) return Stall(begun.status().ToString());
    if (*begun && in_flight() < most_in_flight) return StepEnd::kBegun;
    if (in_flight() == 0) {
      if (choices_.loans().count() > 0) return WaitForLoans();
      return Stall(fmt::format(
          "the policy {} planned nothing though {} choices run and {} wait ({} of {} KV blocks "
          "free)",
          policy_->name(), choices_.num_running(), choices_.num_waiting(),
          choices_.book().available_blocks(), choices_.book().num_blocks()));
    }
  }
  return End(finished, record);
}

base::Result<bool> Replica::Begin(bool share) {
  const int index = FlightOf(begun_);
  Flight& flight = flights_[static_cast<size_t>(index)];
  flight.begin = runtime_.Now();
  // Before the view, so that no plan counts on what is lost.
  FB_ASSIGN_OR_RETURN(const kv::LostBlocks lost, ranks_.LostBelow());
  choices_.LoseBelow(lost);
  const schedule::StepView& view =
      choices_.View(share, runtime_.Now() / 1000, price_factor_.value());
  policy_->Plan(view, &plan_);
  if (plan_.run.empty() && plan_.admit.empty()) return false;
  schedule::CheckPlan(view, plan_);
  choices_.Apply(plan_, flight.begin, &flight.rows);
  // Before the step, which may write to blocks that go down first.
  ranks_.MoveKv(choices_.tier_moves());
  choices_.tier_moves().Clear();
  for (const Sequence* sequence : choices_.returning())
    ranks_.SetTable(choices_.book(), sequence->id, 0);
  for (const Sequence* sequence : choices_.streaming().changed())
    ranks_.SetTable(choices_.book(), sequence->id, 0);
  choices_.streaming().changed().clear();
  // Choices alone came back: they run in the next plan.
  if (flight.rows.empty()) return Begin(share);
  FB_RETURN_IF_ERROR(routing_.Tell(begun_, flight.rows));
  FB_ASSIGN_OR_RETURN(round_, Agree(flight));
  BuildBatch(flight);
  const std::span<const kv::StreamedBlock> streamed = choices_.streaming().blocks();
  ranks_.BeginStreaming(streamed);
  flight.record.kv_blocks_streamed = std::ssize(streamed);
  const uint64_t bytes_pulled = ranks_.bytes_pulled();
  flight.priced = PriceOf(flight.rows, options_.choices.prices.get());
  ranks_.EnqueueStep(&flight.tasks, round_, index);
  RecordPlan(ranks_.bytes_pulled() - bytes_pulled, &flight);
  ++begun_;
  lending_until_ = -1;
  return true;
}

base::Result<Round> Replica::Agree(const Flight& flight) const {
  const StepOffer offer = OfferOf(flight.rows, begun_, options_.mode);
  if (group_) return group_->Next(number_in_group_, offer);
  return Round{.mode = offer.wanted};
}

void Replica::BuildBatch(Flight& flight) {
  StepBuffers& buffers = ranks_.leader().buffers(FlightOf(begun_));
  buffers.Begin();
  flight.tasks.clear();
  flight.first_task.clear();
  for (const auto& [sequence, begin, end, first_block] : flight.rows) {
    if (choices_.book().table(0, sequence->id).size() > first_block)
      ranks_.SetTable(choices_.book(), sequence->id, first_block);
    const base::Part wanted = sequence->wanted_rows();
    const bool samples = end == sequence->known() && sequence->max_generated > 0;
    // The token that the last step sampled is on the device already, where one device does all.
    const int32_t on_device = ~sequence->id;
    const bool sampled_last = ranks_.size() == 1 && sequence->sampled_on_device &&
                              end - begin == 1 && end == sequence->known();
    const auto tokens = std::span<const int32_t>(sequence->tokens)
                            .subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
    buffers.Add({.tokens = sampled_last ? std::span(&on_device, 1) : tokens,
                 .first_position = begin,
                 .sequence = sequence->id,
                 .logits = wanted,
                 .last_logits = samples,
                 .prompt_tokens = sequence->prompt_tokens,
                 .second_text = sequence->second_text,
                 .state_place = sequence->state_place,
                 .state_parts = sequence->state_parts});
    flight.first_task.push_back(flight.tasks.size());
    for (int64_t at = begin; at < end; ++at) {
      const bool draws = samples && at == end - 1;
      if (draws || wanted.contains(at))
        flight.tasks.push_back(MakeTask(sequence, at, draws, options_.seed));
    }
  }
  flight.first_task.push_back(flight.tasks.size());
  buffers.SetRepeated(choices_.book().repeated_blocks() * kernels::kBlockTokens);
}

void Replica::RecordPlan(uint64_t bytes_pulled, Flight* flight) {
  const StepBuffers& buffers = ranks_.leader().buffers(FlightOf(begun_));
  const kernels::StepBatch& batch = buffers.batch();
  StepRecord& record = flight->record;
  record.replica = index();
  record.role = role();
  record.decode_rows =
      static_cast<int32_t>(std::ranges::count_if(flight->rows, &ChoiceRows::is_decode));
  record.prefill_rows = batch.num_rows - record.decode_rows;
  record.interactive_decode_rows = record.interactive_prefill_rows = 0;
  for (const ChoiceRows& rows : flight->rows) {
    if (rows.sequence->service() != Service::kInteractive) continue;
    (rows.is_decode() ? record.interactive_decode_rows : record.interactive_prefill_rows) +=
        static_cast<int32_t>(rows.count());
  }
  record.context_tokens = buffers.context_tokens();
  record.logit_rows = batch.num_logit_rows;
  record.kv_tokens = 0;
  for (int32_t i = 0; i < batch.num_sequences; ++i) {
    record.kv_tokens += batch.sequences[i].first_position + batch.sequences[i].num_rows;
  }
  record.running = static_cast<int32_t>(choices_.num_running());
  record.admitted = static_cast<int32_t>(plan_.admit.size());
  record.preempted = static_cast<int32_t>(plan_.preempt.size());
  record.plan_hash = PlanHash(flight->rows, choices_.book());
  record.mode = round_.mode;
  record.bytes_pulled = bytes_pulled;
  record.kv_stream_limit = choices_.streaming().counters().limit;
  record.taken = choices_.TakeIds();
}

StepEnd Replica::End(std::vector<RequestResult>* finished, StepRecord* record) {
  const int index = FlightOf(ended_);
  Flight& flight = flights_[static_cast<size_t>(index)];
  if (const base::Status done = ranks_.WaitStep(index); !done.ok()) return Stall(done.ToString());
  const base::Status recorded = routing_.Record(ranks_.all(), index, flight.rows);
  if (!recorded.ok()) return Stall(recorded.ToString());
  if (choices_.streaming().on()) DropLost(ranks_.TakeLost(), &choices_, &flight.rows);
  const size_t running = choices_.num_running();
  MeasureStep(flight.rows, &meters_);
  for (size_t i = 0; i < flight.rows.size(); ++i) {
    if (flight.rows[i].sequence == nullptr) continue;
    choices_.Commit(flight.rows[i]);
    CommitLogits(flight, i);
    choices_.CloseIfEnded(flight.rows[i], finished);
  }
  // Where steps overlap, each has the time since the one before.
  const runtime::TimeNs begin = std::max(flight.begin, last_end_);
  last_end_ = runtime_.Now();
  price_factor_.Observe(flight.priced, runtime::SecondsOf(last_end_ - flight.begin));
  stats_.step_seconds += runtime::SecondsOf(last_end_ - begin);
  const StepRecord& planned = flight.record;
  batch_rate_.Observe(runtime::SecondsOf(last_end_ - begin),
                      planned.decode_rows + planned.prefill_rows - planned.interactive_decode_rows -
                          planned.interactive_prefill_rows);
  if (choices_.streaming().measures())
    choices_.streaming().Observe(stats_.step_seconds, ranks_.waits().total());
  if (record) {
    *record = flight.record;
    record->step = ended_;
    record->begin_seconds = runtime::SecondsOf(begin);
    record->end_seconds = runtime::SecondsOf(last_end_);
    record->waiting = static_cast<int32_t>(choices_.num_waiting());
    record->finished = static_cast<int32_t>(running - choices_.num_running());
    record->kv_blocks_used = choices_.book().held_blocks();
    ranks_.TakeCounts(record);
  }
  ++ended_;
  Publish();
  return StepEnd::kStepped;
}

void Replica::CommitLogits(Flight& flight, size_t index) {
  const ChoiceRows& rows = flight.rows[index];
  Sequence* const sequence = rows.sequence;
  const size_t first = flight.first_task[index];
  for (size_t i = first; i < flight.first_task[index + 1]; ++i) {
    LogitTask& task = flight.tasks[i];
    if (task.by_kernels) ReadKernels(&task);
    if (task.nan) {  // no answer: the request ends with this step
      sequence->request->failed = true;
      return;
    }
    if (task.pooled != nullptr) {
      if (!task.vector.empty()) sequence->result_vector = std::move(task.vector);
      if (!task.sum.empty()) sequence->pooled_sum = std::move(task.sum);
      sequence->AddPooled(task.row);
      continue;
    }
    if (task.target >= 0) {
      auto& logprobs = sequence->request->prompt_logprobs[sequence->prompt_index];
      logprobs[static_cast<size_t>(task.target_position)] = std::move(task.target_output);
    }
    if (task.input.params == nullptr) continue;
    if (ranks_.digests_on()) sequence->result.digest += *task.digest;
    if (task.input.params->logprobs >= 0)
      sequence->result.logprobs.push_back(std::move(task.sampled.logprobs));
    const runtime::TimeNs now = runtime_.Now();
    if (sequence->last_token_ns >= 0)
      meters_.token_gap.Add(runtime::SecondsOf(now - sequence->last_token_ns));
    choices_.Append(sequence, task.sampled.token, now);
  }
}

base::Result<Turn> Replica::StepIdle(bool ended) {
  FB_ASSIGN_OR_RETURN(
      const Round round,
      group_->Next(number_in_group_, {.ended = ended, .wanted = options_.mode.wanted}));
  if (round.turn != Turn::kStep) return round.turn;
  // Nothing of its own is in flight here, so that the first flight's end is free for this.
  ranks_.EnqueueService(round);
  FB_RETURN_IF_ERROR(ranks_.WaitStep(0));
  round_ = round;
  Publish();
  return round.turn;
}

base::Status Replica::Adopt(Gift gift, const Replica* giver) {
  const base::Status status = PullLoans(gift, giver);
  // After an error the device may hang, or still read what was lent. The replica has failed and
  // uses nothing of it, and the giver needs its blocks.
  for (const auto& loan : gift.loans) loan->over.store(true, std::memory_order_release);
  return status;
}

base::Status Replica::PullLoans(Gift& gift, const Replica* giver) {
  int64_t& kv_bytes = gift.handed_over ? stats_.kv_bytes_handed_over : stats_.kv_bytes_stolen;
  for (const Choices::Adopted& adopted : choices_.Adopt(gift)) {
    const kv::SequenceId id = adopted.sequence->id;
    if (adopted.loan->below.empty()) {
      FB_ASSIGN_OR_RETURN(const uint64_t bytes,
                          ranks_.PullLoan(*adopted.loan, choices_.book(), id));
      kv_bytes += static_cast<int64_t>(bytes);
    } else {
      FB_RETURN_IF_ERROR(
          ranks_.PullBelow(*adopted.loan, giver->ranks_, choices_.book(), id).status());
    }
    choices_.Resume(adopted);
    ranks_.SetTable(choices_.book(), id, 0);
  }
  return base::Status::Ok();
}

std::vector<std::unique_ptr<RequestState>> Replica::GiveBack(const SequenceContext& context,
                                                             std::vector<RequestResult>* finished) {
  auto returned = choices_.GiveBack(context, finished);
  Publish();
  return returned;
}

StepEnd Replica::WaitForLoans() {
  // Those that nobody has room for wait for others to end.
  if (choices_.loans().offered()) lending_until_ = -1;
  if (lending_until_ < 0)
    lending_until_ = runtime::DeadlineAfter(runtime_.Now(), options_.stall_timeout);
  if (runtime_.Now() < lending_until_) return StepEnd::kLending;
  return Stall(
      fmt::format("{} sequences' KV cache was lent to other replicas and is not given back",
                  choices_.loans().count()));
}

StepEnd Replica::Stall(std::string what) {
  what_stalled_ = std::move(what);
  return StepEnd::kStalled;
}

void Replica::Publish() {
  EngineStats stats = choices_.stats();
  stats.steps = ended_;
  stats.step_seconds = stats_.step_seconds;
  stats.kv_bytes_stolen = stats_.kv_bytes_stolen;
  stats.kv_bytes_handed_over = stats_.kv_bytes_handed_over;
  published_.Set({std::move(stats), round_.mode, choices_.park_counters(), ranks_.tier_traffic(),
                  choices_.streaming().counters(), meters_});
}

}  // namespace forebay::engine

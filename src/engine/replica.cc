#include "engine/replica.h"

#include <algorithm>
#include <utility>

#include "base/rng.h"
#include "base/units.h"

namespace forebay::engine {
namespace {

// How long a rank is waited for before another one of its replica is looked at.
constexpr runtime::TimeNs kFaultGlance = 200'000'000;

int64_t JobOrder(const Sequence& sequence) {
  return (sequence.request->request.line << 16) + std::min(sequence.choice_index, 0xFFFF);
}

// The other choices of a prompt share what this one computes.
bool IsFirstOfPrompt(const Sequence& sequence) { return sequence.choice_index % sequence.request->request.n == 0; }

bool WantsPromptLogprobs(const Sequence& sequence) {
  return sequence.request->request.sampling.prompt_logprobs >= 0 && IsFirstOfPrompt(sequence);
}

// Positions that Open may take from the cache. Rows whose logits are wanted must be computed.
int64_t MaxCached(const Sequence& sequence) { return WantsPromptLogprobs(sequence) ? 0 : sequence.known() - 1; }

bool UsesCounts(const SamplingParams& params) {
  return params.presence_penalty != 0 || params.frequency_penalty != 0 || params.repetition_penalty != 1;
}

}  // namespace

Replica::Replica(runtime::Runtime& runtime, std::vector<std::unique_ptr<Rank>> ranks, std::unique_ptr<schedule::Policy> policy,
                 const ReplicaOptions& options)
    : runtime_(runtime),
      ranks_(std::move(ranks)),
      sampler_(std::ranges::find_if(ranks_, [](const auto& rank) { return rank->samples(); })->get()),
      policy_(std::move(policy)),
      options_(options),
      book_({.num_blocks = options.limits.total_blocks,
             .max_sequences = options.limits.max_num_seqs,
             .max_blocks_per_sequence = options.max_blocks_per_sequence,
             .prefix_sharing = options.prefix_caching},
            options.kv_windows),
      flights_(static_cast<size_t>(options.steps_in_flight)) {}

bool Replica::WantsRequests() const {
  if (finished_at_once_.size() >= static_cast<size_t>(options_.limits.max_num_seqs)) return false;
  if (waiting_.empty()) return true;
  return waiting_.size() + running_.size() < static_cast<size_t>(options_.limits.max_num_seqs) &&
         waiting_rows_ < options_.limits.max_num_batched_tokens &&
         waiting_rows_ / kv::kBlockTokens < book_.available_blocks();
}

ReplicaLoad Replica::load() const {
  ReplicaLoad load{.tokens = tokens_left_, .choices = static_cast<int64_t>(waiting_.size() + running_.size())};
  const auto add = [&](const Sequence* sequence) {
    if (sequence->bounded) load.longest_output = std::max(load.longest_output, sequence->output_left());
  };
  std::ranges::for_each(waiting_, add);
  std::ranges::for_each(running_, add);
  return load;
}

kv::CachedPrefix Replica::FindCached(Sequence* sequence) const {
  return book_.FindCached(sequence->tokens, options_.prefix_salt, MaxCached(*sequence), &sequence->prefix_keys);
}

void Replica::Enqueue(Sequence* sequence) {
  sequence->expected_rows = sequence->known() - FindCached(sequence).tokens;
  waiting_rows_ += sequence->expected_rows;
  tokens_left_ += sequence->tokens_left();
  waiting_.push_back(sequence);
}

void Replica::Take(std::unique_ptr<RequestState> state) {
  taken_.push_back(state->request.line);
  for (const auto& sequence : state->sequences) {
    if (UsesCounts(state->request.sampling)) sequence->counts.AddPrompt(sequence->tokens);
    if (sequence->max_generated == 0 && !WantsPromptLogprobs(*sequence)) {
      sequence->phase = Phase::kFinished;
      --state->unfinished;
    } else {
      Enqueue(sequence.get());
    }
  }
  auto& list = state->unfinished == 0 ? finished_at_once_ : states_;
  list.push_back(std::move(state));
}

void Replica::DropUnstarted() {
  const auto unstarted = [](const RequestState& state) {
    return std::none_of(state.sequences.begin(), state.sequences.end(),
                        [](const auto& sequence) { return sequence->admitted_before; });
  };
  std::erase_if(waiting_, [&](const Sequence* sequence) {
    const bool dropped = unstarted(*sequence->request);
    if (dropped) waiting_rows_ -= sequence->expected_rows;
    if (dropped) tokens_left_ -= sequence->tokens_left();
    return dropped;
  });
  std::erase_if(states_, [&](const auto& state) { return unstarted(*state); });
}

StepEnd Replica::Step(std::vector<RequestResult>* finished, StepRecord* record) {
  for (auto& state : finished_at_once_) Deliver(state.get(), finished);
  finished_at_once_.clear();
  if (idle()) {
    Publish();
    return StepEnd::kIdle;
  }

  if (steps_in_flight() < options_.steps_in_flight) {
    base::Result<bool> begun = Begin(true);
    // What a part of the choices cannot do, for want of blocks that the others hold, all can.
    if (begun.ok() && !*begun && steps_in_flight() == 0) begun = Begin(false);
    if (!begun.ok()) return Stall(begun.status().ToString());
    if (*begun && steps_in_flight() < options_.steps_in_flight) return StepEnd::kBegun;
    if (steps_in_flight() == 0) {
      if (!lent_.empty()) return WaitForLoans();
      return Stall(fmt::format("the policy {} planned nothing though {} choices run and {} wait ({} of {} KV blocks free)",
                               policy_->name(), running_.size(), waiting_.size(), view_.available_blocks,
                               options_.limits.total_blocks));
    }
  }
  return End(finished, record);
}

base::Result<bool> Replica::Begin(bool share) {
  Flight& flight = planned();
  flight.begin = runtime_.Now();
  BuildView(share);
  policy_->Plan(view_, &plan_);
  if (plan_.run.empty() && plan_.admit.empty()) return false;
  schedule::CheckPlan(view_, plan_);

  flight.work.clear();
  flight.tasks.clear();
  sampler_->buffers(FlightOf(begun_)).Begin();
  // Indices of the plan refer to the view: resolve them before the lists change.
  planned_.clear();
  for (const schedule::RowsOf& rows : plan_.admit) planned_.emplace_back(waiting_in_view_[rows.index], rows.rows);
  for (const schedule::RowsOf& rows : plan_.run) planned_.emplace_back(running_in_view_[rows.index], rows.rows);
  Preempt(plan_.preempt);
  for (const auto& [sequence, rows] : planned_) {
    if (sequence->phase == Phase::kWaiting) {
      Admit(sequence, rows);
    } else {
      PlanRows(sequence, rows);
    }
  }
  sampler_->buffers(FlightOf(begun_)).SetRepeated(book_.repeated_blocks() * kernels::kBlockTokens);
  const uint64_t bytes_pulled = BytesPulled();
  FB_RETURN_IF_ERROR(Enqueue(flight));
  RecordPlan(BytesPulled() - bytes_pulled, &flight);
  flight.record.taken = std::exchange(taken_, {});
  ++begun_;
  lending_until_ = -1;
  return true;
}

base::Status Replica::Enqueue(Flight& flight) {
  round_ = {};
  if (group_) {
    FB_ASSIGN_OR_RETURN(round_, group_->Next(rank_in_group_, LoadOf(flight)));
  }
  const int index = FlightOf(begun_);
  for (const auto& rank : ranks_) {
    if (rank.get() != sampler_) rank->buffers(index).CopyStep(sampler_->buffers(index));
    rank->EnqueueStep(&flight.tasks, round_.turn == Turn::kShip ? &round_.rows : nullptr, index);
  }
  return base::Status::Ok();
}

StepEnd Replica::End(std::vector<RequestResult>* finished, StepRecord* record) {
  const int index = FlightOf(stats_.steps);
  Flight& flight = flights_[static_cast<size_t>(index)];
  if (const base::Status done = WaitStep(index); !done.ok()) return Stall(done.ToString());
  const size_t running = running_.size();
  Commit(flight, finished);
  // Of steps that overlap each has the time since the one before.
  const runtime::TimeNs begin = std::max(flight.begin, last_end_);
  last_end_ = runtime_.Now();
  stats_.step_seconds += static_cast<double>(last_end_ - begin) * 1e-9;
  if (record) {
    *record = flight.record;
    record->step = stats_.steps;
    record->begin_seconds = static_cast<double>(begin) * 1e-9;
    record->end_seconds = static_cast<double>(last_end_) * 1e-9;
    record->waiting = static_cast<int32_t>(waiting_.size());
    record->finished = static_cast<int32_t>(running - running_.size());
    record->kv_blocks_used = book_.held_blocks();
    const double waited = WaitedSeconds();
    record->wait_seconds = waited - std::exchange(waited_before_, waited);
  }
  ++stats_.steps;
  Publish();
  return StepEnd::kStepped;
}

base::Status Replica::WaitStep(int flight) {
  if (ranks_.size() == 1) return sampler_->WaitStep(options_.stall_timeout, flight);
  // A rank whose device fails comes to its step's end; the others wait for it until they are told.
  const runtime::TimeNs deadline = runtime::DeadlineAfter(runtime_.Now(), options_.stall_timeout);
  base::Status fault;
  pending_.clear();
  for (const auto& rank : ranks_) pending_.push_back(rank.get());
  for (size_t next = 0; !pending_.empty(); ++next) {
    Rank* const rank = pending_[next % pending_.size()];
    const runtime::TimeNs left = deadline - runtime_.Now();
    const runtime::TimeNs glance = pending_.size() > 1 ? std::min(left, kFaultGlance) : left;
    if (!rank->StepEnded(std::max<runtime::TimeNs>(0, glance), flight) && left > 0) continue;
    const base::Status done = rank->WaitStep(0, flight);
    if (fault.ok() && !done.ok()) {
      fault = done;
      rank->Abort(done);
    }
    std::erase(pending_, rank);
  }
  return fault;
}

RankLoad Replica::LoadOf(const Flight& flight) {
  RankLoad load;
  for (const Work& work : flight.work) {
    const auto rows = static_cast<int32_t>(work.end - work.begin);
    load.rows += rows;
    if (!work.is_decode()) load.prefill_rows += rows;
  }
  return load;
}

base::Result<Turn> Replica::StepIdle(bool ended) {
  FB_ASSIGN_OR_RETURN(const Round round, group_->Next(rank_in_group_, {.ended = ended}));
  if (round.turn != Turn::kShip) return round.turn;
  for (const auto& rank : ranks_) rank->EnqueueService(round.rows);
  FB_RETURN_IF_ERROR(WaitStep(0));
  round_ = round;
  Publish();
  return round.turn;
}

uint64_t Replica::BytesPulled() const {
  uint64_t sum = 0;
  for (const auto& rank : ranks_) sum += rank->bytes_pulled();
  return sum;
}

double Replica::WaitedSeconds() const {
  double sum = 0;
  for (const auto& rank : ranks_) sum += rank->compute_time().waited;
  return sum;
}

void Replica::SetTable(kv::SequenceSlot slot, size_t from) {
  for (const auto& rank : ranks_) {
    for (int group = 0; group < book_.num_groups(); ++group) rank->buffers().SetTable(group, slot, from, book_.table(group, slot));
  }
}

void Replica::Publish() {
  stats_.choices_running = static_cast<int64_t>(running_.size());
  stats_.choices_waiting = static_cast<int64_t>(waiting_.size());
  stats_.output_room = output_room_;
  stats_.kv_blocks_used = book_.held_blocks();
  stats_.kv_blocks_total = book_.num_blocks();
  stats_.kv_blocks_used_peak = book_.held_peak();
  stats_.prefix_blocks_hit = book_.prefix_blocks_hit();
  const std::lock_guard lock(published_mutex_);
  published_ = stats_;
  published_mode_ = StepMode();
}

const char* Replica::StepMode() const {
  if (sampler_->pool() == nullptr) return "local";
  if (round_.turn != Turn::kShip) return "pull";
  return sampler_->ship()->gathers() ? "gather" : "ship";
}

const char* Replica::mode() const {
  const std::lock_guard lock(published_mutex_);
  return published_mode_;
}

void Replica::RecordPlan(uint64_t bytes_pulled, Flight* flight) const {
  const auto is_decode = [](const Work& work) { return work.is_decode(); };
  const StepBuffers& buffers = sampler_->buffers(FlightOf(begun_));
  const kernels::StepBatch& batch = buffers.batch();
  StepRecord& record = flight->record;
  record.replica = options_.index;
  record.decode_rows = static_cast<int32_t>(std::ranges::count_if(flight->work, is_decode));
  record.prefill_rows = batch.num_rows - record.decode_rows;
  record.context_tokens = buffers.context_tokens();
  record.logit_rows = batch.num_logit_rows;
  record.kv_tokens = 0;
  for (int32_t i = 0; i < batch.num_sequences; ++i) {
    record.kv_tokens += batch.sequences[i].first_position + batch.sequences[i].num_rows;
  }
  record.running = static_cast<int32_t>(running_.size());
  record.admitted = static_cast<int32_t>(plan_.admit.size());
  record.preempted = static_cast<int32_t>(plan_.preempt.size());
  record.plan_hash = PlanHash(*flight);
  record.mode = StepMode();
  record.bytes_pulled = bytes_pulled;
}

uint64_t Replica::PlanHash(const Flight& flight) const {
  uint64_t hash = 0;
  for (const Work& work : flight.work) {
    const uint64_t what = base::Combine64(static_cast<uint64_t>(JobOrder(*work.sequence)), static_cast<uint64_t>(work.begin));
    const uint64_t held = base::Combine64(static_cast<uint64_t>(work.end - work.begin), book_.table(0, work.sequence->slot).size());
    hash = base::Combine64(hash, base::Combine64(what, held));
  }
  return hash;
}

void Replica::BuildView(bool share) {
  view_.running.clear();
  view_.elsewhere.clear();
  view_.waiting.clear();
  running_in_view_.clear();
  view_.available_blocks = book_.available_blocks();
  view_.now_us = runtime_.Now() / 1000;
  view_.mean_tokens = finished_choices_ > 0 ? static_cast<double>(finished_tokens_) / static_cast<double>(finished_choices_) : 0;
  // No policy preempts where one more block for each is there.
  const bool short_of_blocks = view_.available_blocks < static_cast<int64_t>(running_.size());
  // Steps that may be in flight share the choices evenly.
  const uint64_t num_steps = share ? flights_.size() : 1;
  const size_t most = base::CeilDiv(running_.size(), num_steps);
  for (Sequence* sequence : running_) {
    if (sequence->in_flight || view_.running.size() == most) {
      view_.elsewhere.push_back(ViewOf(*sequence, false));
      continue;
    }
    view_.running.push_back(ViewOf(*sequence, short_of_blocks));
    running_in_view_.push_back(sequence);
  }
  view_.limits = options_.limits;
  for (const auto& loan : lent_) view_.limits.total_blocks -= loan->blocks();
  const auto taken = static_cast<int32_t>(view_.elsewhere.size() + lent_.size());
  view_.limits.max_num_seqs = std::min(options_.limits.max_num_seqs - taken,
                                       static_cast<int32_t>(base::CeilDiv(running_.size() + waiting_.size(), num_steps)));
  ViewWaiting();
}

schedule::RunningView Replica::ViewOf(const Sequence& sequence, bool short_of_blocks) const {
  return {.order = JobOrder(sequence),
          .known_tokens = sequence.known(),
          .computed_tokens = sequence.computed,
          .reserved_blocks = static_cast<int64_t>(book_.table(0, sequence.slot).size()),
          .exclusive_blocks = short_of_blocks ? book_.exclusive_blocks(sequence.slot) : 0,
          .remaining_output = sequence.room(),
          .decoding = sequence.known() - sequence.computed == 1};
}

void Replica::ViewWaiting() {
  // In order, as far as this step can admit them: looking up what the cache holds of a choice is not free.
  waiting_in_view_.clear();
  const size_t most = static_cast<size_t>(view_.limits.max_num_seqs) - view_.running.size();
  int64_t rows = options_.limits.max_num_batched_tokens, blocks = view_.available_blocks;
  for (Sequence* sequence : waiting_) {
    if (rows <= 0 || blocks < 0 || view_.waiting.size() == most) return;
    if (!IsReady(*sequence)) continue;
    const kv::CachedPrefix cached = FindCached(sequence);
    view_.waiting.push_back({.order = JobOrder(*sequence),
                             .known_tokens = sequence->known(),
                             .cached_tokens = cached.tokens,
                             .held_tokens = cached.held_tokens,
                             .remaining_output = sequence->room()});
    waiting_in_view_.push_back(sequence);
    rows -= sequence->known() - cached.tokens;
    blocks -= (sequence->known() - cached.held_tokens) / kv::kBlockTokens;
  }
}

bool Replica::IsReady(const Sequence& sequence) const {
  const bool shares = options_.prefix_caching && sequence.prompt_tokens > kv::kBlockTokens;
  return IsFirstOfPrompt(sequence) || !shares || sequence.request->prompt_committed[sequence.prompt_index];
}

void Replica::Preempt(const std::vector<int32_t>& indices) {
  std::vector<Sequence*> preempted;
  for (const int32_t index : indices) preempted.push_back(running_in_view_[index]);
  for (Sequence* sequence : preempted) {
    book_.Close(sequence->slot);
    sequence->slot = -1;
    sequence->let_go_digest = 0;
    sequence->sampled_in_slot = false;
    sequence->phase = Phase::kWaiting;
    sequence->computed = 0;
    sequence->expected_rows = sequence->known();
    waiting_rows_ += sequence->expected_rows;
    output_room_ -= sequence->room();
    std::erase(running_, sequence);
  }
  // The latest is preempted first and goes on last.
  waiting_.insert(waiting_.begin(), preempted.rbegin(), preempted.rend());
  stats_.preemptions += static_cast<int64_t>(preempted.size());
}

void Replica::Admit(Sequence* sequence, int64_t rows) {
  sequence->slot = book_.Open(sequence->tokens, options_.prefix_salt, MaxCached(*sequence), &sequence->prefix_keys);
  sequence->computed = book_.computed(sequence->slot);
  if (!sequence->admitted_before) {
    sequence->admitted_before = true;
    if (IsFirstOfPrompt(*sequence)) {
      sequence->request->cached_tokens += sequence->computed;
      stats_.cached_prompt_tokens += sequence->computed;
    }
  }
  sequence->phase = Phase::kRunning;
  std::erase(waiting_, sequence);
  waiting_rows_ -= sequence->expected_rows;
  running_.push_back(sequence);
  output_room_ += sequence->room();
  SetTable(sequence->slot, 0);
  PlanRows(sequence, std::min(rows, sequence->known() - sequence->computed));
}

void Replica::PlanRows(Sequence* sequence, int64_t rows) {
  const int64_t begin = sequence->computed, end = begin + rows;
  const size_t blocks_before = book_.table(0, sequence->slot).size();
  book_.Reserve(sequence->slot, end);
  if (book_.table(0, sequence->slot).size() > blocks_before) SetTable(sequence->slot, blocks_before);
  book_.SetComputed(sequence->slot, end);
  const bool prompt_rows = WantsPromptLogprobs(*sequence) && begin < sequence->prompt_tokens - 1;
  const bool samples = end == sequence->known() && sequence->max_generated > 0;
  // The token that the last step sampled is on the device already, where one device does all.
  const int32_t on_device = ~sequence->slot;
  const bool sampled_last = ranks_.size() == 1 && sequence->sampled_in_slot && rows == 1 && end == sequence->known();
  const auto tokens = std::span<const int32_t>(sequence->tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(rows));
  Flight& flight = planned();
  sequence->in_flight = true;
  sampler_->buffers(FlightOf(begun_)).Add({.tokens = sampled_last ? std::span(&on_device, 1) : tokens,
                        .first_position = begin, .slot = sequence->slot, .all_logits = prompt_rows,
                        .last_logits = samples});
  flight.work.push_back({sequence, begin, end, flight.tasks.size()});
  for (int64_t position = prompt_rows ? begin : end - 1; position < end; ++position) {
    if (prompt_rows || samples) flight.tasks.push_back(MakeTask(sequence, position, samples && position == end - 1));
  }
}

LogitTask Replica::MakeTask(Sequence* sequence, int64_t position, bool sample) const {
  const Request& request = sequence->request->request;
  LogitTask task;
  task.slot = sequence->slot;
  if (WantsPromptLogprobs(*sequence) && position + 1 < sequence->prompt_tokens) {
    task.target = sequence->tokens[position + 1];
    task.target_logprobs = request.sampling.prompt_logprobs;
  }
  if (!sample) return task;
  task.input.params = &request.sampling;
  if (UsesCounts(request.sampling)) task.input.counts = &sequence->counts;
  task.input.banned = sequence->stop->banned();
  task.input.key = {.has_request_seed = request.sampling.seed.has_value(),
                    .seed = request.sampling.seed ? static_cast<uint64_t>(*request.sampling.seed) : options_.seed,
                    .line = request.line,
                    .choice = sequence->choice_index,
                    .position = position + 1};
  // A device without data leaves it as it is. Answers of several choices differ, and so do their blocks of KV.
  task.sampled.token = static_cast<int32_t>((sequence->choice_index + 7 * request.line) & 0xFF);
  return task;
}

void Replica::Commit(Flight& flight, std::vector<RequestResult>* finished) {
  for (const Work& work : flight.work) {
    Sequence* sequence = work.sequence;
    sequence->in_flight = false;
    const auto rows = std::span(sequence->tokens)
                          .subspan(static_cast<size_t>(work.begin), static_cast<size_t>(work.end - work.begin));
    book_.Commit(sequence->slot, rows);
    sequence->computed = work.end;
    LetGoUnseen(sequence);
    CountRows(work);
    if (work.end >= sequence->prompt_tokens) sequence->request->prompt_committed[sequence->prompt_index] = true;
    CommitLogits(flight, work);
    if (sequence->phase == Phase::kFinished || (sequence->max_generated == 0 && work.end == sequence->known())) {
      Finish(sequence, finished);
    }
  }
}

uint64_t Replica::KvDigest(int group, kv::SequenceSlot slot, int64_t begin, int64_t end) const {
  uint64_t sum = 0;
  for (const auto& rank : ranks_) sum += rank->KvDigest(group, book_.table(group, slot), begin, end);
  return sum;
}

void Replica::LetGoUnseen(Sequence* sequence) {
  for (int group = 0; group < book_.num_groups(); ++group) {
    const int64_t before = book_.first_held(group, sequence->slot);
    const int64_t after = book_.LetGoUnseen(group, sequence->slot);
    // Nothing was written into the blocks since.
    if (sampler_->digests_on()) sequence->let_go_digest += KvDigest(group, sequence->slot, before, after);
  }
}

void Replica::CountRows(const Work& work) {
  const int64_t rows = work.end - work.begin;
  stats_.computed_tokens += rows;
  stats_.recomputed_tokens += std::max<int64_t>(0, std::min(work.sequence->computed_peak, work.end) - work.begin);
  (work.is_decode() ? stats_.decode_rows : stats_.prefill_rows) += rows;
  const int64_t left = work.sequence->tokens_left();
  work.sequence->computed_peak = std::max(work.sequence->computed_peak, work.end);
  tokens_left_ -= left - work.sequence->tokens_left();
}

void Replica::CommitLogits(Flight& flight, const Work& work) {
  Sequence* const sequence = work.sequence;
  const uint64_t* const digests = sampler_->buffers(FlightOf(stats_.steps)).logit_digests();
  const size_t end = &work == &flight.work.back() ? flight.tasks.size() : (&work)[1].first_task;
  for (size_t i = work.first_task; i < end; ++i) {
    LogitTask& task = flight.tasks[i];
    if (task.target >= 0) {
      auto& logprobs = sequence->request->prompt_logprobs[sequence->prompt_index];
      logprobs[work.begin + static_cast<int64_t>(i - work.first_task) + 1] = std::move(task.target_output);
    }
    if (task.input.params == nullptr) continue;
    if (sampler_->digests_on()) sequence->result.digest += digests[i];
    AppendToken(sequence, &task);
  }
}

void Replica::AppendToken(Sequence* sequence, LogitTask* task) {
  const SamplingParams& params = sequence->request->request.sampling;
  const int32_t token = task->sampled.token;
  sequence->tokens.push_back(token);
  if (sequence->request->first_token_ns < 0) sequence->request->first_token_ns = runtime_.Now();
  sequence->sampled_in_slot = true;
  if (UsesCounts(params)) sequence->counts.AddOutput(token);
  if (params.logprobs >= 0) sequence->result.logprobs.push_back(std::move(task->sampled.logprobs));
  if (sequence->AfterToken(token)) sequence->phase = Phase::kFinished;
  --output_room_;
  ++stats_.output_tokens;
}

void Replica::Finish(Sequence* sequence, std::vector<RequestResult>* finished) {
  for (int group = 0; group < book_.num_groups() && sampler_->digests_on(); ++group) {
    sequence->result.digest += KvDigest(group, sequence->slot, book_.first_held(group, sequence->slot), sequence->computed);
  }
  sequence->result.digest += sequence->let_go_digest;
  book_.Close(sequence->slot);
  sequence->slot = -1;
  sequence->phase = Phase::kFinished;
  std::erase(running_, sequence);
  output_room_ -= sequence->room();
  tokens_left_ -= sequence->tokens_left();
  stats_.output_allowed += sequence->max_generated;
  ++finished_choices_;
  finished_tokens_ += sequence->known();
  RequestState* state = sequence->request;
  if (--state->unfinished > 0) return;
  Deliver(state, finished);
  std::erase_if(states_, [&](const auto& held) { return held.get() == state; });
}

void Replica::Deliver(RequestState* state, std::vector<RequestResult>* finished) {
  finished->push_back(TakeResult(state));
  ++stats_.requests_finished;
  stats_.prompt_tokens += finished->back().prompt_tokens;
}

StepEnd Replica::Stall(std::string what) {
  what_stalled_ = std::move(what);
  return StepEnd::kStalled;
}

EngineStats Replica::stats() const {
  const std::lock_guard lock(published_mutex_);
  return published_;
}

}  // namespace forebay::engine

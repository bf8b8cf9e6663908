#include "engine/replica.h"

#include <algorithm>

namespace forebay::engine {
namespace {

// Waiting choices that a policy sees at once: looking up what the cache holds of each is not free.
constexpr size_t kWaitingInView = 32;

int64_t JobOrder(const Sequence& sequence) {
  return (sequence.request->request.line << 16) + std::min(sequence.choice_index, 0xFFFF);
}

bool WantsPromptLogprobs(const Sequence& sequence) {
  const Request& request = sequence.request->request;
  return request.sampling.prompt_logprobs >= 0 && sequence.choice_index % request.n == 0;
}

// Positions that Open may take from the cache. Rows whose logits are wanted must be computed.
int64_t MaxCached(const Sequence& sequence) { return WantsPromptLogprobs(sequence) ? 0 : sequence.known() - 1; }

bool UsesCounts(const SamplingParams& params) {
  return params.presence_penalty != 0 || params.frequency_penalty != 0 || params.repetition_penalty != 1;
}

}  // namespace

Replica::Replica(runtime::Runtime& runtime, std::unique_ptr<Rank> rank, std::unique_ptr<schedule::Policy> policy,
                 const ReplicaOptions& options)
    : runtime_(runtime),
      rank_(std::move(rank)),
      policy_(std::move(policy)),
      options_(options),
      book_({.num_blocks = options.limits.total_blocks,
             .max_sequences = options.limits.max_num_seqs,
             .max_blocks_per_sequence = options.max_blocks_per_sequence,
             .prefix_sharing = options.prefix_caching}) {}

void Replica::Take(std::unique_ptr<RequestState> state) {
  for (const auto& sequence : state->sequences) {
    if (UsesCounts(state->request.sampling)) sequence->counts.AddPrompt(sequence->tokens);
    if (sequence->max_generated == 0 && !WantsPromptLogprobs(*sequence)) {
      sequence->phase = Phase::kFinished;
      --state->unfinished;
    } else {
      waiting_.push_back(sequence.get());
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
  std::erase_if(waiting_, [&](const Sequence* sequence) { return unstarted(*sequence->request); });
  std::erase_if(states_, [&](const auto& state) { return unstarted(*state); });
}

StepEnd Replica::Step(std::vector<RequestResult>* finished) {
  for (auto& state : finished_at_once_) {
    finished->push_back(TakeResult(state.get()));
  }
  finished_at_once_.clear();
  if (unfinished() == 0) return StepEnd::kIdle;

  const runtime::TimeNs start = runtime_.Now();
  BuildView();
  policy_->Plan(view_, &plan_);
  if (plan_.run.empty() && plan_.admit.empty()) {
    return Stall(fmt::format("the policy {} planned nothing though {} choices run and {} wait ({} of {} KV blocks free)",
                             policy_->name(), running_.size(), waiting_.size(), view_.available_blocks,
                             options_.limits.total_blocks));
  }
  schedule::CheckPlan(view_, plan_);

  work_.clear();
  tasks_.clear();
  rank_->buffers().Begin();
  // Indices of the plan refer to the view: resolve them before the lists change.
  planned_.clear();
  for (const schedule::RowsOf& rows : plan_.admit) planned_.emplace_back(waiting_[rows.index], rows.rows);
  for (const schedule::RowsOf& rows : plan_.run) planned_.emplace_back(running_[rows.index], rows.rows);
  Preempt(plan_.preempt);
  for (const auto& [sequence, rows] : planned_) {
    if (sequence->phase == Phase::kWaiting) {
      Admit(sequence, rows);
    } else {
      PlanRows(sequence, rows);
    }
  }
  rank_->EnqueueStep(&tasks_);
  if (!rank_->WaitStep(options_.stall_timeout)) {
    return Stall(fmt::format("a step of {} rows did not finish in {}", rank_->buffers().batch().num_rows,
                             base::FormatDuration(static_cast<double>(options_.stall_timeout) * 1e-9)));
  }
  Commit(finished);

  const std::lock_guard lock(stats_mutex_);
  ++stats_.steps;
  stats_.step_seconds += static_cast<double>(runtime_.Now() - start) * 1e-9;
  stats_.choices_running = static_cast<int64_t>(running_.size());
  stats_.choices_waiting = static_cast<int64_t>(waiting_.size());
  stats_.kv_blocks_used = book_.held_blocks();
  stats_.kv_blocks_total = book_.num_blocks();
  stats_.kv_blocks_used_peak = book_.stats().held_peak;
  stats_.prefix_blocks_hit = book_.stats().prefix_blocks_hit;
  return StepEnd::kStepped;
}

void Replica::BuildView() {
  view_.running.clear();
  view_.waiting.clear();
  view_.limits = options_.limits;
  view_.available_blocks = book_.available_blocks();
  view_.now_us = runtime_.Now() / 1000;
  for (const Sequence* sequence : running_) {
    view_.running.push_back({.order = JobOrder(*sequence),
                             .known_tokens = sequence->known(),
                             .computed_tokens = sequence->computed,
                             .reserved_blocks = static_cast<int64_t>(book_.table(sequence->slot).size()),
                             .exclusive_blocks = book_.exclusive_blocks(sequence->slot),
                             .remaining_output = sequence->max_generated - sequence->generated(),
                             .decoding = sequence->known() - sequence->computed == 1});
  }
  if (view_.running.size() >= static_cast<size_t>(options_.limits.max_num_seqs)) return;
  for (size_t i = 0; i < std::min(kWaitingInView, waiting_.size()); ++i) {
    const Sequence& sequence = *waiting_[i];
    const RequestState& state = *sequence.request;
    const bool first_of_prompt = sequence.choice_index % state.request.n == 0;
    const bool shares = options_.prefix_caching && sequence.prompt_tokens > kv::kBlockTokens;
    const kv::CachedPrefix cached = book_.FindCached(sequence.tokens, options_.prefix_salt, MaxCached(sequence));
    view_.waiting.push_back(
        {.order = JobOrder(sequence),
         .known_tokens = sequence.known(),
         .cached_tokens = cached.tokens,
         .held_tokens = cached.held_tokens,
         .remaining_output = sequence.max_generated - sequence.generated(),
         .ready = first_of_prompt || !shares || state.prompt_committed[sequence.prompt_index]});
  }
}

void Replica::Preempt(const std::vector<int32_t>& indices) {
  std::vector<Sequence*> preempted;
  for (const int32_t index : indices) preempted.push_back(running_[index]);
  for (Sequence* sequence : preempted) {
    book_.Close(sequence->slot);
    sequence->slot = -1;
    sequence->phase = Phase::kWaiting;
    sequence->computed = 0;
    std::erase(running_, sequence);
  }
  waiting_.insert(waiting_.begin(), preempted.begin(), preempted.end());
  const std::lock_guard lock(stats_mutex_);
  stats_.preemptions += static_cast<int64_t>(preempted.size());
}

void Replica::Admit(Sequence* sequence, int64_t rows) {
  sequence->slot = book_.Open(sequence->tokens, options_.prefix_salt, MaxCached(*sequence));
  sequence->computed = book_.computed(sequence->slot);
  if (!sequence->admitted_before) {
    const int64_t cached = std::min(sequence->computed, sequence->prompt_tokens);
    sequence->request->cached_tokens += cached;
    sequence->admitted_before = true;
    const std::lock_guard lock(stats_mutex_);
    stats_.cached_prompt_tokens += cached;
  }
  sequence->phase = Phase::kRunning;
  std::erase(waiting_, sequence);
  running_.push_back(sequence);
  rank_->buffers().SetTable(sequence->slot, 0, book_.table(sequence->slot));
  PlanRows(sequence, std::min(rows, sequence->known() - sequence->computed));
}

void Replica::PlanRows(Sequence* sequence, int64_t rows) {
  const int64_t begin = sequence->computed, end = begin + rows;
  const size_t blocks_before = book_.table(sequence->slot).size();
  FB_CHECK(book_.Reserve(sequence->slot, end, nullptr), "a checked plan reserves {} positions in vain", end);
  rank_->buffers().SetTable(sequence->slot, blocks_before, book_.table(sequence->slot));
  book_.SetComputed(sequence->slot, end);
  const bool prompt_rows = WantsPromptLogprobs(*sequence) && begin < sequence->prompt_tokens - 1;
  const bool samples = end == sequence->known() && sequence->max_generated > 0;
  rank_->buffers().Add({.tokens = std::span(sequence->tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)),
                        .first_position = begin, .slot = sequence->slot, .all_logits = prompt_rows,
                        .last_logits = samples});
  work_.push_back({sequence, begin, end, tasks_.size()});
  for (int64_t position = prompt_rows ? begin : end - 1; position < end; ++position) {
    if (prompt_rows || samples) tasks_.push_back(MakeTask(sequence, position, samples && position == end - 1));
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
  return task;
}

void Replica::Commit(std::vector<RequestResult>* finished) {
  for (const Work& work : work_) {
    Sequence* sequence = work.sequence;
    const auto rows = std::span(sequence->tokens)
                          .subspan(static_cast<size_t>(work.begin), static_cast<size_t>(work.end - work.begin));
    book_.Commit(sequence->slot, rows);
    sequence->computed = work.end;
    CountRows(sequence, work.begin, work.end);
    if (work.end >= sequence->prompt_tokens) sequence->request->prompt_committed[sequence->prompt_index] = true;
    CommitLogits(sequence, work);
    if (sequence->phase == Phase::kFinished || (sequence->max_generated == 0 && work.end == sequence->known())) {
      Finish(sequence, finished);
    }
  }
}

void Replica::CountRows(Sequence* sequence, int64_t begin, int64_t end) {
  const std::lock_guard lock(stats_mutex_);
  stats_.computed_tokens += end - begin;
  stats_.recomputed_tokens += std::max<int64_t>(0, std::min(sequence->computed_peak, end) - begin);
  stats_.mode_counters[begin >= sequence->prompt_tokens && end - begin == 1 ? "rows_decode" : "rows_prefill"] += end - begin;
  sequence->computed_peak = std::max(sequence->computed_peak, end);
}

void Replica::CommitLogits(Sequence* sequence, const Work& work) {
  const size_t count = (&work == &work_.back() ? tasks_.size() : (&work)[1].first_task) - work.first_task;
  for (size_t i = 0; i < count; ++i) {
    LogitTask& task = tasks_[work.first_task + i];
    if (task.target >= 0) {
      auto& logprobs = sequence->request->prompt_logprobs[sequence->prompt_index];
      logprobs[work.begin + static_cast<int64_t>(i) + 1] = std::move(task.target_output);
    }
    if (task.input.params == nullptr) continue;
    if (rank_->digests_on()) sequence->result.digest += rank_->buffers().logit_digests()[work.first_task + i];
    AppendToken(sequence, &task);
  }
}

void Replica::AppendToken(Sequence* sequence, LogitTask* task) {
  const SamplingParams& params = sequence->request->request.sampling;
  const int32_t token = task->sampled.token;
  sequence->tokens.push_back(token);
  if (UsesCounts(params)) sequence->counts.AddOutput(token);
  if (params.logprobs >= 0) sequence->result.logprobs.push_back(std::move(task->sampled.logprobs));
  if (sequence->AfterToken(token)) sequence->phase = Phase::kFinished;
  const std::lock_guard lock(stats_mutex_);
  ++stats_.output_tokens;
}

void Replica::Finish(Sequence* sequence, std::vector<RequestResult>* finished) {
  if (rank_->digests_on()) sequence->result.digest += rank_->KvDigest(book_.table(sequence->slot), sequence->computed);
  book_.Close(sequence->slot);
  sequence->slot = -1;
  sequence->phase = Phase::kFinished;
  std::erase(running_, sequence);
  RequestState* state = sequence->request;
  if (--state->unfinished > 0) return;
  finished->push_back(TakeResult(state));
  {
    const std::lock_guard lock(stats_mutex_);
    ++stats_.requests_finished;
    stats_.prompt_tokens += finished->back().prompt_tokens;
  }
  std::erase_if(states_, [&](const auto& held) { return held.get() == state; });
}

StepEnd Replica::Stall(std::string what) {
  what_stalled_ = std::move(what);
  return StepEnd::kStalled;
}

EngineStats Replica::stats() const {
  const std::lock_guard lock(stats_mutex_);
  return stats_;
}

}  // namespace forebay::engine

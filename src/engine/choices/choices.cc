#include "engine/choices/choices.h"

#include <algorithm>

#include "schedule/intake.h"

namespace forebay::engine {
namespace {

uint64_t NoDigest(int /*group*/, std::span<const kv::BlockId> /*table*/, int64_t /*begin*/,
                  int64_t /*end*/) {
  return 0;
}

bool SeeAll(std::span<const base::Reach> reaches) {
  return std::ranges::all_of(reaches, &base::Reach::all);
}

// A choice of the plan. `end`: of the positions that one that waits may have; the plan has blocks
// for so many.
struct Planned {
  Sequence* sequence;
  int64_t rows;
  int64_t end;
};

}  // namespace

Choices::Choices(const ChoicesOptions& options, KvDigest kv_digest, StateDigest state_digest)
    : options_(options),
      digests_(kv_digest != nullptr),
      kv_digest_(kv_digest ? std::move(kv_digest) : NoDigest),
      state_digest_(std::move(state_digest)),
      parking_({.blocks = options.tier,
                .prices = options.park,
                .state_blocks = options.keeps_states ? options.state_blocks : 0,
                .shared_keys =
                    options.prefix_caching && SeeAll(options.kv_reaches) && !options.keeps_states,
                .streams = options.streaming.places > 0,
                .keeps = options.keeps_tier,
                .lends = options.tier.in_memory > 0 && options.steps_in_flight == 1,
                .size_flag = options.tier_flag}),
      book_({.num_blocks = options.limits.total_blocks,
             .max_sequences = options.limits.max_num_seqs,
             .max_blocks_per_sequence = options.max_blocks_per_sequence,
             .prefix_sharing = options.prefix_caching,
             .notes_evictions = parking_.stores_evicted() || options.kept_states > 0},
            // What no longer lies in blocks has no digest.
            options.kv_reaches, options.most_kv_blocks, /*whole_prefixes=*/digests_),
      state_places_(options.keeps_states, options.limits.max_num_seqs, options.kept_states,
                    options.state_every),
      lists_(options.by_service),
      foresight_(options.lengths, options.earlier),
      streaming_(options.streaming, kv_digest_, parking_, book_),
      loans_(options.replica, book_, state_places_),
      view_(options_, {lists_, book_, state_places_, foresight_, streaming_, loans_, parking_}) {}

bool Choices::WantsRequests() const {
  return Wants({.running = static_cast<int64_t>(num_running()),
                .waiting = static_cast<int64_t>(num_waiting()),
                .waiting_rows = lists_.waiting_rows(),
                .available_blocks = book_.available_blocks() + streaming_.room()});
}

bool Choices::WantsInteractive() const {
  const ChoiceLists::Count& held = lists_.interactive();
  return options_.by_service && Wants({.running = held.running,
                                       .waiting = held.waiting,
                                       .waiting_rows = held.waiting_rows,
                                       .available_blocks = book_.num_blocks()});
}

bool Choices::Wants(schedule::IntakeView view) const {
  view.ended = static_cast<int64_t>(ended_.size());
  view.most_logprob_bytes = options_.most_logprob_bytes;
  // A replica that is full by the rest, as most are most of the time, walks no requests.
  if (!schedule::WantsRequests(options_.limits, view)) return false;
  // Those that give way keep their log probabilities.
  for (const auto& state : states_) view.logprob_bytes += LogprobBytes(*state);
  return schedule::WantsRequests(options_.limits, view);
}

bool Choices::WantsHurried() const {
  const double until = hurried_until();
  if (until == -schedule::kNoDeadline || lists_.interactive().waiting > 0 ||
      lists_.running().empty())
    return false;
  const auto hurried = [until](const Sequence* sequence) {
    return sequence->facts.deadline <= until;
  };
  const auto can_give_way = [&](const Sequence* sequence) {
    return sequence->service() == Service::kBatch && !hurried(sequence);
  };
  return std::ranges::none_of(lists_.waiting(), hurried) &&
         std::any_of(lists_.running().begin() + 1, lists_.running().end(), can_give_way) &&
         Wants({});
}

std::vector<schedule::DueWork> Choices::Due() const {
  std::vector<schedule::DueWork> due;
  const auto add = [&](const Sequence* sequence) {
    if (sequence->service() != Service::kBatch || sequence->facts.deadline == schedule::kNoDeadline)
      return;
    due.push_back({.deadline = sequence->facts.deadline,
                   .tokens = static_cast<double>(sequence->tokens_left()),
                   .longest_output = static_cast<double>(sequence->output_left())});
  };
  std::ranges::for_each(lists_.waiting(), add);
  std::ranges::for_each(lists_.running(), add);
  return due;
}

void Choices::Queue(Sequence* sequence) {
  lists_.Queue(sequence, sequence->known() - view_.FindCached(sequence).tokens);
}

void Choices::Take(std::unique_ptr<RequestState> state) {
  ids_.push_back(state->request.id);
  for (const auto& sequence : state->sequences) {
    if (sequence->facts.uses_counts) sequence->counts.AddPrompt(sequence->tokens);
    if (sequence->max_generated == 0 && !sequence->wants_prompt_logprobs() &&
        !sequence->is_pooled()) {
      sequence->phase = Phase::kFinished;
      --state->unfinished;
    } else {
      Queue(sequence.get());
    }
  }
  // A request that asks for no tokens has its result without a step.
  (state->unfinished == 0 ? ended_ : states_).push_back(std::move(state));
}

void Choices::DropUnstarted() {
  const auto unstarted = [](const RequestState& state) {
    return std::none_of(state.sequences.begin(), state.sequences.end(),
                        [](const auto& sequence) { return sequence->admitted_before; });
  };
  std::erase_if(states_, [&](const auto& state) {
    const bool dropped = unstarted(*state);
    for (const auto& sequence : state->sequences) {
      if (dropped) Drop(sequence.get());
    }
    return dropped;
  });
}

void Choices::DeliverEnded(std::vector<RequestResult>* finished) {
  for (const auto& state : ended_) Deliver(state.get(), finished);
  ended_.clear();
}

const schedule::StepView& Choices::View(bool share, int64_t now_us, double price_factor) {
  parking_.CommitReturned(book_);
  foresight_.Update(lists_);
  return view_.Update(share, now_us, price_factor);
}

void Choices::Apply(const schedule::StepPlan& plan, int64_t now_ns, std::vector<ChoiceRows>* rows) {
  rows->clear();
  // Indices of the plan refer to the view: resolve them before the lists change.
  std::vector<Planned> planned;
  planned.reserve(plan.admit.size() + plan.run.size());
  rows->reserve(plan.admit.size() + plan.run.size());
  for (const schedule::RowsOf& each : plan.admit)
    planned.push_back(
        {view_.waiting(each.index), each.rows, view_.cached_tokens(each.index) + each.rows});
  for (const schedule::RowsOf& each : plan.run)
    planned.push_back({view_.running(each.index), each.rows, 0});
  parking_.BeginPlan(book_);
  // Before anybody loses blocks: what is sealed must still hold what its key says.
  if (parking_.seals()) {
    for (Sequence* sequence : lists_.running()) parking_.Seal(sequence, book_);
  }
  Preempt(plan.preempt);
  // What the cache has of those that come is theirs before anybody takes blocks.
  for (size_t i = 0; i < plan.admit.size(); ++i) Open(planned[i].sequence, planned[i].end, now_ns);
  for (size_t i = 0; i < planned.size(); ++i) {
    const auto& [sequence, count, end] = planned[i];
    const bool just_came = i < plan.admit.size();
    if (just_came && sequence->parked) {
      Return(sequence);
    } else {
      // One that just came may have found more in the cache than its plan knew.
      PlanRows(sequence, std::min(count, sequence->known() - sequence->computed),
               just_came ? 0 : book_.table(0, sequence->id).size(), rows);
    }
  }
  streaming_.BringBack(lists_.running());
  parking_.StoreEvicted(book_);
  state_places_.Forget(book_.evicted(book_.lead()));
}

void Choices::Preempt(const std::vector<int32_t>& indices) {
  std::vector<Sequence*> preempted;
  for (const int32_t index : indices) preempted.push_back(view_.running(index));
  for (Sequence* sequence : preempted) {
    streaming_.End(sequence);
    const int64_t parked = parking_.Park(sequence, book_) ? sequence->computed : 0;
    state_places_.Leave(sequence);
    book_.Close(sequence->id);
    lists_.StopRunning(sequence);
    sequence->LeaveBook();
    // What was streamed comes back to the device.
    if (parked == 0 || streaming_.on()) sequence->let_go_digest = 0;
    sequence->expected_rows = sequence->known() - parked;
  }
  // The latest is preempted first and goes on last.
  lists_.QueuePreempted(preempted);
  stats_.preemptions += static_cast<int64_t>(preempted.size());
}

void Choices::Open(Sequence* sequence, int64_t end, int64_t now_ns) {
  if (sequence->request->admitted_ns < 0) sequence->request->admitted_ns = now_ns;
  // What the view has found below may have gone since, and more may have come: others of this step
  // take blocks, too.
  if (sequence->parked || parking_.TakePrefix(sequence, book_, view_.FindCached(sequence).tokens,
                                              std::min(end, view_.MaxCached(*sequence)))) {
    const ParkedKv& parked = *sequence->parked;
    const int64_t most = streaming_.on() ? view_.MaxCached(*sequence) : parked.computed;
    sequence->id = book_.OpenAdopted(
        std::span(sequence->tokens).first(static_cast<size_t>(parked.computed)), sequence->salt,
        parked.first_held, parking_.shared_keys() ? most : 0, &sequence->prefix_keys);
    sequence->computed = parked.computed;
    state_places_.Return(sequence);
  } else {
    const int64_t most =
        state_places_.on() ? view_.FindCached(sequence).tokens : view_.MaxCached(*sequence);
    sequence->id = book_.Open(sequence->tokens, sequence->salt, most, &sequence->prefix_keys);
    sequence->computed = book_.computed(sequence->id);
    for (int group = 0; group < book_.num_groups(); ++group) {
      sequence->let_go_digest += kv_digest_(group, book_.table(group, sequence->id), 0,
                                            book_.first_held(group, sequence->id));
    }
    state_places_.Open(sequence);
  }
  // What a preempted choice finds again is no saving, and siblings would count one prompt several
  // times.
  if (!std::exchange(sequence->admitted_before, true) && sequence->first_of_prompt()) {
    sequence->request->cached_tokens += sequence->computed;
    stats_.cached_prompt_tokens += sequence->computed;
  }
  lists_.LeaveQueue(sequence);
  lists_.StartRunning(sequence);
}

void Choices::Return(Sequence* sequence) {
  streaming_.MakeRoom(*sequence, sequence->computed, lists_.running());
  book_.Extend(sequence->id, sequence->computed);
  parking_.Return(sequence, book_);
}

void Choices::PlanRows(Sequence* sequence, int64_t rows, size_t first_block,
                       std::vector<ChoiceRows>* step) {
  const int64_t begin = sequence->computed, end = begin + rows;
  if (streaming_.on()) streaming_.MakeRoom(*sequence, end, lists_.running());
  book_.Extend(sequence->id, end);
  if (state_places_.on()) state_places_.Plan(sequence, begin, end);
  sequence->in_flight = true;
  step->push_back({.sequence = sequence, .begin = begin, .end = end, .first_block = first_block});
}

void Choices::Commit(const ChoiceRows& rows) {
  Sequence* const sequence = rows.sequence;
  sequence->in_flight = false;
  book_.Commit(sequence->id,
               std::span(sequence->tokens)
                   .subspan(static_cast<size_t>(rows.begin), static_cast<size_t>(rows.count())));
  sequence->computed = rows.end;
  if (state_places_.on()) state_places_.Commit(sequence);
  if (!book_.all_seen()) LetGoUnseen(sequence);
  CountRows(rows);
  (rows.is_decode() ? stats_.decode_rows : stats_.prefill_rows) += rows.count();
  if (!sequence->may_compute_prefix) return;
  SharedPrefix& prefix = sequence->request->prefixes[static_cast<size_t>(sequence->prefix_index)];
  if (prefix.computes == sequence && rows.end >= prefix.committed_at) prefix.computes = nullptr;
  sequence->may_compute_prefix = prefix.computes == sequence;
}

void Choices::LetGoUnseen(Sequence* sequence) {
  for (int group = 0; group < book_.num_groups(); ++group) {
    const int64_t before = book_.first_held(group, sequence->id);
    const int64_t after = book_.LetGoUnseen(group, sequence->id);
    // Nothing was written into the blocks since.
    sequence->let_go_digest += kv_digest_(group, book_.table(group, sequence->id), before, after);
  }
}

void Choices::CountRows(const ChoiceRows& rows) {
  stats_.computed_tokens += rows.count();
  if (rows.sequence->service() == Service::kInteractive) stats_.interactive_rows += rows.count();
  stats_.recomputed_tokens +=
      std::max<int64_t>(0, std::min(rows.sequence->computed_peak, rows.end) - rows.begin);
  const int64_t left = rows.sequence->tokens_left();
  rows.sequence->computed_peak = std::max(rows.sequence->computed_peak, rows.end);
  lists_.CountDone(left - rows.sequence->tokens_left());
}

void Choices::Append(Sequence* sequence, int32_t token, int64_t now_ns) {
  sequence->tokens.push_back(token);
  if (sequence->request->first_token_ns < 0) sequence->request->first_token_ns = now_ns;
  sequence->last_token_ns = now_ns;
  sequence->sampled_on_device = true;
  if (sequence->facts.uses_counts) sequence->counts.AddOutput(token);
  if (sequence->AfterToken(token)) sequence->phase = Phase::kFinished;
  if (sequence->facts.stream) pieces_.push_back(sequence->TakePiece());
  lists_.CountTokens(1);
  ++stats_.output_tokens;
}

void Choices::Close(Sequence* sequence) {
  streaming_.End(sequence);
  state_places_.Leave(sequence);
  // Blocks behind the prompt hold an answer that nobody will ask for: they go first.
  book_.Close(sequence->id, sequence->prompt_tokens);
}

void Choices::CloseIfEnded(const ChoiceRows& rows, std::vector<RequestResult>* finished) {
  Sequence* const sequence = rows.sequence;
  const bool prompt_alone = sequence->max_generated == 0 && rows.end == sequence->known();
  RequestState* const state = sequence->request;
  if (sequence->phase != Phase::kFinished && !prompt_alone && !state->failed) return;
  for (int group = 0; group < book_.num_groups(); ++group) {
    sequence->result.digest +=
        kv_digest_(group, book_.table(group, sequence->id), book_.first_held(group, sequence->id),
                   sequence->computed);
  }
  sequence->result.digest += sequence->let_go_digest;
  if (state_digest_ && sequence->state_place >= 0)
    sequence->result.digest += state_digest_(sequence->state_place, sequence->computed);
  Close(sequence);
  sequence->id = -1;
  sequence->phase = Phase::kFinished;
  lists_.StopRunning(sequence);
  lists_.CountDone(sequence->tokens_left());
  stats_.output_allowed += sequence->max_generated;
  // Lengths are learned from choices that came to their end, which a preempted one has not.
  foresight_.Ended(*sequence);
  --state->unfinished;
  if (state->failed) DropLanded(state);
  if (state->unfinished > 0) return;
  Deliver(state, finished);
  std::erase_if(states_, [&](const auto& held) { return held.get() == state; });
}

void Choices::Deliver(RequestState* state, std::vector<RequestResult>* finished) {
  finished->push_back(TakeResult(state));
  if (state->cancelled) return;
  ++stats_.requests_finished;
  stats_.prompt_tokens += finished->back().prompt_tokens;
}

EngineStats Choices::stats() const {
  EngineStats stats = stats_;
  stats.choices_running = static_cast<int64_t>(num_running());
  stats.choices_waiting = static_cast<int64_t>(num_waiting());
  stats.output_room = lists_.output_room();
  stats.kv_blocks_used = book_.held_blocks();
  stats.kv_blocks_total = book_.num_blocks();
  stats.kv_blocks_used_peak = book_.held_peak();
  stats.prefix_blocks_hit = book_.prefix_blocks_hit();
  return stats;
}

}  // namespace forebay::engine

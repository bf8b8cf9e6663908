// What a replica's choices lose to others, which have run out of work or go on with what it has
// begun, and gain from them.
#include <algorithm>
#include <utility>

#include "engine/choices/choices.h"

namespace forebay::engine {
namespace {

// Positions in its KV cache that rows still see; the mean of the groups.
int64_t HeldTokens(const Sequence& sequence, const kv::GroupBooks& book) {
  int64_t sum = 0;
  for (int group = 0; group < book.num_groups(); ++group)
    sum += sequence.computed - book.first_held(group, sequence.id);
  return sum / book.num_groups();
}

// A request whose choices all wait takes nothing along that the device has; one with a single
// choice takes its KV, unless that `stays`.
schedule::HeldView ViewHeld(const RequestState& state, const kv::GroupBooks& book,
                            std::span<Sequence* const> returning, bool stays) {
  schedule::HeldView held;
  for (const auto& sequence : state.sequences) {
    if (sequence->phase == Phase::kFinished) continue;
    // A choice without a bound that has come so far may well come as far again.
    const int64_t room = sequence->bounded ? sequence->room()
                                           : std::max(sequence->expected_tokens - sequence->known(),
                                                      sequence->generated());
    const int64_t computed = sequence->parked ? sequence->parked->computed : sequence->computed;
    held.tokens_left += sequence->known() - computed + room;
    if (sequence->phase != Phase::kRunning) continue;
    held.kv_tokens += HeldTokens(*sequence, book);
    held.movable = !stays && state.sequences.size() == 1 && !sequence->in_flight &&
                   std::ranges::count(returning, sequence.get()) == 0;
  }
  return held;
}

// Whether the request's prompts are computed: each of its choices has drawn its first token, or
// waits, and another that goes along has computed the same prompt. Those of which a step is in
// flight go along when it has ended. `shares`: choices share what they compute.
bool CanGoOver(const RequestState& state, bool shares, std::span<Sequence* const> returning) {
  const auto goes_along = [&](const Sequence& sequence) {
    return sequence.phase == Phase::kRunning && sequence.generated() > 0 &&
           sequence.known() - sequence.computed == 1 &&
           std::ranges::count(returning, &sequence) == 0;
  };
  return !state.failed && std::ranges::all_of(state.sequences, [&](const auto& each) {
    if (each->phase == Phase::kFinished || goes_along(*each)) return true;
    return shares && each->phase == Phase::kWaiting && !each->admitted_before &&
           std::ranges::any_of(state.sequences, [&](const auto& other) {
             return other->prompt_index == each->prompt_index && goes_along(*other);
           });
  });
}

}  // namespace

std::vector<Gift> Choices::HandOver() {
  std::vector<RequestState*> ready;
  for (const auto& state : states_) {
    // No other step has its choices from here on: with several in flight there may else be none in
    // which it has no rows.
    const bool goes_over = CanGoOver(*state, parking_.shared_keys(), returning());
    state->SetGoingOver(goes_over);
    const bool in_flight = std::ranges::any_of(
        state->sequences, [](const auto& sequence) { return sequence->in_flight; });
    if (goes_over && !in_flight) ready.push_back(state.get());
  }
  std::vector<Gift> gifts;
  for (RequestState* const state : ready) {
    Gift& gift = gifts.emplace_back(Detach(state));
    gift.handed_over = true;
    gift.state->SetGoingOver(false);
    for (const auto& loan : gift.loans) loan->offered = true;
  }
  return gifts;
}

schedule::TakerView Choices::room() const {
  const auto running = static_cast<int64_t>(num_running());
  return {.free_blocks = book_.available_blocks(),
          .places = options_.limits.max_num_seqs - running - loans_.count(),
          .running = running,
          .waiting = static_cast<int64_t>(num_waiting()),
          .lent = loans_.count()};
}

std::vector<Gift> Choices::GiveAway(int askers) {
  schedule::StealView view{.askers = askers, .most = options_.limits.max_num_seqs};
  // Blocks that are lent could not be streamed, nor streamed ones lent.
  const bool stays = streaming_.on();
  for (const auto& state : states_)
    view.held.push_back(ViewHeld(*state, book_, returning(), stays));
  std::vector<int32_t> indices;
  schedule::ChooseGifts(view, options_.steal, &indices);
  // Indices are those before any was given.
  std::vector<RequestState*> given;
  for (const int32_t index : indices) given.push_back(states_[static_cast<size_t>(index)].get());
  std::vector<Gift> gifts;
  for (RequestState* const state : given) gifts.push_back(Detach(state));
  return gifts;
}

Gift Choices::Detach(RequestState* state) {
  Gift gift{.from = options_.replica};
  for (const auto& each : state->sequences) {
    Sequence* const sequence = each.get();
    if (sequence->phase == Phase::kFinished) continue;
    lists_.CountDone(sequence->tokens_left());
    // The tier is this replica's: it is read from there, or computed again.
    if (auto loan = parking_.Lend(sequence, options_.replica))
      gift.loans.push_back(std::move(loan));
    parking_.Forget(sequence);
    if (sequence->phase == Phase::kRunning) {
      gift.loans.push_back(loans_.Lend(sequence));
      lists_.StopRunning(sequence);
      sequence->LeaveBook();
      continue;
    }
    lists_.LeaveQueue(sequence);
  }
  const auto held =
      std::ranges::find_if(states_, [&](const auto& each) { return each.get() == state; });
  gift.state = std::move(*held);
  states_.erase(held);
  return gift;
}

std::vector<Choices::Adopted> Choices::Adopt(Gift& gift) {
  RequestState* const state = states_.emplace_back(std::move(gift.state)).get();
  ids_.push_back(state->request.id);
  ++(gift.handed_over ? stats_.requests_handed_over : stats_.requests_stolen);
  std::vector<Adopted> adopted;
  for (const auto& sequence : state->sequences) {
    if (sequence->phase == Phase::kFinished) continue;
    const auto lent = std::ranges::find_if(
        gift.loans, [&](const auto& loan) { return loan->choice == sequence->choice_index; });
    const kv::KvLoan* const loan = lent == gift.loans.end() ? nullptr : lent->get();
    const bool fits = loan != nullptr &&
                      std::ssize(lists_.running()) + std::ssize(adopted) + loans_.count() <
                          options_.limits.max_num_seqs &&
                      book_.available_blocks() > loan->blocks();
    if (!fits) {
      sequence->let_go_digest = 0;
      Queue(sequence.get());
      continue;
    }
    const auto tokens = std::span(sequence->tokens).first(static_cast<size_t>(loan->computed));
    sequence->id = book_.OpenAdopted(tokens, sequence->salt, loan->first_held);
    book_.Extend(sequence->id, loan->computed);
    state_places_.Return(sequence.get());
    adopted.push_back({sequence.get(), loan});
  }
  return adopted;
}

void Choices::Resume(const Adopted& adopted) {
  Sequence* const sequence = adopted.sequence;
  sequence->computed = adopted.loan->computed;
  book_.CommitAdopted(sequence->id,
                      std::span(sequence->tokens).first(static_cast<size_t>(sequence->computed)));
  if (const auto blocks = std::ssize(adopted.loan->below); blocks > 0)
    parking_.CountGift(blocks + std::ssize(adopted.loan->state_below));
  lists_.StartRunning(sequence);
  lists_.CountLeft(*sequence);
}

}  // namespace forebay::engine

// What a replica gives to others that have run out of work, and takes from them.
#include <algorithm>
#include <utility>

#include "engine/replica.h"
#include "schedule/steal.h"

namespace forebay::engine {

int64_t Replica::HeldTokens(const Sequence& sequence) const {
  int64_t sum = 0;
  for (int group = 0; group < book_.num_groups(); ++group) sum += sequence.computed - book_.first_held(group, sequence.slot);
  return sum / book_.num_groups();
}

// A request whose choices all wait takes nothing along; one with a single choice takes its KV.
schedule::HeldView Replica::ViewHeld(const RequestState& state) const {
  schedule::HeldView held;
  for (const auto& sequence : state.sequences) {
    if (sequence->phase == Phase::kFinished) continue;
    // A choice without a bound that has come so far may well come as far again.
    const int64_t room =
        sequence->bounded ? sequence->room() : std::max(sequence->expected_tokens - sequence->known(), sequence->generated());
    held.tokens_left += sequence->known() - sequence->computed + room;
    if (sequence->phase != Phase::kRunning) continue;
    held.kv_tokens += HeldTokens(*sequence);
    held.movable = state.sequences.size() == 1 && !sequence->in_flight;
  }
  return held;
}

std::vector<Gift> Replica::GiveAway(int askers) {
  steal_view_.held.clear();
  steal_view_.askers = askers;
  steal_view_.most = options_.limits.max_num_seqs;
  for (const auto& state : states_) steal_view_.held.push_back(ViewHeld(*state));
  schedule::ChooseGifts(steal_view_, options_.steal, &gifts_);
  held_.clear();
  for (const int32_t index : gifts_) held_.push_back(states_[static_cast<size_t>(index)].get());
  std::vector<Gift> gifts;
  for (RequestState* state : held_) gifts.push_back(Detach(state));
  return gifts;
}

Gift Replica::Detach(RequestState* state) {
  Gift gift{.from = options_.index};
  for (const auto& each : state->sequences) {
    Sequence* const sequence = each.get();
    if (sequence->phase == Phase::kFinished) continue;
    tokens_left_ -= sequence->tokens_left();
    if (sequence->phase == Phase::kRunning) {
      gift.loan = Lend(sequence);
      continue;
    }
    waiting_rows_ -= sequence->expected_rows;
    std::erase(waiting_, sequence);
  }
  const auto held = std::ranges::find_if(states_, [&](const auto& each) { return each.get() == state; });
  gift.state = std::move(*held);
  states_.erase(held);
  return gift;
}

std::shared_ptr<KvLoan> Replica::Lend(Sequence* sequence) {
  auto loan = std::make_shared<KvLoan>();
  loan->replica = rank_in_group_;
  loan->slot = sequence->slot;
  loan->computed = sequence->computed;
  for (int group = 0; group < book_.num_groups(); ++group) {
    const auto table = book_.table(group, sequence->slot);
    loan->tables.emplace_back(table.begin(), table.end());
    loan->first_held.push_back(book_.first_held(group, sequence->slot));
  }
  sequence->slot = -1;
  sequence->sampled_in_slot = false;
  sequence->phase = Phase::kWaiting;
  sequence->computed = 0;
  output_room_ -= sequence->room();
  std::erase(running_, sequence);
  lent_.push_back(loan);
  return loan;
}

void Replica::ReclaimLoans() {
  std::erase_if(lent_, [&](const std::shared_ptr<KvLoan>& loan) {
    const bool over = loan->over.load(std::memory_order_acquire);
    if (over) book_.Close(loan->slot);
    return over;
  });
}

base::Status Replica::Adopt(Gift gift) {
  RequestState* const state = states_.emplace_back(std::move(gift.state)).get();
  taken_.push_back(state->request.line);
  ++stats_.requests_stolen;
  base::Status status;
  for (const auto& sequence : state->sequences) {
    if (sequence->phase == Phase::kFinished) continue;
    const bool fits = gift.loan && running_.size() + lent_.size() < static_cast<size_t>(options_.limits.max_num_seqs) &&
                      book_.available_blocks() > gift.loan->blocks();
    if (fits) {
      status = PullLoan(*gift.loan, sequence.get());
    } else {
      sequence->let_go_digest = 0;
      Enqueue(sequence.get());
    }
  }
  // After an error the device may still read.
  if (gift.loan && status.ok()) gift.loan->over.store(true, std::memory_order_release);
  return status;
}

base::Status Replica::PullLoan(const KvLoan& loan, Sequence* sequence) {
  const auto tokens = std::span(sequence->tokens).first(static_cast<size_t>(loan.computed));
  sequence->slot = book_.Adopt(tokens, options_.prefix_salt, loan.first_held);
  std::vector<Rank::KvMove> moves;
  for (int group = 0; group < book_.num_groups(); ++group) {
    const auto first = static_cast<size_t>(loan.first_held[group] / kv::kBlockTokens);
    moves.push_back({std::span(loan.tables[group]).subspan(first), book_.table(group, sequence->slot).subspan(first)});
  }
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const auto peer = static_cast<int>(static_cast<size_t>(loan.replica) * ranks_.size() + i);
    FB_RETURN_IF_ERROR(ranks_[i]->EnqueueKvPull(peer, moves));
  }
  for (const auto& rank : ranks_) {
    FB_RETURN_IF_ERROR(rank->WaitKvPull(options_.stall_timeout));
    stats_.kv_bytes_stolen += static_cast<int64_t>(rank->kv_pull_bytes());
  }
  book_.CommitAdopted(sequence->slot, tokens);
  sequence->computed = loan.computed;
  sequence->phase = Phase::kRunning;
  running_.push_back(sequence);
  output_room_ += sequence->room();
  tokens_left_ += sequence->tokens_left();
  SetTable(sequence->slot, 0);
  return base::Status::Ok();
}

StepEnd Replica::WaitForLoans() {
  if (lending_until_ < 0) lending_until_ = runtime::DeadlineAfter(runtime_.Now(), options_.stall_timeout);
  if (runtime_.Now() < lending_until_) return StepEnd::kLending;
  return Stall(fmt::format("{} sequences' KV cache was lent to other replicas and is not given back", lent_.size()));
}

}  // namespace forebay::engine

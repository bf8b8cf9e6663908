// The choices of one replica from the request's arrival to its end, and the book of their KV: which
// ones wait, which run, which blocks each holds. It shows them to the policy, takes the policy's
// plan into its books, and commits the rows that the plan's steps computed. It needs no device: the
// replica moves the data.
//
// Invariants:
//  1. A choice waits, runs (and is in the book) or has finished (choice_lists.h).
//  2. A running choice has rows in at most one step in flight.
//  3. A choice that comes back from the tier below runs, but has no rows in the step before which
//     its blocks are filled; they are committed with the next view.
//  4. What is lent stays open in the book, and takes a place, until Reclaim finds it over.
//
// Not thread-safe: the replica's control task calls.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/choices/choice_lists.h"
#include "engine/choices/choices_view.h"
#include "engine/choices/foresight.h"
#include "engine/choices/open_loans.h"
#include "engine/choices/parking.h"
#include "engine/choices/sequence.h"
#include "engine/choices/state_places.h"
#include "engine/choices/streaming.h"
#include "engine/request_queue.h"
#include "engine/steal_board.h"
#include "forebay/engine.h"
#include "kv/book/group_books.h"
#include "schedule/hand_over.h"
#include "schedule/intake.h"
#include "schedule/plan.h"
#include "schedule/steal.h"

namespace forebay::engine {

// Rows of one choice in a step.
struct ChoiceRows {
  Sequence* sequence;
  int64_t begin, end;  // positions
  size_t first_block;  // the first block in its tables that the device does not know yet

  int64_t count() const { return end - begin; }
  bool is_decode() const { return begin >= sequence->prompt_tokens && count() == 1; }
};

// How often a step in flight can be taken again with the same choices, before one of them ends or
// more than `blocks` blocks are taken, or a state is to be kept, where that is at each multiple of
// `state_every`. 0 where one does not decode.
int64_t EqualSteps(std::span<const ChoiceRows> step, const kv::GroupBooks& book, int64_t blocks,
                   int64_t state_every = 0);
// Blocks that are taken if it is taken `steps` times more.
int64_t BlocksTaken(std::span<const ChoiceRows> step, const kv::GroupBooks& book, int64_t steps);

class Choices {
 public:
  using KvDigest = Streaming::KvDigest;
  // Of layers' states in a place, which stand behind so many positions.
  using StateDigest = std::function<uint64_t(int32_t place, int64_t positions)>;
  // `kv_digest`, `state_digest`: empty where nobody asks for digests.
  explicit Choices(const ChoicesOptions& options, KvDigest kv_digest = {},
                   StateDigest state_digest = {});

  // Requests come and go.
  bool WantsRequests() const;  // schedule/intake.h
  // The same of interactive requests, to which batches give way.
  bool WantsInteractive() const;
  // Whether no batch choice is here, of a policy that orders services.
  bool WantsBatch() const {
    return options_.by_service && lists_.batch().running + lists_.batch().waiting == 0;
  }
  // The same of batch requests that are late or will be, to which later deadlines give way.
  bool WantsHurried() const;
  // Batch choices due by then are hurried (schedule/due.h) until the next call; at first none is.
  void Hurry(double until) { view_.Hurry(until); }
  double hurried_until() const { return view_.hurried_until(); }
  // What is left of the batch choices that have deadlines.
  std::vector<schedule::DueWork> Due() const;
  bool idle() const { return lists_.empty() && ended_.empty(); }
  void Take(std::unique_ptr<RequestState> state);
  // Takes a request that a replica which failed has given back: its choices are computed again as
  // far as they came.
  void TakeReturned(std::unique_ptr<RequestState> state);
  // The replica has failed: gives up its requests. Returns those that other replicas go on with,
  // and appends the results of those that have ended to `finished`.
  std::vector<std::unique_ptr<RequestState>> GiveBack(const SequenceContext& context,
                                                      std::vector<RequestResult>* finished);
  // Forgets the requests of which nothing was computed yet (a drain).
  void DropUnstarted();
  // Those that had nothing to compute.
  void DeliverEnded(std::vector<RequestResult>* finished);
  // Ids of the requests that came since the last call.
  std::vector<int64_t> TakeIds() { return std::exchange(ids_, {}); }
  // Gives up requests; each is appended to `finished` when no step of it is in flight any more,
  // here or at a later call, or where the last of those ends.
  void Cancel(const std::function<bool(int64_t id)>& cancelled,
              std::vector<RequestResult>* finished);
  // What the choices of requests that stream have got since the last call.
  std::vector<ChoicePiece> TakePieces() { return std::exchange(pieces_, {}); }
  ReplicaLoad load() const {
    return lists_.load(int64_t{options_.steps_in_flight} * options_.limits.max_num_batched_tokens);
  }

  // A step is planned over a view and taken into the books by Apply, which writes its rows: they
  // are in flight until Commit. `share`: the view has only this step's part of the choices
  // (schedule/step_share.h). REQUIRES of Apply: the plan is of the latest view.
  // `price_factor`: the view's.
  const schedule::StepView& View(bool share, int64_t now_us, double price_factor = 1);
  // Where choices alone come back from below there are no rows.
  void Apply(const schedule::StepPlan& plan, int64_t now_ns, std::vector<ChoiceRows>* rows);
  // What Apply has let go below and called back, until the caller clears it: it moves before the
  // step's rows are computed.
  kv::TierMoves& tier_moves() { return parking_.moves(); }
  // Blocks below that are there from before; at the start.
  void KeepBelow(std::span<const kv::KeptBlock> blocks) { parking_.Keep(blocks); }
  // Before the next view, and before the rows of a step that read from below are committed: blocks
  // there are lost. Choices that came back and lack some, or read them, wait again and are
  // computed; a row of theirs that is in flight is so no more.
  void LoseBelow(const kv::LostBlocks& lost);
  // Those that Apply has called back: the device does not know their tables yet.
  std::span<Sequence* const> returning() const { return parking_.returning(); }
  Streaming& streaming() { return streaming_; }
  // The rows were computed.
  void Commit(const ChoiceRows& rows);
  // The rows of a step in flight become those of a later one, as if it had been taken `steps` more
  // times: each choice has appended `token` so often. REQUIRES: steps <= EqualSteps; choices have
  // no text, penalties or pieces, and nothing is streamed.
  void Advance(std::span<ChoiceRows> step, int64_t steps, int32_t token);
  // The choice's next token was drawn.
  void Append(Sequence* sequence, int32_t token, int64_t now_ns);
  // After its rows were committed and their tokens appended: if the choice has come to its end it
  // is closed, and its request delivered if it was the last. With a request that failed all its
  // choices end, those in other steps when these are committed.
  void CloseIfEnded(const ChoiceRows& rows, std::vector<RequestResult>* finished);

  // Gives up requests for one of `askers` replicas without work, as schedule::ChooseGifts has it.
  std::vector<Gift> GiveAway(int askers);
  // Gives up the requests whose prompts are computed, for generation replicas.
  std::vector<Gift> HandOver();
  schedule::TakerView room() const;  // for requests that are handed over
  // Takes over a request. For each loan that there is room for, its sequence is in the book, with
  // blocks of its own, that the replica is to fill before it calls Resume; the other choices begin,
  // or are computed again.
  struct Adopted {
    Sequence* sequence;
    const kv::KvLoan* loan;
  };
  std::vector<Adopted> Adopt(Gift& gift);
  void Resume(const Adopted& adopted);
  OpenLoans& loans() { return loans_; }
  const OpenLoans& loans() const { return loans_; }

  const kv::GroupBooks& book() const { return book_; }
  const kv::StateBook& state_book() const { return state_places_.book(); }
  size_t num_running() const { return lists_.running().size(); }
  size_t num_waiting() const { return lists_.waiting().size(); }
  // What is counted here; steps and times are the replica's.
  EngineStats stats() const;
  ParkCounters park_counters() const { return parking_.counters(); }

 private:
  // schedule/intake.h, with what all requests take. `view`: the rest.
  bool Wants(schedule::IntakeView view) const;
  void Queue(Sequence* sequence);
  void Preempt(const std::vector<int32_t>& indices);
  // The choice that waits enters the book, and gets what the device's cache has of it. `end`: of
  // the positions that the plan has blocks for.
  void Open(Sequence* sequence, int64_t end, int64_t now_ns);
  // Makes room for what comes back.
  void Return(Sequence* sequence);
  void PlanRows(Sequence* sequence, int64_t rows, size_t first_block,
                std::vector<ChoiceRows>* step);
  void LetGoUnseen(Sequence* sequence);
  void CountRows(const ChoiceRows& rows);
  void Deliver(RequestState* state, std::vector<RequestResult>* finished);
  // What the choice holds.
  void Close(Sequence* sequence);
  // Gives up a choice and what it holds.
  void Drop(Sequence* sequence);
  // Frees what the choice holds in the books of a replica that failed.
  void Leave(Sequence* sequence);
  // Drops the choices of an abandoned request that no step in flight computes.
  void DropLanded(RequestState* state);
  Gift Detach(RequestState* state);

  const ChoicesOptions options_;
  const bool digests_;
  const KvDigest kv_digest_;
  const StateDigest state_digest_;
  Parking parking_;
  kv::GroupBooks book_;
  StatePlaces state_places_;
  ChoiceLists lists_;
  Foresight foresight_;
  Streaming streaming_;
  OpenLoans loans_;
  ChoicesView view_;
  std::vector<std::unique_ptr<RequestState>> states_;
  std::vector<std::unique_ptr<RequestState>> ended_;  // with nothing to compute
  // Given back; the device that failed may still read their parameters.
  std::vector<std::unique_ptr<RequestState>> given_back_;
  std::vector<int64_t> ids_;
  std::vector<ChoicePiece> pieces_;
  EngineStats stats_;
};

}  // namespace forebay::engine

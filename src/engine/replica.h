// The ranks that take a step together, seen as one: a queue of choices, one KV book, one plan a step.
//
// With pipeline stages several steps are in flight, each with choices of its own, so that no stage waits for another one's
// rows: a step reads the weights once, where micro-batches of one step would read them once each. Steps end in the order in
// which they began.
//
// Not thread-safe: one control thread takes requests, steps and finishes. stats() may be read from any thread.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/group_control.h"
#include "engine/rank.h"
#include "engine/request_queue.h"
#include "engine/sequence.h"
#include "engine/steal_board.h"
#include "forebay/engine.h"
#include "kv/book/group_books.h"
#include "schedule/policy.h"
#include "schedule/steal.h"

namespace forebay::engine {

struct ReplicaOptions {
  int index = 0;                // among the job's replicas
  schedule::Limits limits;
  uint64_t seed = 0;            // the job's
  uint64_t prefix_salt = 0;
  bool prefix_caching = true;
  int32_t max_blocks_per_sequence = 0;
  int32_t steps_in_flight = 1;
  std::vector<int32_t> kv_windows = {0};  // of the KV groups; 0: all positions are seen
  schedule::StealPrices steal;
  runtime::TimeNs stall_timeout = runtime::kForever;
};

enum class StepEnd : uint8_t { kIdle, kBegun, kStepped, kLending, kStalled };

class Replica {
 public:
  // `ranks`: one, or the stages' tp ranks one behind the other; the one that samples is the last stage's first.
  Replica(runtime::Runtime& runtime, std::vector<std::unique_ptr<Rank>> ranks, std::unique_ptr<schedule::Policy> policy,
          const ReplicaOptions& options);
  // Waits for the steps in flight: they use what is declared after the ranks.
  ~Replica() { ranks_.clear(); }
  std::span<const std::unique_ptr<Rank>> ranks() const { return ranks_; }

  // True while the next step might admit more than what waits here. What a replica does not need yet is left to others.
  bool WantsRequests() const;
  // Nothing to do until the next request comes.
  bool idle() const { return waiting_.empty() && running_.empty() && finished_at_once_.empty(); }
  void Take(std::unique_ptr<RequestState> state);
  // Forgets the requests of which nothing was computed yet (a drain).
  void DropUnstarted();
  // Between steps.
  ReplicaLoad load() const;
  // Gives up requests for one of `askers` replicas without work, as ChooseGifts has it.
  std::vector<Gift> GiveAway(int askers);
  // Takes over a request; a loan is pulled from the replica's peers and is over then. Errors: the device's, a pull that does
  // not end.
  base::Status Adopt(Gift gift);
  // Takes back the blocks that were lent and are read by nobody any more.
  void ReclaimLoans();

  // Begins a step and commits the oldest one in flight. Requests that came to their end are appended to `finished`.
  // kIdle: nothing runs or waits. kBegun: none was committed, since one more may be begun. kLending: nothing can be begun before
  // a loan is over. kStalled: the policy planned nothing though something waits, or the device did not finish in time, or a
  // loan is not over in time; what_stalled() says so. `record` (null: not wanted) tells of the step that was committed, its times on the
  // runtime's clock.
  StepEnd Step(std::vector<RequestResult>* finished, StepRecord* record);
  const std::string& what_stalled() const { return what_stalled_; }

  // From here on steps are taken as the group has it, in which the replica is `rank`; null: alone.
  void Join(GroupControl* group, int rank) {
    group_ = group;
    rank_in_group_ = rank;
  }
  // Idle in the group: waits for what there is to do, and serves the others' steps. kDone: all have ended.
  base::Result<Turn> StepIdle(bool ended);

  int index() const { return options_.index; }
  int64_t steps() const { return begun_; }
  const schedule::Policy& policy() const { return *policy_; }
  EngineStats stats() const;
  const char* mode() const;

 private:
  // Rows of one sequence in a step.
  struct Work {
    Sequence* sequence;
    int64_t begin, end;   // positions
    size_t first_task;    // its rows of logits are tasks from here to the next Work's first

    bool is_decode() const { return begin >= sequence->prompt_tokens && end - begin == 1; }
  };

  schedule::HeldView ViewHeld(const RequestState& state) const;
  // Of its KV cache, positions that rows still see; the mean of the groups.
  int64_t HeldTokens(const Sequence& sequence) const;
  Gift Detach(RequestState* state);
  std::shared_ptr<KvLoan> Lend(Sequence* sequence);
  base::Status PullLoan(const KvLoan& loan, Sequence* sequence);
  // A step from its plan to its commit.
  struct Flight {
    std::vector<Work> work;
    std::vector<LogitTask> tasks;
    runtime::TimeNs begin = 0;
    StepRecord record;    // what the plan says
  };

  int steps_in_flight() const { return static_cast<int>(begun_ - stats_.steps); }
  // The step's index among those that may be in flight.
  int FlightOf(int64_t step) const { return static_cast<int>(step % static_cast<int64_t>(flights_.size())); }
  Flight& planned() { return flights_[static_cast<size_t>(FlightOf(begun_))]; }
  // False: the policy has nothing to run now. `share`: only this step's part of the choices.
  base::Result<bool> Begin(bool share);
  base::Status Enqueue(Flight& flight);
  StepEnd End(std::vector<RequestResult>* finished, StepRecord* record);
  kv::CachedPrefix FindCached(Sequence* sequence) const;
  void Enqueue(Sequence* sequence);
  void BuildView(bool share);
  schedule::RunningView ViewOf(const Sequence& sequence, bool short_of_blocks) const;
  void ViewWaiting();
  // False for a choice that waits for its sibling's prompt to be committed, and then shares it.
  bool IsReady(const Sequence& sequence) const;
  void Preempt(const std::vector<int32_t>& indices);
  void Admit(Sequence* sequence, int64_t rows);
  void PlanRows(Sequence* sequence, int64_t rows);
  LogitTask MakeTask(Sequence* sequence, int64_t position, bool sample) const;
  void Commit(Flight& flight, std::vector<RequestResult>* finished);
  // Makes `stats_` what stats() gives.
  void Publish();
  const char* StepMode() const;
  void SetTable(kv::SequenceSlot slot, size_t from);
  base::Status WaitStep(int flight);
  uint64_t BytesPulled() const;
  double WaitedSeconds() const;
  void RecordPlan(uint64_t bytes_pulled, Flight* flight) const;
  uint64_t PlanHash(const Flight& flight) const;
  // Of the group's layers on all ranks.
  uint64_t KvDigest(int group, kv::SequenceSlot slot, int64_t begin, int64_t end) const;
  void LetGoUnseen(Sequence* sequence);
  void CountRows(const Work& work);
  void CommitLogits(Flight& flight, const Work& work);
  void AppendToken(Sequence* sequence, LogitTask* task);
  void Finish(Sequence* sequence, std::vector<RequestResult>* finished);
  void Deliver(RequestState* state, std::vector<RequestResult>* finished);
  StepEnd Stall(std::string what);
  StepEnd WaitForLoans();
  static RankLoad LoadOf(const Flight& flight);

  runtime::Runtime& runtime_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  Rank* sampler_;                       // of ranks_
  std::unique_ptr<schedule::Policy> policy_;
  ReplicaOptions options_;
  GroupControl* group_ = nullptr;
  int rank_in_group_ = 0;
  Round round_;                         // of the step that was begun last
  kv::GroupBooks book_;

  std::vector<std::unique_ptr<RequestState>> states_;
  std::deque<Sequence*> waiting_;       // in the order of admission; preempted ones at the front
  std::vector<Sequence*> running_;      // ascending admission
  std::vector<std::unique_ptr<RequestState>> finished_at_once_;
  std::vector<int64_t> taken_;          // lines, since the last step

  std::vector<Flight> flights_;         // used in turns
  int64_t begun_ = 0;                   // steps, of which stats_.steps were committed
  runtime::TimeNs last_end_ = 0;        // of the last step that was committed

  // Of the step that is planned; kept for their capacity.
  schedule::StepView view_;
  std::vector<Sequence*> running_in_view_;
  std::vector<Sequence*> waiting_in_view_;
  schedule::StepPlan plan_;
  std::vector<std::pair<Sequence*, int64_t>> planned_;  // and rows
  std::vector<Rank*> pending_;          // not at the step's end

  double waited_before_ = 0;            // when the last step was committed
  std::string what_stalled_;
  EngineStats stats_;                   // the control thread's; `published_` is a copy, made once a step
  int64_t output_room_ = 0;             // tokens that the running choices may still generate
  int64_t waiting_rows_ = 0;            // sum of the waiting choices' expected rows
  int64_t tokens_left_ = 0;             // sum over all choices
  int64_t finished_choices_ = 0, finished_tokens_ = 0;
  std::vector<std::shared_ptr<KvLoan>> lent_;  // their blocks and places are taken
  runtime::TimeNs lending_until_ = -1;         // when waiting for them becomes a stall; -1: nothing waits for them
  std::vector<RequestState*> held_;     // by index in GiveAway's view
  schedule::StealView steal_view_;
  std::vector<int32_t> gifts_;
  mutable std::mutex published_mutex_;
  EngineStats published_;
  const char* published_mode_ = "local";
};

}  // namespace forebay::engine

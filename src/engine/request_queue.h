// The job's requests and results, shared by the replicas that pull from it.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "engine/choices/sequence.h"
#include "forebay/engine.h"
#include "runtime/runtime.h"
#include "schedule/hand_out.h"
#include "schedule/policy.h"

namespace forebay::engine {

struct TakenRequest {
  Request request;
  int64_t expected_output = 0;  // tokens of a choice, where the request does not bound them
  // A request that a replica which failed has given back, in place of `request`; else null.
  std::unique_ptr<RequestState> returned;
};

// What a replica holds and still has to compute, as far as is known.
struct ReplicaLoad {
  int64_t tokens = 0, choices = 0, interactive = 0;  // the last: of the choices
  int64_t step_tokens = 0;  // the part of `tokens` that its steps in flight compute
  // tokens that one choice has yet to generate, of those that are bounded
  int64_t longest_output = 0;
  bool full = false;            // it takes no requests now
  bool full_of_people = false;  // nor interactive ones, for which batches give way
};

// Which requests each replica took before which of its steps: a run's hand-out, to be replayed by
// another.
struct HandOutLog {
  struct Taking {
    int64_t step, id;
  };
  std::vector<std::vector<Taking>> replicas;  // ascending steps
};
HandOutLog LogHandOut(std::span<const StepRecord> steps, int replicas);

// Any replica's control task may call; no lock is held where a task can be switched.
//
// Reads ahead of the replicas, so that at the job's end it has all that remains and the policy may
// choose from it. Of a source that is in_order() it hands out first what came first, to the end.
// Under a policy that orders services interactive requests come first, then batches by deadline;
// of each it reads ahead, however many of the other wait.
class RequestQueue {
 public:
  // Tokens of prompts that it reads ahead at most, of each service: 16 MiB.
  static constexpr int64_t kMostPromptTokensAhead = 4 << 20;

  // `most_ahead`: requests that it reads ahead, of each service.
  // `replay`: requests go to whom it says, whatever the policy; null: as the policy has it.
  // `choices_ahead`: counts the choices of all requests that are here; null: nobody asks. Both
  // outlive the queue.
  RequestQueue(runtime::Runtime& runtime, int replicas, size_t most_ahead, RequestSource& source,
               ResultSink& sink, const HandOutLog* replay = nullptr,
               std::atomic<int64_t>* choices_ahead = nullptr);

  // The next request for a replica before its `step`, or nothing: none is ready, the policy leaves
  // it to others, or the job has no more for it (ended()). Blocks only if `wait`, where the replica
  // holds nothing.
  // `due_by`: batch requests that are due later stay, since there is no room for them.
  std::optional<TakenRequest> Next(int replica, int64_t step, const schedule::Policy& policy,
                                   bool wait, double due_by = schedule::kNoDeadline);
  // The first batch request though people are ahead of it, for a replica that holds none: batches
  // never stand still. Nothing where nobody is ahead of it. Does not block.
  std::optional<TakenRequest> NextBatch(int replica);
  // A replica's part of the batch requests with deadlines that nobody has taken: of those read
  // ahead, and where they do not come over time, of the others as if all had the latest deadline
  // that was read.
  std::vector<schedule::DueWork> Due();
  bool ended(int replica) const {
    return replay_ ? replayed_[replica] == replay_->replicas[replica].size()
                   : ended_ && num_returned_ == 0;
  }
  // Requests of a replica that has failed, -1: of one that has left. Others take them before new
  // ones, but people before those of a batch.
  void Return(int replica, std::vector<std::unique_ptr<RequestState>> requests);
  // After the run: what nobody has taken of them.
  std::vector<std::unique_ptr<RequestState>> TakeReturned();
  // Takes cancelled requests out of what was read ahead, and counts them as taken by the replica.
  // Never waits for the source. A replay hands out all requests of its log.
  std::vector<int64_t> Withdraw(int replica, const std::function<bool(int64_t id)>& cancelled);
  // False: a result could not be kept; the job is to stop.
  bool Finish(int replica, RequestResult result);
  void Progress(ChoicePiece piece);
  bool sink_failed() const { return sink_failed_; }
  // The replica takes nothing any more, or never does: the others share what remains.
  void Leave(int replica);
  // A request that one replica has taken is another's now.
  void Move(int from, int to);
  // For the policy.
  void SetLoad(int replica, const ReplicaLoad& load) {
    held_tokens_[replica] = load.tokens;
    left_tokens_[replica] = load.tokens - load.step_tokens;
    held_interactive_[replica] = load.interactive;
    full_[replica] = load.full;
    full_of_people_[replica] = load.full_of_people;
    loads_[replica] = load;
  }

 private:
  struct Ahead {
    Request request;
    schedule::LengthView length;
    double tokens;  // expected
  };

  // The source is called by one task at a time, which may block there.
  bool TakeTurn(bool wait);
  void EndTurn();
  void ReadAhead(bool wait);
  bool ReadOne(bool wait);
  // What was read, where its service and deadline have it.
  void Insert(Request request);
  size_t first_batch() const;  // of ahead_
  // For one more to be read ahead.
  bool HasRoom(Service service) const;
  bool interactive_next() const {
    return !ahead_.empty() && ahead_.front().request.service == Service::kInteractive;
  }
  // Whether the next one may be taken where there is no room for batches due after `due_by`.
  bool NextIsDue(double due_by) const {
    return due_by == schedule::kNoDeadline || interactive_next() ||
           (!last_ && !ahead_.empty() && ahead_.front().request.deadline_seconds <= due_by);
  }
  // Tokens of what nobody has read, by the mean of what was; 0: it is not known.
  double UnreadTokens() const;
  size_t num_ahead() const { return last_ ? static_cast<size_t>(last_->left()) : ahead_.size(); }
  // Out of ahead_, where it keeps its place when that is dealt.
  TakenRequest TakeAt(size_t index);
  std::optional<TakenRequest> Replay(int replica, int64_t step);
  // The first that was given back, in the policy's order; null: there is none. It stays where it is
  // as long as the caller has the turn.
  const RequestState* FirstReturned();
  // The same where it is next: under a policy that orders services people who are read ahead come
  // before a batch's, and a batch's that is due after `due_by` stays.
  const RequestState* ReturnedIfNext(double due_by);
  TakenRequest TakeReturned(const RequestState* which);
  // `returned`: what is next; null: it is the first of what is read ahead.
  schedule::QueueView View(int replica, const RequestState* returned);
  double LeastHeldByOthers(int replica) const;
  int64_t FewestInteractiveOfOthers(int replica) const;
  // Negative: it has left.
  double HeldTokens(int replica, bool after_its_steps) const;
  std::optional<TakenRequest> Take(int replica, schedule::Taking taking);
  // Deals out the last requests. REQUIRES: ahead_ has them all. `asks`: the replica that asks.
  void Deal(int asks);
  double MeanOutput() const;
  void CountAhead(int64_t choices) {
    if (choices_ahead_ != nullptr) *choices_ahead_ += choices;
  }

  RequestSource& source_;
  ResultSink& sink_;
  const size_t most_ahead_;
  const HandOutLog* const replay_;
  std::atomic<int64_t>* const choices_ahead_;
  std::vector<size_t> replayed_;  // by replica, each its own: takings of the log
  std::mutex mutex_;
  bool taken_ = false, blocked_ = false;  // somebody is in the source; and waits there
  std::unique_ptr<runtime::Event> free_;
  std::atomic<bool> ended_{false};
  std::deque<std::unique_ptr<RequestState>> returned_;  // REQUIRE the lock
  std::atomic<int64_t> num_returned_{0}, returned_tokens_{0};

  // For whoever has the turn.
  bool by_service_ = false;  // the policy's
  std::deque<Ahead> ahead_;
  std::optional<schedule::LastRequests> last_;                  // at the job's end: of ahead_
  std::array<int64_t, kNumServices> prompt_tokens_ahead_ = {};  // by service
  double tokens_ahead_ = 0;                                     // expected
  double tokens_read_ = 0;                                      // expected, of all requests so far
  int64_t requests_read_ = 0;

  // By replica; held_tokens_ is -1 of one that has left. left_tokens_: after its steps.
  std::vector<std::atomic<int64_t>> held_, held_tokens_, left_tokens_, held_interactive_;
  std::vector<std::atomic<bool>> full_, full_of_people_;
  std::vector<ReplicaLoad> loads_;                      // by replica, each its own
  std::atomic<int> replicas_;                           // that take requests
  std::atomic<int64_t> output_tokens_{0}, choices_{0};  // those of results
  std::mutex sink_mutex_;
  std::atomic<bool> sink_failed_{false};
};

}  // namespace forebay::engine

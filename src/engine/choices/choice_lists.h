// Which choices of a replica wait and which run, and sums over them that are asked for at each
// step. Whoever changes what a choice has computed or generated tells it here.
//
// Not thread-safe: the replica's control task calls.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "engine/choices/sequence.h"
#include "engine/request_queue.h"

namespace forebay::engine {

class ChoiceLists {
 public:
  // `by_service`: interactive choices come first, then batches by their deadlines.
  explicit ChoiceLists(bool by_service = false) : by_service_(by_service) {}

  // In the order of admission; preempted ones at the front, by service of those of their deadline.
  const std::deque<Sequence*>& waiting() const { return waiting_; }
  const std::vector<Sequence*>& running() const { return running_; }  // ascending admission
  bool empty() const { return waiting_.empty() && running_.empty(); }
  // Sum of the waiting choices' expected rows.
  int64_t waiting_rows() const { return batch_.waiting_rows + interactive_.waiting_rows; }
  // Of interactive choices.
  struct Count {
    int64_t running = 0, waiting = 0, waiting_rows = 0;
  };
  const Count& interactive() const { return interactive_; }
  // Tokens that the running choices may still generate.
  int64_t output_room() const { return output_room_; }
  // `step_rows`: the most that its steps have.
  ReplicaLoad load(int64_t step_rows) const;

  // A choice comes, and waits: `expected_rows` of it are to be computed.
  void Queue(Sequence* sequence, int64_t expected_rows);
  // The choice that waited leaves the queue, to run or for good.
  void LeaveQueue(Sequence* sequence);
  // The choice is in the book.
  void StartRunning(Sequence* sequence);
  // The choice is about to leave the book, or has come to its end.
  void StopRunning(Sequence* sequence);
  // Preempted choices wait before all others, the one preempted last first.
  void QueuePreempted(std::span<Sequence* const> preempted);
  // A running choice has `tokens` more tokens.
  void CountTokens(int64_t tokens) { output_room_ -= tokens; }
  // The choices have `tokens` fewer to compute, since these were computed or the choice leaves.
  void CountDone(int64_t tokens) { tokens_left_ -= tokens; }
  // The choice arrives or returns, with its tokens that are left to compute.
  void CountLeft(const Sequence& sequence) { tokens_left_ += sequence.tokens_left(); }

 private:
  Count& CountOf(const Sequence& sequence);
  // Whether `a` comes before `b`, whenever they came.
  bool Before(const Sequence& a, const Sequence& b) const;

  bool by_service_;
  std::deque<Sequence*> waiting_;
  std::vector<Sequence*> running_;
  int64_t output_room_ = 0;
  Count batch_, interactive_;
  int64_t tokens_left_ = 0;  // sum over all choices
};

}  // namespace forebay::engine

// One run of the engine, as its groups see it: the job's queue, and whom results and records go to.
// Any replica's control task may call.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "engine/choices/cancellations.h"
#include "engine/hand_over_board.h"
#include "engine/replica.h"
#include "engine/request_queue.h"
#include "forebay/engine.h"

namespace forebay::engine {

class EngineRun {
 public:
  // `most_ahead`, `replay`, `choices_ahead`: RequestQueue's. `observer`: null, nobody.
  // `first_result_seconds` is set once. All outlive the run.
  struct Parts {
    int replicas = 1;
    size_t most_ahead = 0;
    RequestSource& source;
    ResultSink& sink;
    RunControl& control;
    const HandOutLog* replay = nullptr;
    std::atomic<int64_t>& choices_ahead;
    Cancellations& cancellations;
    const std::atomic<uint64_t>& prefix_salt;  // of keys of requests that are taken now
    const ModelFacts& facts;
    const SequenceContext& context;
    StepObserver* observer = nullptr;
    std::atomic<double>& first_result_seconds;
    HandOverBoard* hand_over = nullptr;  // null: all groups have all of a request's life
    runtime::TimeNs start = 0;           // when Engine::Run began
  };
  EngineRun(runtime::Runtime& runtime, const Parts& parts);

  RequestQueue& queue() { return queue_; }
  // REQUIRES: the job's groups have roles.
  HandOverBoard& hand_over() { return *parts_.hand_over; }
  bool draining() const { return parts_.control.drain; }
  // The run cannot go on, or is not to: replicas end at their step's border.
  bool stopped() const { return parts_.control.abort || stop_; }
  void Stop() { stop_ = true; }

  // Takes requests until the replica has enough for its next step, or none is ready. `wait`: blocks
  // for one while the replica has nothing to do.
  void TakeRequests(Replica& replica, bool wait);
  // The replica has failed: what it holds goes to others, `gifts` to it too.
  void GiveBack(Replica& replica, std::vector<Gift> gifts);
  // The same for gifts to a replica that has left.
  void GiveBack(int replica, std::vector<Gift> gifts);
  // After the run: requests of failed replicas that no other replica took over.
  std::vector<std::unique_ptr<RequestState>> TakeReturned();
  // Whether the job has nothing more for the replica, except what its group's replicas may give.
  bool ended(const Replica& replica) const;
  // Ends what was cancelled, wherever the replica has it. False: a result could not be kept.
  bool Cancel(Replica& replica);
  // Hands over pieces and what has finished. False: a result could not be kept.
  bool Deliver(Replica& replica, std::vector<RequestResult>* finished);
  bool observed() const { return parts_.observer != nullptr; }
  void Observe(StepRecord record);

 private:
  runtime::Runtime& runtime_;
  const Parts parts_;
  RequestQueue queue_;
  std::atomic<bool> stop_{false};
  std::mutex observer_mutex_;
};

}  // namespace forebay::engine

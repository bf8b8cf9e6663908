// The job's requests and results, shared by the replicas that pull from it.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "forebay/engine.h"
#include "runtime/runtime.h"
#include "schedule/policy.h"

namespace forebay::engine {

// Any replica's control task may call; no lock is held where a task can be switched.
class RequestQueue {
 public:
  RequestQueue(runtime::Runtime& runtime, int replicas, RequestSource& source, ResultSink& sink);

  // The next request for a replica, or nothing: none is ready, the policy leaves it to others, or the job has no more
  // (ended()). Blocks only if `wait`, where the replica holds nothing.
  std::optional<Request> Next(int replica, const schedule::Policy& policy, bool wait);
  bool ended() const { return ended_; }
  // False: a result could not be kept; the job is to stop.
  bool Finish(int replica, RequestResult result);
  bool sink_failed() const { return sink_failed_; }

 private:
  // The source is called by one task at a time, which may block there.
  bool TakeTurn(bool wait);
  void EndTurn();

  bool MayTake(int replica, const schedule::Policy& policy) const;

  RequestSource& source_;
  ResultSink& sink_;
  std::mutex mutex_;
  bool taken_ = false, blocked_ = false;  // somebody is in the source; and waits there
  std::unique_ptr<runtime::Event> free_;
  std::atomic<bool> ended_{false};
  std::vector<std::atomic<int64_t>> held_;  // by replica: taken and not finished
  std::mutex sink_mutex_;
  std::atomic<bool> sink_failed_{false};
};

}  // namespace forebay::engine

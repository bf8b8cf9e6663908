// Requests of many callers over one engine, for as long as the session is open: what an interactive
// front (Python, a server) stands on. A job with files has job.h.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "forebay/engine.h"
#include "job/traffic/request_metrics.h"
#include "runtime/runtime.h"

namespace forebay::job {

inline constexpr base::ErrorCode kSessionClosed{"session_closed"};

// The session ended before the request: it has no answer, and another engine may give it one.
bool EndedBySession(const std::string& error_code);

// A piece of one of a request's choices, or the request's end.
struct Delivery {
  int64_t tag = 0;                      // as the request was submitted
  ChoicePiece piece;                    // where there is no result
  std::optional<RequestResult> result;  // the request's last delivery
};

// Where a caller's deliveries wait for it, in the order of their coming. Any thread may call.
class Inbox {
 public:
  explicit Inbox(runtime::Runtime& runtime) : some_(runtime.NewEvent("deliveries")) {}
  ~Inbox();

  // Are there `least`? Blocks while there are fewer, until `timeout` has passed. Who needs many at
  // once asks for them, and is not woken for each. Another's Wait or Take may end it early.
  bool Wait(runtime::TimeNs timeout, size_t least);
  // All that is there, after a Wait.
  std::vector<Delivery> Take(runtime::TimeNs timeout, size_t least = 1);
  // A descriptor that can be read while something may be there; -1: the system has none left. The
  // inbox' own.
  int descriptor();

 private:
  friend class Session;
  void Put(Delivery delivery);

  std::unique_ptr<runtime::Event> some_;
  std::mutex mutex_;  // guards what follows
  std::vector<Delivery> deliveries_;
  size_t wanted_ = 1;  // so many set some_
  int descriptor_ = -1;
};

// Any thread may call. Each request that was submitted gets one end, whatever happens: its result,
// `request_cancelled`, `session_closed`, or, where all replicas have failed, `group_failed`.
class Session : private RequestSource, private ResultSink {
 public:
  struct Submitted {
    Request request;  // its id is the session's business
    int64_t tag = 0;  // the caller's name for it
  };

  // Runs the engine in a task of its own. Both must outlive the session.
  Session(runtime::Runtime& runtime, Engine& engine);
  ~Session() override;

  // Returns the ids, for Cancel.
  std::vector<int64_t> Submit(std::vector<Submitted> requests, const std::shared_ptr<Inbox>& inbox);
  // Gives up a request at the next step's border; nothing where it has ended.
  void Cancel(int64_t id);
  // Gives up everything and ends the task. What is submitted afterwards ends at once.
  void Close();
  // Choices of requests that the engine has not asked for.
  int64_t num_waiting() const;
  // What the requests took that have ended.
  RequestMetrics metrics() const;
  // False: closed, or the engine cannot go on.
  bool open() const { return !closed_; }
  // All replicas have failed.
  bool failed() const { return failed_; }

 private:
  struct Entry {
    std::shared_ptr<Inbox> inbox;
    int64_t tag;
    RequestAsked asked;
  };

  std::optional<Request> Next(bool wait) override;
  std::optional<Request> NextOf(Service service) override;
  // Out of waiting_. REQUIRES: the lock.
  std::optional<Request> TakeFirst(std::deque<Request>* waiting);
  bool ended() const override { return closed_; }
  bool Finish(RequestResult result) override;
  void Progress(ChoicePiece piece) override;
  void Run();
  // Everything that has not ended does so now.
  void EndAll();

  runtime::Runtime& runtime_;
  Engine& engine_;
  RunControl control_;
  const std::unique_ptr<runtime::Event> some_;  // to read, or to notice
  std::atomic<bool> closed_{false}, failed_{false};
  mutable std::mutex mutex_;  // guards what follows
  int64_t next_id_ = 0;
  // Not the engine's yet, by service.
  std::array<std::deque<Request>, kNumServices> waiting_;
  std::unordered_map<int64_t, Entry> entries_;  // by id, without an end yet
  RequestMetrics metrics_;
  std::unique_ptr<runtime::Task> task_;
};

}  // namespace forebay::job

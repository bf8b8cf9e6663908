// A run whose requests come over time: what stands between an engine and the source and sink of a
// job, so that each request is released when it has arrived and a place is free.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "forebay/engine.h"
#include "job/traffic/arrivals.h"
#include "job/traffic/latency.h"
#include "runtime/runtime.h"

namespace forebay::job {

// A request that finds all places taken arrives when one is free: who sends it waits for that,
// however late the engine asks for it. It keeps no request back that the source has given, and
// measures each from its arrival to its result.
class TimedSource final : public RequestSource, public ResultSink {
 public:
  // Times count from here. All must outlive it. `each_token`: when each token came is measured too,
  // for which every request streams; it takes time of the control task.
  TimedSource(runtime::Runtime& runtime, RequestSource& source, ResultSink& sink, Arrivals arrivals,
              const RunControl& control, bool each_token = false);

  std::optional<Request> Next(bool wait) override;
  bool ended() const override { return Ending() || source_.ended(); }
  int64_t remaining() const override { return source_.remaining(); }
  bool in_order() const override { return arrivals_.any(); }
  // When the next request arrives; kForever where that hangs on a result, or none is left.
  runtime::TimeNs due() const { return ended() ? runtime::kForever : Due(); }

  bool Finish(RequestResult result) override;
  void Progress(ChoicePiece piece) override;

  // REQUIRES: the run has just ended.
  Latencies latencies() const;

 private:
  bool Ending() const { return control_.drain || control_.abort; }
  // Of one that is left.
  runtime::TimeNs Due() const;
  // Requests that came by then and that the engine has not asked for. REQUIRES: the lock.
  int64_t Unasked(double seconds) const;
  // All places were taken once: the next request needs one that came free. REQUIRES: the lock.
  bool WaitsForPlace() const {
    return arrivals_.max_concurrency > 0 &&
           given_ >= static_cast<size_t>(arrivals_.max_concurrency);
  }
  double Seconds(runtime::TimeNs time) const { return runtime::SecondsOf(time - start_); }

  runtime::Runtime& runtime_;
  RequestSource& source_;
  ResultSink& sink_;
  const Arrivals arrivals_;
  const RunControl& control_;
  const runtime::TimeNs start_;
  const bool each_token_;
  const std::unique_ptr<runtime::Event> freed_;  // a place was

  // A request without a result.
  struct Underway {
    runtime::TimeNs arrival;
    // Where each token is measured: tokens of its prompts until the first one comes, then 0; and
    // when the last one came, by choice.
    int64_t prompt_tokens = 0;
    std::vector<double> last_token;
    double deadline;  // seconds since the run's begin
  };

  mutable std::mutex mutex_;  // guards what is below
  size_t given_ = 0;
  std::unordered_map<int64_t, Underway> arrived_;  // by id
  // When places came free that nobody has taken again, where their number is bounded.
  std::deque<runtime::TimeNs> free_since_;
  std::vector<RequestTimes> times_;
  DurationBook between_tokens_;
  PeakBook peak_1s_{1}, peak_10s_{10};
  TokenBook tokens_;
};

}  // namespace forebay::job

// Two streams of requests on one engine: people's, and a batch beside them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "forebay/engine.h"
#include "job/traffic/timed_source.h"
#include "runtime/runtime.h"

namespace forebay::job {

// What the requests of one stream came to.
struct StreamTokens {
  int64_t requests = 0, prompt = 0, output = 0;  // of results without an error
  double end_seconds = 0;                        // since the run's begin: the last result

  double PerSecond(int64_t tokens) const {
    return end_seconds > 0 ? static_cast<double>(tokens) / end_seconds : 0;
  }
};

// Gives what came first, or of the service that a queue asks for. Each stream measures
// its own requests.
class MixedSource final : public RequestSource, public ResultSink {
 public:
  // Requests from id `first_batch_id` on are the batch's. All must outlive it; times count from
  // here.
  MixedSource(runtime::Runtime& runtime, TimedSource& interactive, TimedSource& batch,
              int64_t first_batch_id);

  std::optional<Request> Next(bool wait) override;
  std::optional<Request> NextOf(Service service) override;
  bool ended() const override { return interactive_.ended() && batch_.ended(); }
  int64_t remaining() const override { return interactive_.remaining() + batch_.remaining(); }
  bool in_order() const override { return true; }

  bool Finish(RequestResult result) override;
  void Progress(ChoicePiece piece) override;

  // REQUIRES: the run has ended.
  const StreamTokens& interactive_tokens() const { return interactive_tokens_; }
  const StreamTokens& batch_tokens() const { return batch_tokens_; }

 private:
  TimedSource& StreamOf(int64_t id) { return id < first_batch_id_ ? interactive_ : batch_; }

  runtime::Runtime& runtime_;
  TimedSource& interactive_;
  TimedSource& batch_;
  const int64_t first_batch_id_;
  const runtime::TimeNs start_;
  const std::unique_ptr<runtime::Event> finished_;  // a request did: the next may come
  std::mutex mutex_;                                // guards what is below
  StreamTokens interactive_tokens_, batch_tokens_;
};

}  // namespace forebay::job

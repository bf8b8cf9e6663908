#include "job/timed_source.h"

#include <algorithm>
#include <utility>

namespace forebay::job {
namespace {

// How long a blocked call may take to notice that the run ends.
constexpr runtime::TimeNs kGlance = 50'000'000;

}  // namespace

TimedSource::TimedSource(runtime::Runtime& runtime, RequestSource& source, ResultSink& sink,
                         Arrivals arrivals, const RunControl& control)
    : runtime_(runtime),
      source_(source),
      sink_(sink),
      arrivals_(std::move(arrivals)),
      control_(control),
      start_(runtime.Now()),
      freed_(runtime.NewEvent("a place for the next request")),
      free_since_(start_) {}

runtime::TimeNs TimedSource::Due() const {
  const std::lock_guard lock(mutex_);
  if (arrivals_.max_concurrency > 0 &&
      static_cast<int64_t>(arrived_.size()) >= arrivals_.max_concurrency)
    return runtime::kForever;
  if (given_ >= arrivals_.seconds.size()) return free_since_;
  const runtime::TimeNs arrival =
      start_ + static_cast<runtime::TimeNs>(arrivals_.seconds[given_] * 1e9);
  return std::max(arrival, free_since_);
}

std::optional<Request> TimedSource::Next(bool wait) {
  while (!ended()) {
    freed_->Reset();
    const runtime::TimeNs due = Due(), now = runtime_.Now();
    // A source that has nothing left says so only to who asks for one more.
    if (due <= now || source_.remaining() == 0) {
      std::optional<Request> request = source_.Next(wait);
      if (!request) return request;
      const std::lock_guard lock(mutex_);
      ++given_;
      arrived_.emplace(request->id, std::min(due, now));
      return request;
    }
    if (!wait) return std::nullopt;
    freed_->Wait(due == runtime::kForever ? kGlance : std::min(due - now, kGlance));
  }
  return std::nullopt;
}

bool TimedSource::Finish(RequestResult result) {
  const runtime::TimeNs now = runtime_.Now();
  {
    const std::lock_guard lock(mutex_);
    const auto found = arrived_.find(result.id);
    const runtime::TimeNs arrival = found->second;
    if (static_cast<int64_t>(arrived_.size()) == arrivals_.max_concurrency) free_since_ = now;
    arrived_.erase(found);
    if (result.error_message.empty()) {
      int64_t longest = 0;
      for (const Choice& choice : result.choices)
        longest = std::max(longest, static_cast<int64_t>(choice.tokens.size()));
      book_.Add(Seconds(arrival), result.first_token_ns < 0 ? -1 : Seconds(result.first_token_ns),
                Seconds(now), longest);
    }
  }
  freed_->Set();
  return sink_.Finish(std::move(result));
}

}  // namespace forebay::job

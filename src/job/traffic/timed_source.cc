#include "job/traffic/timed_source.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace forebay::job {

TimedSource::TimedSource(runtime::Runtime& runtime, RequestSource& source, ResultSink& sink,
                         Arrivals arrivals, const RunControl& control, bool each_token)
    : runtime_(runtime),
      source_(source),
      sink_(sink),
      arrivals_(std::move(arrivals)),
      control_(control),
      start_(runtime.Now()),
      each_token_(each_token),
      freed_(runtime.NewEvent("a place for the next request")) {}

runtime::TimeNs TimedSource::Due() const {
  const std::lock_guard lock(mutex_);
  const bool waits = WaitsForPlace();
  if (waits && free_since_.empty()) return runtime::kForever;
  const runtime::TimeNs free = waits ? free_since_.front() : start_;
  if (given_ >= arrivals_.seconds.size()) return free;
  const runtime::TimeNs arrival =
      start_ + static_cast<runtime::TimeNs>(arrivals_.seconds[given_] * 1e9);
  return std::max(arrival, free);
}

int64_t TimedSource::Unasked(double seconds) const {
  // Of a source that cannot say what is left nobody knows.
  int64_t count = std::max<int64_t>(0, source_.remaining());
  if (!arrivals_.seconds.empty()) {
    const std::vector<double>& all = arrivals_.seconds;
    const auto next = all.begin() + static_cast<std::ptrdiff_t>(std::min(given_, all.size()));
    count = std::min(count, std::upper_bound(next, all.end(), seconds) - next);
  }
  if (arrivals_.max_concurrency > 0)
    count = std::min(count, arrivals_.max_concurrency - std::ssize(arrived_));
  return count;
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
      if (WaitsForPlace() && !free_since_.empty()) free_since_.pop_front();
      ++given_;
      int64_t prompt_tokens = 0;
      for (const auto& prompt : request->prompts) prompt_tokens += std::ssize(prompt);
      arrived_.emplace(request->id,
                       Underway{std::min(due, now), prompt_tokens, {}, request->deadline_seconds});
      if (each_token_) request->stream = true;
      return request;
    }
    if (!wait) return std::nullopt;
    freed_->Wait(due == runtime::kForever ? runtime::kGlance
                                          : std::min(due - now, runtime::kGlance));
  }
  return std::nullopt;
}

bool TimedSource::Finish(RequestResult result) {
  const runtime::TimeNs now = runtime_.Now();
  {
    const std::lock_guard lock(mutex_);
    const auto found = arrived_.find(result.id);
    const runtime::TimeNs arrival = found->second.arrival;
    const double deadline = found->second.deadline;
    if (arrivals_.max_concurrency > 0) free_since_.push_back(now);
    arrived_.erase(found);
    if (result.error_message.empty()) {
      int64_t longest = 0;
      for (const Choice& choice : result.choices)
        longest = std::max(longest, static_cast<int64_t>(choice.tokens.size()));
      times_.push_back(
          {.arrival = Seconds(arrival),
           .first_token = result.first_token_ns < 0 ? -1 : Seconds(result.first_token_ns),
           .end = Seconds(now),
           .longest = longest,
           .deadline = deadline});
    }
  }
  freed_->Set();
  return sink_.Finish(std::move(result));
}

void TimedSource::Progress(ChoicePiece piece) {
  if (each_token_) {
    const double now = Seconds(runtime_.Now());
    const auto choice = static_cast<size_t>(piece.choice);
    const auto tokens = static_cast<int64_t>(piece.tokens.size());
    const std::lock_guard lock(mutex_);
    const auto found = arrived_.find(piece.id);
    FB_CHECK(found != arrived_.end(), "request {} got a token after its result", piece.id);
    std::vector<double>& last = found->second.last_token;
    if (last.size() <= choice) last.resize(choice + 1, -1);
    if (last[choice] >= 0) between_tokens_.Add(now - last[choice]);
    last[choice] = now;
    peak_1s_.Add(now, tokens);
    peak_10s_.Add(now, tokens);
    tokens_.Add(now, std::exchange(found->second.prompt_tokens, 0), tokens);
  }
  sink_.Progress(std::move(piece));
}

Latencies TimedSource::latencies() const {
  const std::lock_guard lock(mutex_);
  const double now = Seconds(runtime_.Now());
  Latencies latencies = Summarize(times_);
  latencies.unfinished = std::ssize(arrived_) + Unasked(now);
  latencies.tokens = {.any = each_token_,
                      .between = between_tokens_.Summarize(),
                      .peak_1s = peak_1s_.per_second(),
                      .peak_10s = peak_10s_.per_second()};
  const SteadyWindow steady = SteadyWindowOf(now, Ending());
  if (!each_token_ || steady.end <= steady.begin) return latencies;
  const TokenBook::Tokens tokens = tokens_.Within(steady);
  latencies.tokens.steady = steady;
  latencies.tokens.steady_prompt = tokens.prompt / (steady.end - steady.begin);
  latencies.tokens.steady_output = tokens.output / (steady.end - steady.begin);
  return latencies;
}

}  // namespace forebay::job

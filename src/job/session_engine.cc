#include "job/session_engine.h"

#include <utility>
#include <vector>

namespace forebay::job {

SessionEngine::SessionEngine(runtime::Runtime& runtime, Session& session, Engine& engine,
                             size_t most_under_way)
    : runtime_(runtime), session_(session), engine_(engine), most_under_way_(most_under_way) {}

RunEnd SessionEngine::Run(RequestSource& source, ResultSink& sink, RunControl& control) {
  const auto inbox = std::make_shared<Inbox>(runtime_);
  bool kept = true, given_up = false;
  const auto goes_on = [&] { return kept && !control.abort && session_.open(); };
  for (;;) {
    while (goes_on() && !source.ended() && num_under_way() < most_under_way_) {
      std::optional<Request> request = source.Next(num_under_way() == 0);
      if (!request) break;
      Submit(std::move(*request), inbox);
    }
    if (num_under_way() == 0 && (source.ended() || !goes_on())) break;
    if (!goes_on() && !std::exchange(given_up, true)) CancelAll();
    for (Delivery& delivery : inbox->Take(runtime::kGlance)) {
      if (!delivery.result) {
        delivery.piece.id = delivery.tag;
        sink.Progress(std::move(delivery.piece));
        continue;
      }
      {
        const std::lock_guard lock(mutex_);
        under_way_.erase(delivery.tag);
      }
      RequestResult& result = *delivery.result;
      result.id = delivery.tag;
      const bool dropped = result.error_code == kSessionClosed.name ||
                           (given_up && result.error_code == "request_cancelled");
      if (kept && !dropped) kept = sink.Finish(std::move(result));
    }
  }
  if (!kept) return RunEnd::kSinkFailed;
  if (control.abort || !session_.open()) return RunEnd::kAborted;
  return control.drain ? RunEnd::kDrained : RunEnd::kComplete;
}

size_t SessionEngine::num_under_way() const {
  const std::lock_guard lock(mutex_);
  return under_way_.size();
}

void SessionEngine::Submit(Request request, const std::shared_ptr<Inbox>& inbox) {
  const int64_t id = request.id;
  std::vector<Session::Submitted> submitted;
  submitted.push_back({.request = std::move(request), .tag = id});
  // Under the lock: a Cancel that comes at once finds it.
  const std::lock_guard lock(mutex_);
  under_way_.emplace(id, session_.Submit(std::move(submitted), inbox)[0]);
}

void SessionEngine::Cancel(int64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = under_way_.find(id);
  if (found != under_way_.end()) session_.Cancel(found->second);
}

void SessionEngine::CancelAll() {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, theirs] : under_way_) session_.Cancel(theirs);
}

}  // namespace forebay::job

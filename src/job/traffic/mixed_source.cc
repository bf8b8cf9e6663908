#include "job/traffic/mixed_source.h"

#include <algorithm>
#include <utility>

namespace forebay::job {

MixedSource::MixedSource(runtime::Runtime& runtime, TimedSource& interactive, TimedSource& batch,
                         int64_t first_batch_id)
    : runtime_(runtime),
      interactive_(interactive),
      batch_(batch),
      first_batch_id_(first_batch_id),
      start_(runtime.Now()),
      finished_(runtime.NewEvent("a request of either stream")) {}

std::optional<Request> MixedSource::Next(bool wait) {
  while (!ended()) {
    finished_->Reset();
    const runtime::TimeNs interactive_due = interactive_.due(), batch_due = batch_.due();
    TimedSource* streams[] = {&interactive_, &batch_};
    if (batch_due < interactive_due) std::swap(streams[0], streams[1]);
    for (TimedSource* const stream : streams) {
      if (auto request = stream->Next(false)) return request;
    }
    if (!wait) return std::nullopt;
    const runtime::TimeNs due = std::min(interactive_due, batch_due), now = runtime_.Now();
    if (due > now) finished_->Wait(std::min(due - now, runtime::kGlance));
  }
  return std::nullopt;
}

std::optional<Request> MixedSource::NextOf(Service service) {
  return (service == Service::kInteractive ? interactive_ : batch_).Next(false);
}

bool MixedSource::Finish(RequestResult result) {
  const bool batch = result.id >= first_batch_id_;
  if (result.error_message.empty()) {
    const std::lock_guard lock(mutex_);
    StreamTokens& tokens = batch ? batch_tokens_ : interactive_tokens_;
    ++tokens.requests;
    tokens.prompt += result.prompt_tokens;
    tokens.output += result.completion_tokens;
    tokens.end_seconds = runtime::SecondsOf(runtime_.Now() - start_);
  }
  const bool kept = StreamOf(result.id).Finish(std::move(result));
  finished_->Set();
  return kept;
}

void MixedSource::Progress(ChoicePiece piece) { StreamOf(piece.id).Progress(std::move(piece)); }

}  // namespace forebay::job

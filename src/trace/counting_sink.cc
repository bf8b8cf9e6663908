#include "trace/counting_sink.h"

namespace forebay::trace {

bool CountingSink::Finish(RequestResult result) {
  const double end = runtime::SecondsOf(runtime_.Now() - start_);
  const std::lock_guard lock(mutex_);
  if (!result.error_message.empty()) {
    ++failed_;
    failures_.Add(result.error_code, result.id + 1, result.error_message);
    return true;
  }
  prompt_tokens_ += result.prompt_tokens;
  output_tokens_ += result.completion_tokens;
  ends_.push_back(end);
  return true;
}

double CountingSink::TailSeconds() const {
  if (ends_.empty()) return 0;
  return ends_.back() - ends_[ends_.size() - 1 - ends_.size() / 20];
}

}  // namespace forebay::trace

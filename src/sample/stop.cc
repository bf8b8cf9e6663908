#include "sample/stop.h"

#include <algorithm>
#include <utility>

namespace forebay::sample {

StopConditions::StopConditions(const SamplingParams& params, std::span<const int32_t> end_tokens,
                               int64_t max_output)
    : max_output_(params.max_tokens >= 0 ? std::min<int64_t>(params.max_tokens, max_output)
                                         : max_output),
      ending_(end_tokens.begin(), end_tokens.end()),
      num_end_tokens_(end_tokens.size()),
      params_(&params) {
  ending_.insert(ending_.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  if (max_output_ <= 0) finish_ = Finish{};
}

std::span<const int32_t> StopConditions::banned() const {
  if (generated_ >= params_->min_tokens) return {};
  return ending_;
}

bool StopConditions::AddToken(int32_t token) {
  ++generated_;
  const bool is_last = generated_ >= max_output_;
  if (is_last) finish_ = Finish{FinishReason::kLength};
  if (ending_.empty() || generated_ < params_->min_tokens) return is_last;
  const bool is_end = !params_->ignore_eos &&
                      std::ranges::count(std::span(ending_).first(num_end_tokens_), token) > 0;
  const bool is_stop = std::ranges::count(params_->stop_token_ids, token) > 0;
  if (!is_end && !is_stop) return is_last;
  finish_ = Finish{FinishReason::kStop, is_end ? std::nullopt : std::optional(token)};
  text_wanted_ = params_->include_stop_str_in_output;
  return true;
}

void StopConditions::AddText(std::string_view piece, std::string_view held) {
  text_ += piece;
  const size_t known = text_.size();
  text_ += held;
  const size_t searched = std::exchange(searched_, text_.size());
  const std::string* match = nullptr;
  size_t begin = std::string::npos;
  for (const std::string& stop : params_->stop) {
    if (stop.empty() || generated_ <= params_->min_tokens) continue;
    const size_t found =
        text_.find(stop, searched + 1 > stop.size() ? searched + 1 - stop.size() : 0);
    if (found < begin) {
      begin = found;
      match = &stop;
    }
  }
  if (match == nullptr) {
    text_.resize(known);
    return;
  }
  text_.resize(params_->include_stop_str_in_output ? begin + match->size() : begin);
  finish_ = Finish{FinishReason::kStop, std::nullopt, *match};
}

size_t StopConditions::settled_text() const {
  if (params_->include_stop_str_in_output) return text_.size();
  size_t held = 0;
  const std::string_view text = text_;
  for (const std::string_view stop : params_->stop) {
    // What ends the text may be the begin of a stop string.
    for (size_t size = std::min(text.size() + 1, stop.size()); size-- > held + 1;) {
      if (text.ends_with(stop.substr(0, size))) held = size;
    }
  }
  return text.size() - held;
}

}  // namespace forebay::sample

#include "trace/counting_sink.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace forebay::trace {

Percentiles PercentilesOf(std::span<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  const auto count = static_cast<double>(values.size());
  const auto rank = [&](double part) {
    return values[static_cast<size_t>(std::ceil(part * count)) - 1];
  };
  return {.mean = std::accumulate(values.begin(), values.end(), 0.0) / count,
          .p50 = rank(0.5),
          .p90 = rank(0.9),
          .p99 = rank(0.99),
          .max = values.back()};
}

bool CountingSink::Finish(RequestResult result) {
  const double end = Seconds(runtime_.Now()), arrival = source_.ArrivalSeconds(result.id);
  const std::lock_guard lock(mutex_);
  if (!result.error_message.empty()) {
    ++failed_;
    return true;
  }
  prompt_tokens_ += result.prompt_tokens;
  output_tokens_ += result.completion_tokens;
  ends_.push_back(end);
  completion_.push_back(end - arrival);
  if (result.first_token_ns < 0) return true;
  const double first = Seconds(result.first_token_ns);
  first_token_.push_back(first - arrival);
  int64_t longest = 0;
  for (const Choice& choice : result.choices)
    longest = std::max(longest, static_cast<int64_t>(choice.tokens.size()));
  if (longest > 1) token_.push_back((end - first) / static_cast<double>(longest - 1));
  return true;
}

double CountingSink::TailSeconds() const {
  if (ends_.empty()) return 0;
  return ends_.back() - ends_[ends_.size() - 1 - ends_.size() / 20];
}

Latencies CountingSink::Summarize() const {
  Latencies latencies;
  const std::pair<const std::vector<double>*, Percentiles*> all[] = {
      {&first_token_, &latencies.first_token},
      {&token_, &latencies.token},
      {&completion_, &latencies.completion}};
  for (const auto& [values, percentiles] : all) {
    std::vector<double> copy = *values;
    *percentiles = PercentilesOf(copy);
  }
  return latencies;
}

}  // namespace forebay::trace

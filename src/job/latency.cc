#include "job/latency.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/log.h"

namespace forebay::job {

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
          .p95 = rank(0.95),
          .p99 = rank(0.99),
          .max = values.back()};
}

void LatencyBook::Add(double arrival, double first_token, double end, int64_t longest) {
  completion_.push_back(end - arrival);
  if (first_token < 0) return;
  first_token_.push_back(first_token - arrival);
  if (longest > 1) token_.push_back((end - first_token) / static_cast<double>(longest - 1));
}

Latencies LatencyBook::Summarize() const {
  Latencies latencies;
  const std::pair<const std::vector<double>*, Percentiles*> all[] = {
      {&first_token_, &latencies.first_token},
      {&token_, &latencies.token},
      {&completion_, &latencies.completion}};
  for (const auto& [values, percentiles] : all) {
    std::vector<double> copy = *values;
    *percentiles = PercentilesOf(copy);
  }
  for (const double seconds : token_) {
    if (seconds > 0)
      latencies.tokens_per_s_user += 1 / seconds / static_cast<double>(token_.size());
  }
  return latencies;
}

void AddLatencies(const Latencies& latencies, JobSummary* summary) {
  const auto add = [&](const std::string& name, const Percentiles& p) {
    const std::pair<const char*, double> parts[] = {
        {"mean_", p.mean}, {"median_", p.p50}, {"p90_", p.p90}, {"p95_", p.p95}, {"p99_", p.p99}};
    for (const auto& [part, seconds] : parts)
      summary->latencies_ms.emplace_back(part + name + "_ms", seconds * 1e3);
  };
  add("ttft", latencies.first_token);
  add("tpot", latencies.token);
  add("e2el", latencies.completion);
  summary->latencies_ms.emplace_back("tokens_per_second_per_user", latencies.tokens_per_s_user);
}

void LogLatencies(const Latencies& latencies) {
  const auto line = [](const char* name, const Percentiles& p) {
    base::Log(base::LogLevel::kInfo,
              fmt::format("{}: mean {:.2f}, median {:.2f}, p90 {:.2f}, p99 {:.2f} ms", name,
                          p.mean * 1e3, p.p50 * 1e3, p.p90 * 1e3, p.p99 * 1e3));
  };
  line("time to first token", latencies.first_token);
  line("time per output token", latencies.token);
  line("completion time", latencies.completion);
}

}  // namespace forebay::job

#include "job/traffic/latency.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/log.h"

namespace forebay::job {
namespace {

// What is left of a float has 11 bits of its mantissa: durations that share it differ by .05 %.
constexpr int kDroppedBits = 12;

}  // namespace

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

Latencies Summarize(std::vector<RequestTimes> requests) {
  Latencies latencies;
  std::vector<double> first_token, token, completion;
  for (const RequestTimes& times : requests) {
    completion.push_back(times.end - times.arrival);
    if (times.first_token >= 0) first_token.push_back(times.first_token - times.arrival);
    if (times.token() >= 0) token.push_back(times.token());
    if (!std::isfinite(times.deadline)) continue;
    ++latencies.with_deadline;
    latencies.late += times.end > times.deadline ? 1 : 0;
    latencies.most_late = std::max(latencies.most_late, times.end - times.deadline);
  }
  for (const double seconds : token) {
    if (seconds > 0) latencies.tokens_per_s_user += 1 / seconds / static_cast<double>(token.size());
  }
  latencies.first_token = PercentilesOf(first_token);
  latencies.token = PercentilesOf(token);
  latencies.completion = PercentilesOf(completion);
  latencies.requests = std::move(requests);
  return latencies;
}

void DurationBook::Add(double seconds) {
  const double duration = std::max(0.0, seconds);
  ++counts_[std::bit_cast<uint32_t>(static_cast<float>(duration)) >> kDroppedBits];
  ++count_;
  sum_ += duration;
  max_ = std::max(max_, duration);
}

Percentiles DurationBook::Summarize() const {
  if (count_ == 0) return {};
  const auto rank = [&](double part) {
    auto left = static_cast<int64_t>(std::ceil(part * static_cast<double>(count_)));
    auto bin = counts_.begin();
    while ((left -= bin->second) > 0) ++bin;
    const auto middle =
        std::bit_cast<float>((bin->first << kDroppedBits) | 1u << (kDroppedBits - 1));
    return std::min<double>(middle, max_);
  };
  return {.mean = sum_ / static_cast<double>(count_),
          .p50 = rank(0.5),
          .p90 = rank(0.9),
          .p95 = rank(0.95),
          .p99 = rank(0.99),
          .max = max_};
}

void PeakBook::Add(double time, int64_t tokens) {
  sum_ += tokens;
  if (!recent_.empty() && recent_.back().first == time) {
    recent_.back().second += tokens;
  } else {
    recent_.emplace_back(time, tokens);
  }
  while (recent_.front().first <= time - seconds_) {
    sum_ -= recent_.front().second;
    recent_.pop_front();
  }
  peak_ = std::max(peak_, sum_);
}

SteadyWindow SteadyWindowOf(double seconds, bool broken_off) {
  return {(broken_off ? 0.5 : 0.25) * seconds, (broken_off ? 0.95 : 0.75) * seconds};
}

void TokenBook::Add(double time, int64_t prompt, int64_t output) {
  while (time >= seconds_ * kStretches) {
    for (size_t i = 0; 2 * i < stretches_.size(); ++i) {
      Tokens sum = stretches_[2 * i];
      if (2 * i + 1 < stretches_.size()) {
        sum.prompt += stretches_[2 * i + 1].prompt;
        sum.output += stretches_[2 * i + 1].output;
      }
      stretches_[i] = sum;
    }
    stretches_.resize((stretches_.size() + 1) / 2);
    seconds_ *= 2;
  }
  const auto at = static_cast<size_t>(time / seconds_);
  if (at >= stretches_.size()) stretches_.resize(at + 1);
  stretches_[at].prompt += static_cast<double>(prompt);
  stretches_[at].output += static_cast<double>(output);
}

TokenBook::Tokens TokenBook::Within(const SteadyWindow& window) const {
  Tokens sum;
  for (size_t i = 0; i < stretches_.size(); ++i) {
    const double begin = static_cast<double>(i) * seconds_;
    const double inside = std::min(window.end, begin + seconds_) - std::max(window.begin, begin);
    const double part = std::max(0.0, inside) / seconds_;
    sum.prompt += part * stretches_[i].prompt;
    sum.output += part * stretches_[i].output;
  }
  return sum;
}

void AddLatencies(const Latencies& latencies, JobSummary* summary, const std::string& prefix) {
  const auto add_value = [&](std::string_view name, double value) {
    summary->latencies_ms.emplace_back(fmt::format("{}{}", prefix, name), value);
  };
  const auto add = [&](const std::string& name, const Percentiles& p) {
    const std::pair<const char*, double> parts[] = {
        {"mean_", p.mean}, {"median_", p.p50}, {"p90_", p.p90}, {"p95_", p.p95}, {"p99_", p.p99}};
    for (const auto& [part, seconds] : parts) add_value(part + name + "_ms", seconds * 1e3);
  };
  add("ttft", latencies.first_token);
  add("tpot", latencies.token);
  add("e2el", latencies.completion);
  add_value("tokens_per_second_per_user", latencies.tokens_per_s_user);
  add_value("num_unfinished", static_cast<double>(latencies.unfinished));
  if (latencies.with_deadline > 0) {
    add_value("num_with_deadline", static_cast<double>(latencies.with_deadline));
    add_value("num_late", static_cast<double>(latencies.late));
    add_value("most_late_seconds", latencies.most_late);
  }
  if (!latencies.tokens.any) return;
  add("itl", latencies.tokens.between);
  add_value("peak_output_tokens_per_second_1s", latencies.tokens.peak_1s);
  add_value("peak_output_tokens_per_second_10s", latencies.tokens.peak_10s);
  const TokenTimes& tokens = latencies.tokens;
  add_value("steady_begin_seconds", tokens.steady.begin);
  add_value("steady_end_seconds", tokens.steady.end);
  add_value("steady_context_tokens_per_second_per_rank",
            tokens.steady_prompt / std::max(1, summary->model.context_ranks));
  add_value("steady_output_tokens_per_second_per_rank",
            tokens.steady_output / std::max(1, summary->model.ranks));
}

void LogLatencies(const Latencies& latencies, const std::string& prefix) {
  const auto line = [&](const char* name, const Percentiles& p) {
    base::Log(base::LogLevel::kInfo,
              fmt::format("{}{}: mean {:.2f}, median {:.2f}, p90 {:.2f}, p99 {:.2f} ms", prefix,
                          name, p.mean * 1e3, p.p50 * 1e3, p.p90 * 1e3, p.p99 * 1e3));
  };
  line("time to first token", latencies.first_token);
  line("time per output token", latencies.token);
  if (latencies.tokens.any) line("time between tokens", latencies.tokens.between);
  line("completion time", latencies.completion);
  if (latencies.tokens.any) {
    base::Log(base::LogLevel::kInfo,
              fmt::format("{}most output tokens a second: {:.1f} over 1 s, {:.1f} over 10 s",
                          prefix, latencies.tokens.peak_1s, latencies.tokens.peak_10s));
  }
  if (latencies.with_deadline > 0) {
    base::Log(base::LogLevel::kInfo,
              fmt::format("{}deadlines: {} of {} requests late, by at most {:.2f} s", prefix,
                          latencies.late, latencies.with_deadline, latencies.most_late));
  }
  if (latencies.unfinished > 0) {
    base::Log(base::LogLevel::kInfo,
              fmt::format("{}{} requests came and have no result", prefix, latencies.unfinished));
  }
}

}  // namespace forebay::job

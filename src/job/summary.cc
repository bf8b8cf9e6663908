#include "job/summary.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>

#include "base/json_writer.h"
#include "base/log.h"
#include "base/units.h"
#include "forebay/counter_names.h"

namespace forebay::job {
namespace {

double Rate(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

int64_t CounterOf(const EngineStats& stats, const char* name) {
  return stats.counter(name).value_or(0);
}

// What a whole job was to take, by what it took; 0: nobody knew, or earlier runs did a part of it.
double PredictedOverMeasured(const JobSummary& summary) {
  const int64_t expected_ms = CounterOf(summary.stats, counter_names::kExpectedMs);
  return summary.resumed > 0 ? 0 : Rate(expected_ms, 1e3 * summary.elapsed_seconds);
}
double StepsOverLeast(const EngineStats& stats) {
  return Rate(stats.steps, static_cast<double>(CounterOf(stats, counter_names::kLeastSteps)));
}

// That of all layers with experts in all steps; 0: there are none.
double ExpertImbalanceOf(const EngineStats& stats) {
  return ExpertImbalance(CounterOf(stats, counter_names::kExpertBusiestRows),
                         CounterOf(stats, counter_names::kRowsRouted),
                         CounterOf(stats, counter_names::kExpertsInGroups),
                         CounterOf(stats, counter_names::kExpertGroups));
}

void AppendStats(const EngineStats& stats, base::JsonWriter& writer) {
  writer.BeginObject();
  for (const EngineCounter& counter : kEngineCounters) {
    if (counter.in_summary) writer.Key(counter.name).Int(stats.*counter.member);
  }
  writer.Key("step_seconds").Double(stats.step_seconds).EndObject();
}

void AppendReplicas(const EngineStats& stats, base::JsonWriter& writer) {
  writer.Key("busy_imbalance").Double(BusyImbalance(stats));
  writer.Key("token_imbalance").Double(TokenImbalance(stats));
  writer.Key("replicas").BeginArray();
  for (const ReplicaStats& replica : stats.replicas) {
    writer.BeginObject();
    writer.Key("role").String(Name(replica.role));
    writer.Key("steps")
        .Int(replica.steps)
        .Key("tokens")
        .Int(replica.tokens)
        .Key("busy_seconds")
        .Double(replica.busy_seconds);
    writer.EndObject();
  }
  writer.EndArray();
}

void AppendFailures(const JobSummary& summary, base::JsonWriter& writer) {
  writer.Key("failures").BeginArray();
  for (const auto& [code, failure] : summary.failures) {
    writer.BeginObject().Key("code").String(code).Key("count").Int(failure.count);
    writer.Key("first_line").Int(failure.first_line).Key("message").String(failure.message);
    writer.EndObject();
  }
  writer.EndArray();
}

}  // namespace

uint64_t PeakRssBytes() {
  // getrusage would count the process that called exec as well.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) << 10;
  }
  return 0;
}

std::string SummaryJson(const JobSummary& summary) {
  std::string out;
  base::JsonWriter writer(&out);
  const int64_t tokens = summary.prompt_tokens + summary.output_tokens;
  writer.BeginObject();
  writer.Key("elapsed_time").Double(summary.elapsed_seconds);
  writer.Key("num_requests").Int(summary.done);
  writer.Key("total_num_tokens").Int(tokens);
  writer.Key("requests_per_second").Double(Rate(summary.done, summary.elapsed_seconds));
  writer.Key("tokens_per_second").Double(Rate(tokens, summary.elapsed_seconds));
  writer.Key("output_tokens_per_second")
      .Double(Rate(summary.output_tokens, summary.elapsed_seconds));
  writer.Key("context_tokens_per_second_per_rank")
      .Double(Rate(summary.prompt_tokens, summary.elapsed_seconds) /
              std::max(1, summary.model.context_ranks));
  writer.Key("output_tokens_per_second_per_rank")
      .Double(Rate(summary.output_tokens, summary.elapsed_seconds) /
              std::max(1, summary.model.ranks));
  writer.Key("end").String(summary.end);
  writer.Key("num_lines").Int(summary.lines);
  writer.Key("num_resumed").Int(summary.resumed);
  writer.Key("num_failed").Int(summary.failed);
  writer.Key("num_failed_in_file").Int(summary.total_failed);
  AppendFailures(summary, writer);
  writer.Key("prompt_tokens").Int(summary.prompt_tokens);
  writer.Key("output_tokens").Int(summary.output_tokens);
  writer.Key("startup_seconds").Double(summary.startup_seconds);
  writer.Key("first_result_seconds");
  summary.first_result_seconds >= 0 ? writer.Double(summary.first_result_seconds) : writer.Null();
  writer.Key("tail_seconds").Double(summary.tail_seconds);
  writer.Key("peak_rss_bytes").UInt(summary.peak_rss_bytes);
  writer.Key("isa").String(summary.isa);
  writer.Key("model").String(summary.model.name);
  writer.Key("random_weights").Bool(summary.model.random_weights);
  writer.Key("numerics_class").String(summary.model.numerics_class);
  writer.Key("device_profile").String(summary.model.device_profile);
  writer.Key("tp_wire").String(summary.model.tp_wire);
  writer.Key("max_model_len").Int(summary.model.max_model_len);
  writer.Key("kv_capacity_tokens").Int(summary.model.kv_capacity_tokens);
  writer.Key("weight_bytes").UInt(summary.model.weight_bytes);
  writer.Key("weight_forms").BeginObject();
  for (const auto& [form, bytes] : summary.model.weight_forms) writer.Key(form).UInt(bytes);
  writer.EndObject();
  writer.Key("kv_bytes").UInt(summary.model.kv_bytes);
  writer.Key("workspace_bytes").UInt(summary.model.workspace_bytes);
  for (const auto& [name, milliseconds] : summary.latencies_ms)
    writer.Key(name).Double(milliseconds);
  if (const double ratio = PredictedOverMeasured(summary); ratio > 0)
    writer.Key("predicted_over_measured").Double(ratio);
  if (const double ratio = StepsOverLeast(summary.stats); ratio > 0)
    writer.Key("steps_over_least").Double(ratio);
  if (const double ratio = ExpertImbalanceOf(summary.stats); ratio > 0)
    writer.Key("expert_imbalance").Double(ratio);
  writer.Key("engine");
  AppendStats(summary.stats, writer);
  writer.Key("mode_counters").BeginObject();
  for (const auto& [name, count] : summary.stats.mode_counters) writer.Key(name).Int(count);
  writer.EndObject();
  if (!summary.stats.replicas.empty()) AppendReplicas(summary.stats, writer);
  writer.EndObject();
  return out;
}

std::string PricedText(const EngineStats& stats) {
  if (!stats.counter(counter_names::kPricedMeasured)) return "";
  return fmt::format("{} % measured, {} % derived, {} % datasheet",
                     CounterOf(stats, counter_names::kPricedMeasured),
                     CounterOf(stats, counter_names::kPricedDerived),
                     CounterOf(stats, counter_names::kPricedDatasheet));
}

std::string SummaryText(const JobSummary& summary) {
  const int64_t tokens = summary.prompt_tokens + summary.output_tokens;
  const std::string first = summary.first_result_seconds >= 0
                                ? fmt::format("first result after {}, last 5 % of the lines {}",
                                              base::FormatDuration(summary.first_result_seconds),
                                              base::FormatDuration(summary.tail_seconds))
                                : std::string("no result by this run");
  std::string text = fmt::format(
      "{}: {} of {} lines have their result, {} by this run; {} failed\n", summary.end,
      summary.resumed + summary.done, summary.lines, summary.done, summary.total_failed);
  for (const auto& failure : summary.failures) text += "failed: " + FailureText(failure) + "\n";
  text += fmt::format(
      "{} in {}: {} prompt and {} output tokens, {:.1f} output and {:.1f} total tok/s, {:.2f} "
      "requests/s\n",
      summary.model.name, base::FormatDuration(summary.elapsed_seconds), summary.prompt_tokens,
      summary.output_tokens, Rate(summary.output_tokens, summary.elapsed_seconds),
      Rate(tokens, summary.elapsed_seconds), Rate(summary.done, summary.elapsed_seconds));
  if (const auto expected_ms = summary.stats.counter(counter_names::kExpectedMs)) {
    const std::string priced = PricedText(summary.stats);
    text += fmt::format("the whole job was expected to take {}, this run took {}{}\n",
                        base::FormatDuration(1e-3 * static_cast<double>(*expected_ms)),
                        base::FormatDuration(summary.elapsed_seconds),
                        priced.empty() ? "" : "; prices of steps: " + priced);
  }
  text += fmt::format(
      "start-up {}, {}; {} preemptions, {} tokens recomputed, {} prompt tokens from the prefix "
      "index\n",
      base::FormatDuration(summary.startup_seconds), first, summary.stats.preemptions,
      summary.stats.recomputed_tokens, summary.stats.cached_prompt_tokens);
  if (!summary.stats.replicas.empty()) {
    text += fmt::format(
        "{} replicas: busiest to mean {:.2f} in time, {:.2f} in tokens; {} requests stolen with {} "
        "of KV cache\n",
        summary.stats.replicas.size(), BusyImbalance(summary.stats), TokenImbalance(summary.stats),
        summary.stats.requests_stolen,
        base::FormatBytes(static_cast<uint64_t>(summary.stats.kv_bytes_stolen)));
  }
  if (const double ratio = ExpertImbalanceOf(summary.stats); ratio > 0) {
    text += fmt::format("experts: busiest to mean {:.2f} in rows of a layer; {} of {} had rows\n",
                        ratio, CounterOf(summary.stats, counter_names::kExpertsTouched),
                        CounterOf(summary.stats, counter_names::kExpertsInGroups));
  }
  if (summary.stats.requests_handed_over > 0) {
    text +=
        fmt::format("{} requests handed over to generation replicas with {} of KV cache\n",
                    summary.stats.requests_handed_over,
                    base::FormatBytes(static_cast<uint64_t>(summary.stats.kv_bytes_handed_over)));
  }
  text +=
      fmt::format("peak RSS {}; {} on {}{}{}\n", base::FormatBytes(summary.peak_rss_bytes),
                  summary.model.numerics_class, summary.isa,
                  summary.model.random_weights ? "; RANDOM WEIGHTS" : "",
                  summary.model.tp_wire == "exact" ? "" : "; sums between ranks priced as bf16");
  return text;
}

void LogSummary(const JobSummary& summary) {
  const std::string text = SummaryText(summary);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    base::Log(base::LogLevel::kInfo, text.substr(begin, end - begin));
    begin = end + 1;
  }
}

base::Status WriteSummary(const JobSummary& summary, const std::string& path) {
  const std::string text = SummaryJson(summary) + "\n";
  std::FILE* file = std::fopen(path.c_str(), "wb");
  const bool written = file && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = file && std::fclose(file) == 0;
  if (written && closed) return {};
  return base::Status(base::kIoError,
                      fmt::format("{}: cannot write the summary: {}", path, std::strerror(errno)));
}

}  // namespace forebay::job

#include "cli/layout_table.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/json_writer.h"
#include "base/log.h"
#include "cli/outcome.h"
#include "cli/plan_tables.h"
#include "forebay/counter_names.h"
#include "schedule/step_mode.h"

namespace forebay::cli {
namespace {

using choose::Decision;
using choose::LayoutTrial;

constexpr size_t kShown = 10;
// Forecasts differ by so much from what is measured (docs/parallelism.md): what differs by less is
// equal.
constexpr double kForecastError = 0.03;
// Percent by which two layouts' shares of measured prices differ when the table warns of it.
constexpr double kUnlike = 20;

// Whether its job was foreseen to the end.
bool IsWhole(const LayoutTrial& trial) { return trial.plan && !trial.plan->forecast->stopped; }

// How steps are taken where a layout leaves a choice.
std::string ModeOf(const Decision& plan) {
  if (plan.generation) return "roles";
  if (plan.shift.modes.size() > 1) {
    std::string modes;
    for (const model::Degrees& mode : plan.shift.modes)
      modes += (modes.empty() ? "" : "/") + layout::FormatMode(mode);
    return modes;
  }
  if (!plan.layout.pools()) return "-";
  const choose::JobForecast& job = *plan.forecast;
  const std::string_view ship = schedule::Name(StepMode{.ffn = FfnMode::kShip});
  if (job.steps_together == 0) return std::string(schedule::Name(StepMode{.ffn = FfnMode::kPull}));
  if (job.steps_together == job.steps) return std::string(ship);
  return fmt::format(
      "{} {:.0f} %", ship,
      100 * static_cast<double>(job.steps_together) / static_cast<double>(job.steps));
}

int64_t KvTokens(const Decision& plan) {
  const int64_t of_others = plan.generation ? KvTokens(*plan.generation) : 0;
  return plan.ranks.front().memory.kv_tokens() * plan.replicas() + of_others;
}

// As its flags have it, and what it leaves out.
std::string NameOf(const LayoutTrial& trial) {
  std::string name = trial.layout;
  if (!trial.flags.empty()) name += (name.empty() ? "" : " ") + trial.flags;
  if (trial.plan && trial.plan->forecast->left_out > 0)
    name += fmt::format(" ({} choices do not fit)", trial.plan->forecast->left_out);
  return name;
}

// Of a million output tokens.
double PriceOf(const ComparedJob& job, const Decision& plan) {
  const double rate = plan.forecast->tokens_per_s();
  return rate > 0 ? job.price_per_hour / 3600 / rate * 1e6 : 0;
}

// Of the time; all 0 where nothing was priced.
cost::PriceOrigins Percents(const Decision& plan) {
  const cost::PriceOrigins& origins = plan.forecast->origins;
  return origins.all() > 0 ? origins * (100 / origins.all()) : cost::PriceOrigins();
}

bool IsEqual(const Decision& plan, const Decision& soonest) {
  return plan.forecast->seconds <= (1 + kForecastError) * soonest.forecast->seconds;
}

void PrintNotes(const ComparedJob& job, const std::vector<LayoutTrial>& trials, size_t shown) {
  const auto equal = std::count_if(
      trials.begin(), trials.begin() + static_cast<int64_t>(shown),
      [&](const LayoutTrial& trial) { return IsEqual(*trial.plan, *trials.front().plan); });
  Print("");
  if (equal > 1) {
    Print(
        fmt::format("= equal: done as soon as the first but for {:.0f} %, the forecast's own error",
                    100 * kForecastError));
  }
  Print(
      "tok/s: output tokens by the job's seconds. KV tokens: of all replicas. prices: percent of "
      "the steps' time priced by measured kernels / derived numbers / a datasheet");
  Print(fmt::format("Ranks with tp add partial sums in {} (--sim-tp-wire)", job.tp_wire));
  double least = 100, most = 0;
  for (size_t i = 0; i < shown; ++i) {
    const double measured = Percents(*trials[i].plan).measured;
    least = std::min(least, measured);
    most = std::max(most, measured);
  }
  if (most - least > kUnlike) {
    Print(
        "warning: the layouts' prices differ in where they come from, and their order may follow "
        "from that; --sim-uncalibrated prices all by the datasheet");
  }
  Print(
      "Another machine's seconds compare with these where both have like prices, or with "
      "--sim-uncalibrated for both");
}

}  // namespace

void PrintLayoutTable(const ComparedJob& job, const std::vector<LayoutTrial>& trials) {
  const auto running = static_cast<size_t>(std::ranges::count_if(
      trials, [](const LayoutTrial& trial) { return trial.plan.has_value(); }));
  const size_t shown =
      std::min(kShown, static_cast<size_t>(std::ranges::count_if(trials, IsWhole)));
  Print(fmt::format("{} on {}: {} layouts can run the job", job.model, job.devices, running));
  Print("");
  const bool priced = job.price_per_hour > 0;
  if (shown > 0) {
    Print(fmt::format("  {:>9} {:>9} {:>10} {}{:>12}  {:<12}  layout", "seconds", "tok/s",
                      "KV tokens", priced ? fmt::format("{:>9} ", "$/1M tok") : "", "prices",
                      "mode"));
  }
  for (size_t i = 0; i < shown; ++i) {
    const Decision& plan = *trials[i].plan;
    const cost::PriceOrigins percents = Percents(plan);
    const bool equal = i > 0 && IsEqual(plan, *trials.front().plan);
    Print(fmt::format("{} {:>9.1f} {:>9.0f} {:>10} {}{:>12}  {:<12}  {}", equal ? "=" : " ",
                      plan.forecast->seconds, plan.forecast->tokens_per_s(), KvTokens(plan),
                      priced ? fmt::format("{:>9.3f} ", PriceOf(job, plan)) : "",
                      fmt::format("{:.0f}/{:.0f}/{:.0f}", percents.measured, percents.derived,
                                  percents.datasheet),
                      ModeOf(plan), NameOf(trials[i])));
  }
  if (shown > 0) PrintNotes(job, trials, shown);
  const auto is_told = [](const LayoutTrial& trial) { return !IsWhole(trial); };
  if (std::ranges::any_of(trials, is_told)) Print("");
  for (const LayoutTrial& trial : trials) {
    if (IsWhole(trial)) continue;
    Print(fmt::format("{}: {}", NameOf(trial),
                      trial.plan ? FormatJob(*trial.plan->forecast) : trial.refused.ToString()));
  }
}

void PrintLayoutJson(const ComparedJob& job, const std::vector<LayoutTrial>& trials) {
  std::string text;
  base::JsonWriter writer(&text);
  writer.BeginObject().Key("model").String(job.model).Key("devices").String(job.devices);
  writer.Key("tp_wire").String(job.tp_wire);
  writer.Key("forecast_error").Double(kForecastError);
  writer.Key("layouts").BeginArray();
  for (const LayoutTrial& trial : trials) {
    writer.BeginObject().Key("layout").String(trial.layout).Key("flags").String(trial.flags);
    if (!trial.plan) {
      writer.Key("error").String(trial.refused.ToString()).EndObject();
      continue;
    }
    const Decision& plan = *trial.plan;
    if (plan.forecast->stopped) {
      writer.Key("later_than_seconds").Double(plan.forecast->seconds).EndObject();
      continue;
    }
    const cost::PriceOrigins percents = Percents(plan);
    writer.Key("mode").String(ModeOf(plan));
    writer.Key("seconds").Double(plan.forecast->seconds);
    writer.Key("output_tokens_per_second").Double(plan.forecast->tokens_per_s());
    writer.Key("kv_tokens").Int(KvTokens(plan));
    writer.Key("choices_left_out").Int(plan.forecast->left_out);
    if (job.price_per_hour > 0)
      writer.Key("price_per_million_output_tokens").Double(PriceOf(job, plan));
    writer.Key(counter_names::kPricedMeasured).Double(percents.measured);
    writer.Key(counter_names::kPricedDerived).Double(percents.derived);
    writer.Key(counter_names::kPricedDatasheet).Double(percents.datasheet);
    writer.Key("equal_to_first").Bool(IsEqual(plan, *trials.front().plan));
    writer.EndObject();
  }
  writer.EndArray().EndObject();
  PrintLine(text);
}

}  // namespace forebay::cli

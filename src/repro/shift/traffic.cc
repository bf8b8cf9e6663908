#include "repro/shift/traffic.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "forebay/counter_names.h"
#include "repro/shift/runs.h"

namespace forebay::repro {
namespace {

// Four steps of one row of the slowest layout that serves people well, TP of 8: its TPOT is 9.6 ms.
constexpr double kTargetMs = 40;
// Seconds of a run that is broken off while both services have work; a quick lab's.
constexpr double kHorizon = 120, kQuickHorizon = 20;
// The stream of SH2 and its bursts.
constexpr double kStreamRate = 2, kStreamSeconds = 200, kBursts = 4, kBurstSeconds = 10;

// The requests of one service.
struct Load {
  double rate = 0;  // requests a second; 0: all at once
  int64_t requests = 0;
  bool mixed = false;  // as ShiftTraffic
  int burst_rate = 0;  // they come in bursts of so many a second
  Recording recorded = Recording::kNone;

  auto operator<=>(const Load&) const = default;
};

struct TrafficRun {
  std::string model = kLlama;
  ShiftLayout layout;
  Load people, batch;
  bool blind = false;  // the policy does not know who waits
  double target_ms = kTargetMs;
  double horizon = 0;  // seconds; 0: to the end
};

struct TrafficOutcome {
  job::Latencies people;
  double batch_tokens_per_s = 0;  // prompts and outputs, while the batch has work
  double preemptions = 0;
  Account modes;  // percent of steps in each
};

trace::LengthTrace TrafficTrace(const Load& load, Service service) {
  trace::LengthTrace trace{.name = "traffic"};
  if (load.recorded != Recording::kNone) {
    trace = RecordedTrace(load.recorded, load.requests, load.rate);
  } else {
    job::Arrivals arrivals;
    if (load.rate > 0) arrivals = *job::PlanArrivals({.request_rate = load.rate}, load.requests, 0);
    for (int64_t i = 0; i < load.requests; ++i) {
      trace::TraceRow row{.prompt_tokens = 4000, .output_tokens = 250};
      if (load.mixed && i % 2 == 0) row = {.prompt_tokens = 150, .output_tokens = 200};
      if (load.mixed && i % 2 == 1) row = {.prompt_tokens = 6000, .output_tokens = 250};
      if (load.rate > 0) row.arrival_seconds = arrivals.seconds[static_cast<size_t>(i)];
      if (load.burst_rate > 0) {
        const auto a_burst = static_cast<int64_t>(load.burst_rate * kBurstSeconds);
        const double begin =
            (static_cast<double>(i / a_burst) + 0.5) * kStreamSeconds / kBursts - kBurstSeconds / 2;
        row.arrival_seconds = begin + static_cast<double>(i % a_burst) / load.burst_rate;
      }
      trace.rows.push_back(row);
    }
  }
  for (trace::TraceRow& row : trace.rows) row.service = service;
  return trace;
}

// Ends a run at its horizon.
class Ender final : public StepObserver {
 public:
  Ender(double seconds, RunControl* control) : seconds_(seconds), control_(control) {}
  void OnStep(const StepRecord& record) override {
    if (record.end_seconds >= seconds_) control_->abort = true;
  }

 private:
  const double seconds_;
  RunControl* const control_;
};

// Rows of batches a second from half of the horizon to its end. Prompts of thousands of tokens that
// count when they are done would be a grain of some percent where a batch gets little.
double BatchRowsPerSecond(std::span<const StepRecord> steps, double horizon) {
  double rows = 0;
  for (const StepRecord& step : steps) {
    if (step.begin_seconds < horizon / 2 || step.end_seconds > horizon) continue;
    rows += step.decode_rows + step.prefill_rows - step.interactive_decode_rows -
            step.interactive_prefill_rows;
  }
  return rows / (horizon / 2);
}

// Seconds in which one of the requests at least is under way.
double BusySeconds(std::vector<job::RequestTimes> requests) {
  std::ranges::sort(requests, {}, &job::RequestTimes::arrival);
  double busy = 0, until = 0;
  for (const job::RequestTimes& times : requests) {
    busy += std::max(0.0, times.end - std::max(until, times.arrival));
    until = std::max(until, times.end);
  }
  return busy;
}

base::Result<trace::SimulationResult> SimulateTraffic(const TrafficRun& run) {
  layout::EngineOptions options = OptionsOf(ShiftRun{.model = run.model, .layout = run.layout});
  options.profile = false;
  options.limits.target_itl_ms = run.target_ms;
  FB_ASSIGN_OR_RETURN(options.policy,
                      schedule::FindPolicy(run.blind ? "continuous" : "interactive"));
  const trace::LengthTrace people = TrafficTrace(run.people, Service::kInteractive),
                           batch = TrafficTrace(run.batch, Service::kBatch);
  RunControl control;
  Ender ender(run.horizon, &control);
  FB_ASSIGN_OR_RETURN(trace::SimulationResult result,
                      trace::Simulate({.engine = std::move(options),
                                       .trace = &people,
                                       .batch_trace = &batch,
                                       .each_token = true,
                                       .observer = run.horizon > 0 ? &ender : nullptr,
                                       .record_steps = run.horizon > 0,
                                       .control = &control}));
  if (result.run.summary.failed == 0) return result;
  return base::Status(
      base::kInvalidArgument,
      fmt::format("{} requests do not run on {}", result.run.summary.failed, NameOf(run.layout)));
}

base::Result<TrafficOutcome> RunTraffic(const TrafficRun& run, Lab& lab) {
  const auto name_of = [](const Load& load) {
    return fmt::format("{} {} {} {} {}", load.rate, load.requests, load.mixed, load.burst_rate,
                       static_cast<int>(load.recorded));
  };
  const std::string name =
      fmt::format("traffic {} {} | {} | {} | {} {} {}", run.model, NameOf(run.layout),
                  name_of(run.people), name_of(run.batch), run.blind, run.target_ms, run.horizon);
  FB_ASSIGN_OR_RETURN(const trace::SimulationResult* result,
                      lab.Simulate(name, [&] { return SimulateTraffic(run); }));
  const trace::ServiceRun& batch = *result->run.batch;
  TrafficOutcome outcome{.people = result->run.interactive->latencies,
                         .preemptions = static_cast<double>(result->run.summary.stats.preemptions)};
  if (run.horizon > 0) {
    outcome.batch_tokens_per_s = BatchRowsPerSecond(result->steps, run.horizon);
  } else if (const double busy = BusySeconds(batch.latencies.requests); busy > 0) {
    outcome.batch_tokens_per_s =
        static_cast<double>(batch.tokens.prompt + batch.tokens.output) / busy;
  }
  double steps = 0;
  for (const auto& [counter, count] : result->run.summary.stats.mode_counters) {
    if (!counter.starts_with(counter_names::kStepsByDegrees)) continue;
    outcome.modes.push_back({counter + " %", static_cast<double>(count)});
    steps += static_cast<double>(count);
  }
  for (Term& mode : outcome.modes) mode.value *= 100 / steps;
  return outcome;
}

Account TrafficTerms(const TrafficOutcome& outcome) {
  Account account = {{"median TTFT ms", 1e3 * outcome.people.first_token.p50},
                     {"p95 ITL ms", 1e3 * outcome.people.tokens.between.p95},
                     {"mean TPOT ms", 1e3 * outcome.people.token.mean},
                     {"batch K tok/s", 1e-3 * outcome.batch_tokens_per_s},
                     {"preemptions", outcome.preemptions}};
  account.insert(account.end(), outcome.modes.begin(), outcome.modes.end());
  return account;
}

// The outcome of each layout, in the account too.
base::Result<std::vector<TrafficOutcome>> RunEach(TrafficRun run,
                                                  std::initializer_list<ShiftLayout> layouts,
                                                  std::string_view load, Lab& lab,
                                                  Finding* finding) {
  if (lab.quick() && run.horizon > 0) {
    run.horizon = kQuickHorizon;
    finding->shortened = true;
  }
  std::vector<TrafficOutcome> outcomes;
  for (const ShiftLayout& layout : layouts) {
    run.layout = layout;
    FB_ASSIGN_OR_RETURN(outcomes.emplace_back(), RunTraffic(run, lab));
    Append(fmt::format("{}{}: ", NameOf(layout), load), TrafficTerms(outcomes.back()),
           &finding->account);
  }
  return outcomes;
}

ShiftLayout ShiftOfAllModes() {
  ShiftLayout layout = kShift;
  layout.ends = false;
  return layout;
}

// What a row asks of Shift Parallelism.
enum class Ask : uint8_t { kItl, kTtft, kBatch, kTpot };

// Seconds to the first token, of the better of two.
double BetterTtft(const TrafficOutcome& a, const TrafficOutcome& b) {
  return std::min(a.people.first_token.p50, b.people.first_token.p50);
}

struct StreamKey {
  std::string model;
  Ask ask = Ask::kItl;
  int burst_rate = 5;
};

TrafficRun StreamRun(const std::string& model, int burst_rate) {
  TrafficRun run{.model = model,
                 .people = {.rate = kStreamRate,
                            .requests = static_cast<int64_t>(kStreamRate * kStreamSeconds),
                            .mixed = true}};
  if (burst_rate > 0) {
    run.batch = {.requests = static_cast<int64_t>(kBursts * kBurstSeconds * burst_rate),
                 .mixed = true,
                 .burst_rate = burst_rate};
  }
  return run;
}

// SH2's stream with its bursts as batches.
FindingOr StreamAndBursts(const StreamKey& key, double, Lab& lab) {
  Finding finding;
  const TrafficRun both = StreamRun(key.model, key.burst_rate);
  FB_ASSIGN_OR_RETURN(
      const std::vector<TrafficOutcome> outcomes,
      lab.quick() ? RunEach(both, {kShift}, "", lab, &finding)
                  : RunEach(both, {kShift, ShiftOfAllModes(), kDp8, kTp8, kSp8, kSp4Tp2, kFourTp2},
                            "", lab, &finding));
  const TrafficOutcome& shift = outcomes.front();
  if (key.ask == Ask::kItl) {
    finding.calibrated = 1e3 * shift.people.tokens.between.p95 / kTargetMs;
    return finding;
  }
  TrafficRun alone = both;
  (key.ask == Ask::kTtft ? alone.batch : alone.people) = {};
  FB_ASSIGN_OR_RETURN(
      const std::vector<TrafficOutcome> without,
      RunEach(alone, {kShift}, key.ask == Ask::kTtft ? " without bursts" : " without the stream",
              lab, &finding));
  finding.calibrated = key.ask == Ask::kTtft
                           ? shift.people.first_token.p50 /
                                 (without.front().people.first_token.p50 + 1e-3 * kTargetMs)
                           : shift.batch_tokens_per_s / without.front().batch_tokens_per_s;
  return finding;
}

struct BesideKey {
  std::string model;
  Ask ask = Ask::kTtft;
  double rate = 1;
  Recording recorded = Recording::kNone;
};

TrafficRun BesideRun(const BesideKey& key) {
  return {.model = key.model,
          .people = {.rate = key.rate,
                     .requests = static_cast<int64_t>(1.2 * key.rate * kHorizon) + 8,
                     .recorded = key.recorded},
          .batch = {.requests = 3000},
          .horizon = kHorizon};
}

// People beside a batch, or (kTpot) beside nothing.
FindingOr PeopleBeside(const BesideKey& key, double, Lab& lab) {
  Finding finding;
  TrafficRun run = BesideRun(key);
  if (key.ask == Ask::kTpot) run.batch = {};
  FB_ASSIGN_OR_RETURN(
      const std::vector<TrafficOutcome> outcomes,
      lab.quick() ? RunEach(run, {kShift, kSp8, kTp8}, "", lab, &finding)
                  : RunEach(run, {kShift, kSp8, kTp8, ShiftOfAllModes(), kDp8, kSp4Tp2, kFourTp2},
                            "", lab, &finding));
  const TrafficOutcome &shift = outcomes[0], &sp = outcomes[1], &tp = outcomes[2];
  switch (key.ask) {
    case Ask::kItl: finding.calibrated = 1e3 * shift.people.tokens.between.p95 / kTargetMs; break;
    case Ask::kTtft: finding.calibrated = shift.people.first_token.p50 / BetterTtft(sp, tp); break;
    case Ask::kBatch:
      finding.calibrated =
          shift.batch_tokens_per_s / std::max(sp.batch_tokens_per_s, tp.batch_tokens_per_s);
      break;
    case Ask::kTpot: finding.calibrated = shift.people.token.mean / tp.people.token.mean; break;
  }
  return finding;
}

struct BlindKey {
  bool bursts = false;
};

// Median seconds to the first token of those who came in the first four fifths of a run; who got
// none waited to its end at least.
double MedianTtft(const TrafficOutcome& outcome, const TrafficRun& run, double horizon) {
  const double until = 0.8 * horizon;
  std::vector<double> waited;
  for (const job::RequestTimes& times : outcome.people.requests) {
    if (times.arrival < until && times.first_token >= 0)
      waited.push_back(times.first_token - times.arrival);
  }
  const auto came = std::ranges::count_if(
      TrafficTrace(run.people, Service::kInteractive).rows,
      [&](const trace::TraceRow& row) { return row.arrival_seconds < until; });
  waited.resize(std::max(waited.size(), static_cast<size_t>(came)), horizon - until);
  return job::PercentilesOf(waited).p50;
}

// Four cells: with and without the policy, with and without modes. The figure is that of both over
// that of neither: the median TTFT beside a batch, with bursts the p95 ITL.
FindingOr WithAndWithout(const BlindKey& key, double, Lab& lab) {
  Finding finding;
  TrafficRun run = key.bursts ? StreamRun(kLlama, 20) : BesideRun({.model = kLlama});
  FB_ASSIGN_OR_RETURN(const std::vector<TrafficOutcome> known,
                      RunEach(run, {kShift, kSp8}, ", interactive", lab, &finding));
  run.blind = true;
  FB_ASSIGN_OR_RETURN(const std::vector<TrafficOutcome> blind,
                      RunEach(run, {kShift, kSp8}, ", continuous", lab, &finding));
  if (key.bursts) {
    finding.calibrated = known[0].people.tokens.between.p95 / blind[1].people.tokens.between.p95;
    return finding;
  }
  const double horizon = lab.quick() ? kQuickHorizon : kHorizon;
  const double both = MedianTtft(known[0], run, horizon),
               neither = MedianTtft(blind[1], run, horizon);
  finding.account.push_back({"median TTFT of all who came, both: s", both});
  finding.account.push_back({"neither: s at least", neither});
  finding.calibrated = both / neither;
  return finding;
}

struct SweepKey {
  ShiftLayout below;
  bool somewhere = false;  // the best of all targets, else the worst
};

// The batch's tokens beside people, by their target: Shift Parallelism's over another layout's.
FindingOr SweepTargets(const SweepKey& key, double, Lab& lab) {
  Finding finding;
  for (const double target_ms : {10., 20., 30., 40., 80., 160.}) {
    if (lab.quick() && target_ms != 40) continue;
    TrafficRun run = BesideRun({.model = kLlama});
    run.target_ms = target_ms;
    FB_ASSIGN_OR_RETURN(
        const std::vector<TrafficOutcome> outcomes,
        RunEach(run, {kShift, key.below}, fmt::format(", {} ms", target_ms), lab, &finding));
    if (outcomes[1].batch_tokens_per_s <= 0) continue;  // only people's rows fit the target
    const double ratio = outcomes[0].batch_tokens_per_s / outcomes[1].batch_tokens_per_s;
    const bool first = finding.calibrated == 0;
    if (first || (key.somewhere ? ratio > finding.calibrated : ratio < finding.calibrated))
      finding.calibrated = ratio;
  }
  return finding;
}

constexpr char kQwen32[] = "Qwen3-32B";
constexpr std::string_view
    kAssumed =
        "8 x H200, FP8, 8,192 rows a step, --scheduling-policy interactive, --target-itl-ms 40 in "
        "all "
        "layouts",
    kBesideAssumed =
        "the same; a Poisson process of 4000 + 250 tokens beside 3,000 of these, 120 s";

std::vector<Keyed<StreamKey>> ByHeight(Ask ask, std::string_view printed) {
  std::vector<Keyed<StreamKey>> values;
  for (const auto& [model, name] : {std::pair(kLlama, "Llama"), std::pair(kQwen32, "Qwen3")}) {
    for (const int height : {5, 10, 20, 40})
      values.push_back({fmt::format("{}, {}/s", name, height), printed, {model, ask, height}});
  }
  return values;
}

std::vector<Keyed<BesideKey>> ByRequestRate(Ask ask, std::string_view printed) {
  std::vector<Keyed<BesideKey>> values;
  for (const auto& [model, name] : {std::pair(kLlama, "Llama"), std::pair(kQwen32, "Qwen3")}) {
    for (const double rate : {0.5, 1., 2.})
      values.push_back({fmt::format("{}, {}/s", name, rate), printed, {model, ask, rate}});
  }
  return values;
}

// A quarter of what DP sustains of each (SHA).
std::vector<Keyed<BesideKey>> OfRecordings(Ask ask, std::string_view printed) {
  return {{"code, 4/s", printed, {kLlama, ask, 4, Recording::kAzureCode}},
          {"conversation, 8/s", printed, {kLlama, ask, 8, Recording::kAzureConversation}}};
}

}  // namespace

// clang-format off
std::vector<Claim> TrafficClaims() {
  return {
      Row<StreamKey>(
          {"SHL.stream", kBeyondThePaper, "SH2's stream as people, its bursts as batches, by their height: p95 ITL over the target", kAssumed, Kind::kOrder},
          &StreamAndBursts, ByHeight(Ask::kItl, "< 1.1")),
      Row<StreamKey>(
          {"SHL.stream.ttft", kBeyondThePaper, "The same: median TTFT over that without bursts and a bounded step", kAssumed, Kind::kOrder},
          &StreamAndBursts, ByHeight(Ask::kTtft, "< 1.1")),
      Row<StreamKey>(
          {"SHL.stream.batch", kBeyondThePaper, "The same: tokens/s of bursts over those without the stream", kAssumed, Kind::kOrder},
          &StreamAndBursts, ByHeight(Ask::kBatch, "> 0.9")),
      Row<BesideKey>(
          {"SHL.beside", kBeyondThePaper, "People beside a batch, by requests/s: median TTFT over the better of SP8 and TP8", kBesideAssumed, Kind::kOrder},
          &PeopleBeside, ByRequestRate(Ask::kTtft, "< 1.05")),
      Row<BesideKey>(
          {"SHL.beside.batch", kBeyondThePaper, "The same: the batch's tokens/s over the better's", kBesideAssumed, Kind::kOrder},
          &PeopleBeside, ByRequestRate(Ask::kBatch, "> 0.98")),
      Row<BesideKey>(
          {"SHL.beside.alone", kBeyondThePaper, "The same beside nothing: mean TPOT over TP8's", kBesideAssumed, Kind::kOrder},
          &PeopleBeside, ByRequestRate(Ask::kTpot, "< 1.05")),
      Row<BlindKey>(
          {"SHL.blind", kBeyondThePaper, "Llama: policy and modes over SP8 with continuous: median TTFT, with bursts p95 ITL", kAssumed, Kind::kOrder, 0, {}, true},
          &WithAndWithout, {{"beside a batch, 1/s", "< 0.5", {}}, {"with bursts of 20/s", "< 1", {true}}}),
      Row<BesideKey>(
          {"SHL.recorded", kBeyondThePaper, "Azure's arrivals as people beside a batch: median TTFT over the better of SP8 and TP8", kBesideAssumed, Kind::kOrder},
          &PeopleBeside, OfRecordings(Ask::kTtft, "< 1.05")),
      Row<BesideKey>(
          {"SHL.recorded.batch", kBeyondThePaper, "The same: the batch's tokens/s over the better's", kBesideAssumed, Kind::kOrder},
          &PeopleBeside, OfRecordings(Ask::kBatch, "> 0.98")),
      Row<SweepKey>(
          {"SHL.sweep", kBeyondThePaper, "The batch's tokens/s beside people by their target, 10 to 160 ms: Shift's over another layout's", kBesideAssumed, Kind::kOrder, 0, {}, true},
          &SweepTargets,
          {{"over SP8, at the worst target", "> 0.99", {kSp8}}, {"over TP8, at the worst", "> 0.99", {kTp8}},
           {"over SP8, at the best", "> 1.2", {kSp8, true}}, {"over TP8, at the best", "> 1.2", {kTp8, true}}}),
  };
}
// clang-format on

}  // namespace forebay::repro

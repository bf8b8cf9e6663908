#include "repro/shift/runs.h"

#include <algorithm>

#include "cost/model.h"
#include "forebay/counter_names.h"
#include "model/builtin_configs.h"

namespace forebay::repro {
namespace {

constexpr int kRanks = 8;

trace::LengthTrace TraceOf(const ShiftTraffic& traffic, int64_t requests) {
  if (traffic.recorded != Recording::kNone)
    return RecordedTrace(traffic.recorded, requests, traffic.rate);
  trace::LengthTrace trace{.name = "shift"};
  for (int64_t i = 0; i < requests; ++i) {
    trace::TraceRow row{.prompt_tokens = traffic.prompt, .output_tokens = traffic.output};
    if (traffic.mixed)
      row = i % 2 == 0 ? trace::TraceRow{.prompt_tokens = 150, .output_tokens = 200}
                       : trace::TraceRow{.prompt_tokens = 6000, .output_tokens = 250};
    trace.rows.push_back(row);
  }
  return trace;
}

double PeakOf(const std::vector<StepRecord>& steps) {
  std::vector<double> tokens;  // by second
  for (const StepRecord& step : steps) {
    const double rate =
        (step.decode_rows + step.prefill_rows) / (step.end_seconds - step.begin_seconds);
    // A step's tokens are shared out among the seconds that it lies in.
    for (double begin = step.begin_seconds; begin < step.end_seconds;) {
      const auto second = static_cast<size_t>(begin);
      const double end = std::min(step.end_seconds, static_cast<double>(second + 1));
      if (tokens.size() <= second) tokens.resize(second + 1);
      tokens[second] += rate * (end - begin);
      begin = end;
    }
  }
  return tokens.empty() ? 0 : *std::ranges::max_element(tokens);
}

ShiftCosts CostsOf(const std::vector<device::OpProfile>& profile) {
  ShiftCosts costs;
  for (const device::OpProfile& entry : profile) {
    const double each = entry.seconds / kRanks;
    const std::string_view label = entry.label;
    const double calls = static_cast<double>(entry.calls) / kRanks;
    if (entry.kind == cost::OpKind::kLinear) {
      (label == "head" ? costs.head : costs.linear) += each;
    } else if (entry.kind == cost::OpKind::kAttention) {
      costs.attention += each;
    } else if (entry.kind == cost::OpKind::kEmbed) {
      // What a step costs the host is priced with its first operation.
      costs.host += each;
    } else if (label.starts_with("all_to_all")) {  // collectives are all of one kind
      costs.all_to_all.seconds += each;
      costs.all_to_all.count += calls;
      costs.all_to_all.bytes += entry.read_bytes / kRanks;
    } else if (label == "all_reduce" || label == "gather_sums") {
      costs.all_reduce.seconds += each;
      costs.all_reduce.count += calls;
      costs.all_reduce.bytes += entry.read_bytes / kRanks;
    } else if (entry.kind == cost::OpKind::kCollective) {
      costs.head_exchange += each;
    } else {
      costs.elementwise += each;
    }
  }
  return costs;
}

// What a meeting of so many ranks takes for a byte.
double LatencyOf(const cost::DeviceProfile& profile, cost::Collective collective, int ranks,
                 bool uncalibrated) {
  const cost::OpDesc least{
      .kind = cost::OpKind::kCollective, .read_bytes = 1, .collective = collective, .ranks = ranks};
  return cost::Price(
             least, profile,
             uncalibrated ? cost::Calibration::kUncalibrated : cost::Calibration::kCalibrated)
      .seconds;
}

base::Result<trace::SimulationResult> Simulate(const ShiftRun& run, int64_t requests) {
  const trace::LengthTrace trace = TraceOf(run.traffic, requests);
  job::ArrivalOptions when{.max_concurrency = run.traffic.concurrency,
                           .source = run.traffic.bursts};
  if (run.traffic.rate > 0 && run.traffic.recorded == Recording::kNone)
    when.request_rate = run.traffic.rate;
  FB_ASSIGN_OR_RETURN(job::Arrivals arrivals, job::PlanArrivals(when, requests, 0));
  FB_ASSIGN_OR_RETURN(trace::SimulationResult result,
                      trace::Simulate({.engine = OptionsOf(run),
                                       .trace = &trace,
                                       .arrivals = std::move(arrivals),
                                       .record_steps = true}));
  if (const int64_t failed = result.run.summary.failed; failed > 0) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("{} of {} requests of {} + {} tokens do not run on {}", failed,
                                    requests, run.traffic.prompt, run.traffic.output, run.model));
  }
  // The lab keeps results, and nobody reads these ids.
  for (StepRecord& step : result.steps) step.taken.clear();
  return result;
}

}  // namespace

layout::EngineOptions OptionsOf(const ShiftRun& run) {
  layout::EngineOptions options;
  options.model = "builtin:" + run.model;
  options.machine.devices = *layout::ParseDevices(fmt::format("sim:{}x{}", kRanks, run.device));
  options.machine.quantization.format = cost::NumberFormat::kFP8;
  options.machine.uncalibrated = run.uncalibrated;
  options.machine.tp_wire_bf16 = run.bf16_wire;
  const ShiftLayout& layout = run.layout;
  options.layout = layout::Layout{.dp = layout.dp, .tp = layout.tp, .sp = layout.sp};
  if (layout.by_expert) options.layout->experts = {&weights::kByExpert};
  if (layout.sp > 1 && !layout.shift)
    options.shift.mode = model::Degrees{.sp = layout.sp, .tp = layout.tp};
  if (layout.shift)
    options.shift.among = layout.ends ? layout::ModeChoice::kEnds : layout::ModeChoice::kAll;
  options.shift.threshold = layout.threshold;
  options.limits.max_num_batched_tokens = run.budget;
  options.limits.max_num_seqs = run.traffic.running;
  options.prefix_caching = false;
  options.profile = true;
  return options;
}

std::string NameOf(const ShiftLayout& layout) {
  std::string name = layout.sp > 1 && layout.tp > 1 ? fmt::format("SP{}xTP{}", layout.sp, layout.tp)
                     : layout.sp > 1                ? fmt::format("SP{}", layout.sp)
                     : layout.tp > 1                ? fmt::format("TP{}", layout.tp)
                                                    : fmt::format("DP{}", layout.dp);
  if (layout.tp > 1 && layout.dp > 1) name = fmt::format("{} x ", layout.dp) + name;
  if (layout.by_expert) name += " + EP";
  if (!layout.shift) return name;
  return (layout.ends ? "Shift " : "Shift, all modes of ") + name;
}

base::Result<ShiftOutcome> RunShift(const ShiftRun& asked, Lab& lab) {
  ShiftRun run = asked;
  lab.Substitute(&run.model, &run.device);
  const ShiftTraffic& traffic = run.traffic;
  const bool shortens = lab.quick() && traffic.requests > 16 && traffic.bursts.empty();
  const int64_t requests = shortens ? traffic.requests / 8 : traffic.requests;
  const std::string name = fmt::format(
      "{} {} {} {} {} {} | {} {} {} {} {} {} {} {} {} | {} {} {} {}", run.model, NameOf(run.layout),
      run.layout.dp, run.layout.shift, run.layout.ends, run.layout.threshold, traffic.prompt,
      traffic.output, requests, traffic.mixed, static_cast<int>(traffic.recorded),
      traffic.concurrency, traffic.rate, traffic.bursts, traffic.running, run.budget, run.device,
      run.uncalibrated, run.bf16_wire);
  FB_ASSIGN_OR_RETURN(const trace::SimulationResult* result,
                      lab.Simulate(name, [&] { return Simulate(run, requests); }));
  const job::JobSummary& summary = result->run.summary;
  ShiftOutcome outcome{.requests = static_cast<double>(requests),
                       .seconds = summary.elapsed_seconds,
                       .steps = static_cast<double>(summary.stats.steps) / run.layout.dp,
                       .peak_tokens_per_s = PeakOf(result->steps),
                       .latencies = result->run.latencies,
                       .preemptions = static_cast<double>(summary.stats.preemptions),
                       .shortened = shortens};
  outcome.tokens_per_s =
      static_cast<double>(summary.prompt_tokens + summary.output_tokens) / outcome.seconds;
  outcome.costs = CostsOf(result->run.profile);
  FB_ASSIGN_OR_RETURN(const cost::DeviceProfile profile, cost::LoadProfile(run.device));
  const int summing = run.layout.shift ? run.layout.sp * run.layout.tp : run.layout.tp;
  outcome.costs.all_to_all.latency =
      LatencyOf(profile, cost::Collective::kAllToAll, run.layout.sp, run.uncalibrated);
  outcome.costs.all_reduce.latency =
      LatencyOf(profile, cost::Collective::kAllReduce, summing, run.uncalibrated);
  FB_ASSIGN_OR_RETURN(const model::ModelConfig config, model::LoadBuiltinConfig(run.model));
  outcome.layers = static_cast<double>(config.num_layers);
  const auto counted = [&](const char* name) {
    return static_cast<double>(summary.stats.counter(name).value_or(0));
  };
  outcome.bytes_all_to_all = counted(counter_names::kBytesAllToAll);
  outcome.bytes_all_reduce = counted(counter_names::kBytesAllReduce);
  for (const StepRecord& step : result->steps)
    outcome.step_seconds += (step.end_seconds - step.begin_seconds) / run.layout.dp;
  return outcome;
}

double ShiftMeetings::rate() const {
  const double moving = seconds - count * latency;
  return moving > 0 ? bytes / moving : 0;
}

void ShiftCosts::operator-=(const ShiftCosts& less) {
  linear -= less.linear;
  head -= less.head;
  attention -= less.attention;
  head_exchange -= less.head_exchange;
  elementwise -= less.elementwise;
  host -= less.host;
  for (ShiftMeetings ShiftCosts::*kind : {&ShiftCosts::all_to_all, &ShiftCosts::all_reduce}) {
    ShiftMeetings& mine = this->*kind;
    mine.seconds -= (less.*kind).seconds;
    mine.count -= (less.*kind).count;
    mine.bytes -= (less.*kind).bytes;
  }
}

Account TermsOf(const ShiftOutcome& outcome) {
  const auto ms = [&](double seconds) { return 1e3 * seconds / outcome.steps; };
  const ShiftCosts& costs = outcome.costs;
  Account account = {{"steps", outcome.steps},
                     {"ms a step", ms(outcome.step_seconds)},
                     {"linears", ms(costs.linear)},
                     {"head", ms(costs.head)},
                     {"attention", ms(costs.attention)}};
  const auto add = [&](const char* name, const ShiftMeetings& meetings) {
    account.push_back({name, ms(meetings.seconds)});
    if (meetings.count <= 0) return;
    account.push_back({"= meetings", meetings.count / outcome.steps});
    account.push_back({"x us", 1e6 * meetings.latency});
    account.push_back({"+ MB", 1e-6 * meetings.bytes / outcome.steps});
    account.push_back({"/ GB/s", 1e-9 * meetings.rate()});
  };
  add("all-to-alls", costs.all_to_all);
  add("all-reduces", costs.all_reduce);
  for (Term& term : Account{{"head's exchange", ms(costs.head_exchange)},
                            {"elementwise", ms(costs.elementwise)},
                            {"host", ms(costs.host)},
                            {"waiting", ms(outcome.step_seconds - costs.sum())},
                            {"preemptions", outcome.preemptions}})
    account.push_back(std::move(term));
  return account;
}

}  // namespace forebay::repro

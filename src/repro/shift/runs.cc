#include "repro/shift/runs.h"

#include <algorithm>

#include "cost/operation.h"

namespace forebay::repro {
namespace {

constexpr int kDevices = 8;

layout::EngineOptions OptionsOf(const ShiftRun& run) {
  layout::EngineOptions options;
  options.model = "builtin:" + run.model;
  options.machine.devices = *layout::ParseDevices(fmt::format("sim:{}x{}", kDevices, run.device));
  options.machine.quantization = cost::NumberFormat::kFP8;
  options.machine.uncalibrated = run.uncalibrated;
  options.machine.tp_wire_bf16 = run.bf16_wire;
  const ShiftLayout& layout = run.layout;
  options.layout = layout::Layout{.dp = layout.dp, .tp = layout.tp, .sp = layout.sp};
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
    const double each = entry.seconds / kDevices;
    const std::string_view label = entry.label;
    if (entry.kind == cost::OpKind::kLinear) {
      costs.linear += each;
    } else if (entry.kind == cost::OpKind::kAttention) {
      costs.attention += each;
    } else if (entry.kind == cost::OpKind::kEmbed) {
      // What a step costs the host is priced with its first operation.
      costs.host += each;
    } else if (label.starts_with("all_to_all")) {  // collectives are all of one kind
      costs.all_to_all += each;
    } else if (label.starts_with("all_reduce")) {
      costs.all_reduce += each;
    } else if (entry.kind == cost::OpKind::kCollective) {
      costs.head_exchange += each;
    } else {
      costs.elementwise += each;
    }
  }
  return costs;
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

std::string NameOf(const ShiftLayout& layout) {
  std::string name = layout.sp > 1 && layout.tp > 1 ? fmt::format("SP{}xTP{}", layout.sp, layout.tp)
                     : layout.sp > 1                ? fmt::format("SP{}", layout.sp)
                     : layout.tp > 1                ? fmt::format("TP{}", layout.tp)
                                                    : fmt::format("DP{}", layout.dp);
  if (layout.tp > 1 && layout.dp > 1) name = fmt::format("{} x ", layout.dp) + name;
  if (!layout.shift) return name;
  return (layout.ends ? "Shift " : "Shift, all modes of ") + name;
}

base::Result<ShiftOutcome> RunShift(const ShiftRun& run, Lab& lab) {
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
  for (const StepRecord& step : result->steps)
    outcome.step_seconds += (step.end_seconds - step.begin_seconds) / run.layout.dp;
  return outcome;
}

Account TermsOf(const ShiftOutcome& outcome) {
  const auto ms = [&](double seconds) { return 1e3 * seconds / outcome.steps; };
  const ShiftCosts& costs = outcome.costs;
  return {{"steps", outcome.steps},
          {"ms a step", ms(outcome.step_seconds)},
          {"linears", ms(costs.linear)},
          {"attention", ms(costs.attention)},
          {"all-to-alls", ms(costs.all_to_all)},
          {"all-reduces", ms(costs.all_reduce)},
          {"head's exchange", ms(costs.head_exchange)},
          {"elementwise", ms(costs.elementwise)},
          {"host", ms(costs.host)},
          {"waiting", ms(outcome.step_seconds - costs.sum())},
          {"preemptions", outcome.preemptions}};
}

}  // namespace forebay::repro

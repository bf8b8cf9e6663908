#include "repro/dwdp/serving.h"

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "base/normal.h"
#include "job/traffic/arrivals.h"
#include "model/routing.h"

namespace forebay::repro {
namespace {

constexpr int32_t kRoundRows = 8192;
constexpr char kDevice[] = "gb200-nvl72";
// Normal lengths end there, in deviations.
constexpr double kFarthest = 2;

int32_t LongestOf(const Serving& serving) {
  return serving.prompt + static_cast<int32_t>(kFarthest * serving.deviation);
}

trace::LengthTrace TraceOf(const Serving& serving) {
  trace::LengthTrace trace{.name = "serving"};
  base::Rng rng(kSeed);
  for (int64_t i = 0; i < serving.requests; ++i) {
    double tokens = serving.prompt;
    if (serving.deviation > 0) {
      tokens += serving.deviation * std::clamp(base::Normal(rng), -kFarthest, kFarthest);
    } else {
      tokens *= 1 - rng.Uniform() * (1 - serving.ratio);
    }
    trace.rows.push_back({.prompt_tokens = std::max(1, static_cast<int32_t>(tokens)),
                          .output_tokens = serving.output});
  }
  return trace;
}

layout::EngineOptions OptionsOf(const Serving& serving) {
  layout::EngineOptions options;
  options.model = "builtin:DeepSeek-R1-NVFP4";
  options.machine.devices = *layout::ParseDevices(
      fmt::format("sim:{}x{}", serving.context_ranks() + serving.generation, kDevice));
  options.machine.routing = *model::ParseRouting(serving.routing, kSeed);
  options.machine.uncalibrated = serving.uncalibrated;
  options.profile = serving.by_category;
  options.machine.full_detail = serving.by_category && !serving.alone;
  options.machine.memory_utilization = kUtilization;
  if (serving.fp8_kv) options.machine.kv_cache_format = cost::NumberFormat::kFP8;
  const layout::Layout context{
      .groups = serving.groups, .dp = serving.ranks, .experts = {&weights::kByExpert}};
  options.ship.mode = serving.ships ? kShip : kPull;
  if (serving.generation > 0) {
    options.roles = {context,
                     {.dp = serving.generation, .experts = {&weights::kByExpert}},
                     schedule::WantedMode(kShip)};
  } else {
    options.layout = context;
  }
  options.ship.rounds.expert_rows = kRoundRows;
  options.ship.rounds.reduced_wire = true;
  options.ship.rounds.hides_return = false;  // as in the paper, where communication has its time
  options.pool.slots.look_ahead_layers = 1;  // two slots, as in the paper
  options.limits.max_num_batched_tokens = serving.rows;
  // A step of a context rank has as many prompts as it has room for. Ranks that read prompts and
  // decode them all alike have so many each.
  const bool alone = serving.batch > 0 && serving.generation == 0;
  options.limits.max_num_seqs =
      alone ? serving.batch + serving.batch / 16  // a rank may be dealt a few more
            : std::max(serving.batch, 4 * std::max(1, serving.rows / serving.prompt));
  options.limits.max_model_len = LongestOf(serving) + serving.output + 32;
  options.limits.mean_context = serving.prompt;
  options.prefix_caching = false;
  options.steal = layout::Stealing::kOff;
  return options;
}

// Breaks a run off.
class Clock final : public StepObserver {
 public:
  Clock(double seconds, RunControl& control) : seconds_(seconds), control_(control) {}
  void OnStep(const StepRecord& record) override {
    if (seconds_ > 0 && record.end_seconds > seconds_) control_.abort = true;
  }

 private:
  const double seconds_;
  RunControl& control_;
};

base::Result<trace::SimulationResult> Simulate(const Serving& serving) {
  const trace::LengthTrace trace = TraceOf(serving);
  job::ArrivalOptions when{.max_concurrency = serving.concurrency};
  if (serving.rate > 0) when.request_rate = serving.rate;
  FB_ASSIGN_OR_RETURN(job::Arrivals arrivals, job::PlanArrivals(when, serving.requests, kSeed));
  RunControl control;
  Clock clock(serving.seconds, control);
  FB_ASSIGN_OR_RETURN(trace::SimulationResult result,
                      trace::Simulate({.engine = OptionsOf(serving),
                                       .trace = &trace,
                                       .arrivals = std::move(arrivals),
                                       .observer = &clock,
                                       .record_steps = true,
                                       .control = &control}));
  if (const int64_t failed = result.run.summary.failed; failed > 0 && !control.abort) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("{} of {} requests of {} + {} tokens do not run", failed,
                                    serving.requests, serving.prompt, serving.output));
  }
  for (StepRecord& step : result.steps) step.taken.clear();
  return result;
}

std::string NameOf(const Serving& s) {
  return fmt::format("serving {} {}x{} {} | {} {} {} {} {} {} | {} {} {} {} | {} {} {} {}{}",
                     s.ships, s.groups, s.ranks, s.generation, s.prompt, s.ratio, s.deviation,
                     s.rows, s.output, s.batch, s.requests, s.concurrency, s.rate, s.seconds,
                     s.routing, s.uncalibrated, s.fp8_kv, s.by_category, s.alone);
}

}  // namespace

base::Result<Served> RunServing(const Serving& serving, Lab& lab) {
  FB_ASSIGN_OR_RETURN(const trace::SimulationResult* result,
                      lab.Simulate(NameOf(serving), [&] { return Simulate(serving); }));
  Served served{.seconds = result->run.summary.elapsed_seconds, .latencies = result->run.latencies};
  const bool broken_off = serving.seconds > 0;
  const auto [begin, end] = job::SteadyWindowOf(served.seconds, broken_off);
  double running = 0, decoding = 0;  // seconds: of choices, and of steps
  double whole = 0;                  // steps that decode a whole batch
  std::vector<StepRecord> context;
  double read = 0;  // when the last prompt was; a step with one makes all that ship in it wait
  for (const StepRecord& step : result->steps) {
    if (step.prefill_rows > 0) read = std::max(read, step.end_seconds);
  }
  for (const StepRecord& step : result->steps) {
    if (step.begin_seconds >= read && serving.batch > 0 &&
        std::abs(step.decode_rows - serving.batch) <= serving.batch / 32) {
      served.decoding_seconds += step.end_seconds - step.begin_seconds;
      ++whole;
    }
    const double within = std::min(end, step.end_seconds) - std::max(begin, step.begin_seconds);
    const double part = std::max(0.0, within) / (step.end_seconds - step.begin_seconds);
    if (step.role == GroupRole::kGeneration) {
      served.output_tokens_per_s += part * step.decode_rows / (end - begin);
      served.batch += part * step.decode_rows * (step.end_seconds - step.begin_seconds);
      running += std::max(0.0, within) * step.running;
      decoding += std::max(0.0, within);
    } else {
      served.context_tokens_per_s +=
          part * step.prefill_rows / (end - begin) / serving.context_ranks();
      context.push_back(step);
    }
  }
  if (whole > 0) served.decoding_seconds /= whole;
  if (decoding > 0) {
    served.batch /= decoding;
    served.tokens_per_s_user = served.output_tokens_per_s * (end - begin) / running;
  }
  std::vector<device::OpProfile> kernels;
  for (const engine::RankReport& rank : result->run.ranks) {
    if (rank.role != GroupRole::kGeneration)
      kernels.insert(kernels.end(), rank.profile.begin(), rank.profile.end());
  }
  served.times = AverageTimes(context, kernels, serving.context_ranks(), kDevice);
  return served;
}

}  // namespace forebay::repro

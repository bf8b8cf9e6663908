#include "repro/dwdp/context_steps.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "cost/model.h"
#include "engine/open_model.h"
#include "model/routing.h"
#include "repro/dwdp/roofline.h"

namespace forebay::repro {
namespace {

constexpr double kRoundingMs = 1e-4;  // what differences of sums may be off
// Requests in flight of slices that are over sooner than a request's latency.
constexpr int kSmallSlicesInFlight = 16;

int64_t StepsOf(const ContextSteps& setting, const Lab& lab) {
  if (setting.steps > 0) return setting.steps;
  return lab.quick() ? 2 : 6;
}

// How far ranks' lengths are from their mean, in deviations: equally far apart.
std::vector<double> Offsets(int ranks) {
  std::vector<double> offsets;
  double squares = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    offsets.push_back(rank - (ranks - 1) / 2.0);
    squares += offsets.back() * offsets.back();
  }
  for (double& offset : offsets) offset *= std::sqrt(ranks / squares);
  return offsets;
}

// All prompts, and who takes which: those of a rank's step one behind the other.
struct Prompts {
  trace::LengthTrace trace;
  engine::HandOutLog taken;
};
Prompts PromptsOf(const ContextSteps& setting, int64_t steps) {
  Prompts prompts;
  base::Rng rng(kSeed);
  const std::vector<double> offsets = Offsets(setting.ranks);
  prompts.taken.replicas.resize(static_cast<size_t>(setting.ranks));
  for (int64_t step = 0; step < steps; ++step) {
    for (size_t rank = 0; rank < offsets.size(); ++rank) {
      for (int64_t i = 0; i < setting.prompts(); ++i) {
        const double part = setting.rank_cv > 0 ? 1 + setting.rank_cv * offsets[rank]
                                                : 1 - rng.Uniform() * (1 - setting.ratio);
        const auto tokens = static_cast<int32_t>(static_cast<double>(setting.prompt) * part);
        prompts.taken.replicas[rank].push_back(
            {step, static_cast<int64_t>(prompts.trace.rows.size())});
        prompts.trace.rows.push_back(
            {.prompt_tokens = tokens, .output_tokens = static_cast<int32_t>(setting.output)});
      }
    }
  }
  return prompts;
}

layout::EngineOptions OptionsOf(const ContextSteps& setting) {
  layout::EngineOptions options;
  options.model = "builtin:" + setting.model;
  options.machine.devices =
      *layout::ParseDevices(fmt::format("sim:{}x{}", setting.ranks, setting.device));
  options.machine.routing = *model::ParseRouting(setting.routing, kSeed);
  options.machine.uncalibrated = setting.uncalibrated;
  options.machine.source_queues = setting.source_queues;
  if (setting.fp8_kv) options.machine.kv_cache_format = cost::NumberFormat::kFP8;
  // What is averaged is a step and its kernels; of a whole job the time alone counts.
  options.profile = setting.output == 1;
  options.machine.full_detail = options.profile && !setting.alone;
  options.layout = layout::Layout{.dp = setting.ranks, .experts = {&weights::kByExpert}};
  if (setting.auto_size) options.layout->expert_size.reset();
  // A rank whose prompts are longer than the mean has as many of them in a step.
  const double longest = 1 + setting.rank_cv * Offsets(setting.ranks).back();
  options.limits.max_num_batched_tokens =
      static_cast<int32_t>(static_cast<double>(setting.rows) * longest);
  options.limits.max_num_seqs =
      static_cast<int32_t>(setting.prompts() * (setting.output > 1 ? setting.steps : 1));
  options.limits.max_model_len =
      static_cast<int64_t>(static_cast<double>(setting.prompt) * longest) + 32 + setting.output;
  options.limits.mean_context = setting.prompt;
  options.ship.mode = setting.mode;
  options.ship.rounds.expert_rows = setting.round_rows;
  options.ship.rounds.hides_return = false;  // as in the paper, where communication has its time
  options.pool.peers = setting.peers;
  options.pool.waits_by_part = setting.by_part;
  options.pool.merges_experts = setting.merges;
  options.pool.begins_cold = setting.begins_cold;
  options.pool.slots.look_ahead_layers = 1;  // two slots, as in the paper
  options.machine.memory_utilization = kUtilization;
  if (setting.slice_bytes > 0) options.pool.requests_in_flight = kSmallSlicesInFlight;
  options.pool.slice_bytes = setting.slice_bytes;
  options.steal = layout::Stealing::kOff;
  return options;
}

// Where an operation's time is counted.
double ContextTimes::*CategoryOf(const device::OpProfile& entry) {
  const std::string_view label = entry.label;
  if (label.starts_with("ship_")) return &ContextTimes::exchange;
  if (label == "merge_experts") return &ContextTimes::merge;
  switch (entry.kind) {
    case cost::OpKind::kAttention: return &ContextTimes::attention;
    case cost::OpKind::kExperts: return &ContextTimes::grouped;
    case cost::OpKind::kLinear: return &ContextTimes::dense;
    default: return &ContextTimes::others;
  }
}

std::string NameOf(const ContextSteps& s, int64_t steps) {
  return fmt::format("context {} {} {} x{} {} {} {} {} {} {} {}{}{} {} {} {}{}{}{}{}{}{} {}",
                     s.device, s.model, s.routing, s.ranks, schedule::Name(s.mode), s.prompt,
                     s.ratio, s.rows, s.rank_cv, static_cast<int>(s.peers), s.by_part, s.merges,
                     s.begins_cold, s.slice_bytes, s.round_rows, s.source_queues, s.fp8_kv,
                     s.fp4_projections, s.uncalibrated, s.auto_size, s.alone, steps, s.output);
}

}  // namespace

base::Result<ContextTimes> RunContext(const ContextSteps& asked, Lab& lab) {
  ContextSteps setting = asked;
  lab.Substitute(&setting.model, &setting.device);
  const int64_t steps = StepsOf(setting, lab);
  const layout::EngineOptions options = OptionsOf(setting);
  const Prompts prompts = PromptsOf(setting, steps);
  const auto run = [&]() -> base::Result<trace::SimulationResult> {
    FB_ASSIGN_OR_RETURN(engine::ModelFiles files, engine::OpenModel(options.model, true, 0));
    if (setting.fp4_projections) files.config.stored->excluded.clear();
    return trace::Simulate({.engine = options,
                            .files = &files,
                            .trace = &prompts.trace,
                            .hand_out = &prompts.taken,
                            .record_steps = true});
  };
  FB_ASSIGN_OR_RETURN(const trace::SimulationResult* result,
                      lab.Simulate(NameOf(setting, steps), run));
  return AverageTimes(result->steps, result->run.profile, setting.ranks, setting.device);
}

base::Result<double> RunMixed(const ContextSteps& asked, Lab& lab) {
  ContextSteps setting = asked;
  lab.Substitute(&setting.model, &setting.device);
  FB_CHECK(setting.steps > 0 && setting.output > 1, "mixed steps of {} outputs", setting.output);
  const Prompts prompts = PromptsOf(setting, setting.steps);
  FB_ASSIGN_OR_RETURN(
      const trace::SimulationResult* result,
      lab.Simulate("mixed " + NameOf(setting, setting.steps), [&] {
        return trace::Simulate({.engine = OptionsOf(setting), .trace = &prompts.trace});
      }));
  const job::JobSummary& summary = result->run.summary;
  return static_cast<double>(summary.stats.computed_tokens) / summary.elapsed_seconds /
         setting.ranks;
}

ContextTimes AverageTimes(const std::vector<StepRecord>& steps,
                          const std::vector<device::OpProfile>& kernels, int ranks,
                          const std::string& device) {
  ContextTimes times;
  std::vector<double> waits(static_cast<size_t>(ranks), 0);
  double bytes = 0;
  for (const StepRecord& step : steps) {
    times.step += 1e3 * (step.end_seconds - step.begin_seconds);
    times.exposed += 1e3 * step.waits[WaitCause::kPull];
    times.waits += 1e3 * (step.waits.total() - step.waits[WaitCause::kPull]);
    waits[static_cast<size_t>(step.replica)] += 1e3 * step.waits.total();
    times.rows += step.prefill_rows;
    bytes += static_cast<double>(step.bytes_pulled);
  }
  for (const device::OpProfile& entry : kernels) times.*CategoryOf(entry) += 1e3 * entry.seconds;
  // What is neither a kernel's nor a wait is copies of the compute stream.
  times.exchange = times.step - times.compute() - times.waits - times.exposed;
  const cost::DeviceProfile profile = *cost::LoadProfile(device);
  times.fetch = 1e3 * bytes / cost::PullRate(profile);
  times.least_waits = *std::ranges::min_element(waits) * ranks;
  const auto count = static_cast<double>(steps.size());
  for (double ContextTimes::*each :
       {&ContextTimes::step, &ContextTimes::attention, &ContextTimes::grouped, &ContextTimes::dense,
        &ContextTimes::others, &ContextTimes::merge, &ContextTimes::waits, &ContextTimes::exposed,
        &ContextTimes::exchange, &ContextTimes::rows, &ContextTimes::fetch,
        &ContextTimes::least_waits})
    times.*each /= count;
  if (std::abs(times.exchange) < kRoundingMs) times.exchange = 0;
  return times;
}

ContextTimes WithSums(const ContextSteps& setting, ContextTimes times) {
  // Dispatch and combine of 32,768 rows a rank in NVFP4 (gb200_a2a.csv). Each name stands there for
  // two series; this is the faster one: 605.91 and not 1,551.23 us with four ranks.
  struct Measured {
    int ranks;
    double us;
  };
  constexpr Measured kMeasured[] = {
      {2, 380.90 + 715.95}, {4, 605.91 + 2102.39}, {8, 1400.57 + 4921.49}};
  const auto measured = std::ranges::find(kMeasured, setting.ranks, &Measured::ranks);
  const cost::DeviceProfile profile = *cost::LoadProfile(setting.device);
  const bool fp4 = setting.model.ends_with("NVFP4");
  const double layers = static_cast<double>(LayersWithExperts());
  const bool known =
      !setting.uncalibrated && setting.device == "gb200-nvl72" && measured != std::end(kMeasured);
  const double ms =
      known ? layers * 1e-3 * measured->us * times.rows / 32768
            : 1e3 * layers *
                  ExchangeBytes(times.rows, setting.ranks,
                                fp4 ? cost::NumberFormat::kNVFP4 : cost::NumberFormat::kFP8) /
                  cost::PullRate(profile);
  times.step += ms - times.exchange;
  times.exchange = ms;
  return times;
}

double ImpliedMeetings(const ContextTimes& dep, const ContextTimes& dwdp, double gain) {
  return gain * dwdp.step * dep.rows / dwdp.rows - dep.compute();
}

Account TermsOf(const ContextTimes& times) {
  return {{"rows", times.rows},
          {"step ms", times.step},
          {"attention", times.attention},
          {"grouped GEMM", times.grouped},
          {"dense GEMM", times.dense},
          {"others", times.others},
          {"merge", times.merge},
          {"exchange", times.exchange},
          {"waits", times.waits},
          {"fetch", times.fetch},
          {"exposed fetch", times.exposed}};
}

}  // namespace forebay::repro

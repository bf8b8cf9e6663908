#include "repro/lab.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"
#include "base/units.h"
#include "choose/decide.h"
#include "choose/layout_search.h"
#include "cost/model.h"
#include "engine/open_model.h"
#include "kernels/step_batch.h"
#include "model/builtin_configs.h"
#include "trace/synthetic_trace.h"

namespace forebay::repro {
namespace {

constexpr int64_t kSteps = 24;  // that all replicas decode together, about
constexpr double kTail = 0.7;   // deviation of the logarithm of a job's output lengths
// The choices of a job by which layouts are compared, and of a quick one.
constexpr int64_t kCompared = 1600, kComparedQuick = 200;

// Choices of a replica, or 0.
base::Result<int64_t> BatchOf(const GroupSetting& setting, const layout::LayoutPlan& plan) {
  if (!plan.Fits().ok()) return 0;
  // The policy keeps a block more for each.
  const auto reserved = static_cast<int64_t>(base::RoundUp(static_cast<uint64_t>(setting.context),
                                                           kernels::kBlockTokens)) +
                        kernels::kBlockTokens;
  const int64_t held = plan.ranks[0].memory.kv_tokens() / reserved;
  return std::min<int64_t>(held, setting.batch > 0 ? setting.batch : plan.machine.max_num_seqs);
}

struct Sums {
  double steps = 0, rows = 0, seconds = 0, waited = 0, bytes = 0;

  void operator+=(const Sums& other) {
    steps += other.steps, rows += other.rows, seconds += other.seconds, waited += other.waited,
        bytes += other.bytes;
  }
};

Sums SumOf(const StepRecord& step) {
  return {1, static_cast<double>(step.decode_rows), step.end_seconds - step.begin_seconds,
          step.waits.total(), static_cast<double>(step.bytes_pulled)};
}

// What a step takes on average.
template <typename Outcome>
void SetStep(const Sums& all, const GroupSetting& setting, const layout::LayoutPlan& plan,
             Outcome* outcome) {
  outcome->step_ms = 1e3 * all.seconds / all.steps;
  outcome->exposed_ms = 1e3 * all.waited / setting.tp / all.steps;
  outcome->fetch_ms =
      1e3 * all.bytes / setting.tp / cost::PullRate(plan.machine.profile) / all.steps;
}

// Over each replica's steps that decode a whole batch, but for the first and last of it in which
// others do not yet or no more.
std::vector<Sums> SumSteps(const std::vector<StepRecord>& steps, int64_t batch, int replicas) {
  const auto whole = [&](const StepRecord& step) {
    return step.decode_rows >= batch - batch / 32 && step.prefill_rows == 0;
  };
  const auto count = static_cast<size_t>(replicas);
  std::vector<double> first(count, std::numeric_limits<double>::infinity()), last(count, 0);
  for (const StepRecord& step : steps) {
    if (!whole(step)) continue;
    first[step.replica] = std::min(first[step.replica], step.begin_seconds);
    last[step.replica] = std::max(last[step.replica], step.end_seconds);
  }
  const double begin = *std::ranges::max_element(first), end = *std::ranges::min_element(last);
  std::vector<Sums> all(count), together(count);
  for (const StepRecord& step : steps) {
    if (!whole(step)) continue;
    all[step.replica] += SumOf(step);
    if (step.begin_seconds >= begin && step.end_seconds <= end)
      together[step.replica] += SumOf(step);
  }
  // Ranks that pull may be so far apart that they never all decode.
  const bool apart =
      std::ranges::any_of(together, [](const Sums& sum) { return sum.steps < kSteps / 4; });
  return apart ? all : together;
}

base::Result<Decoding> Measure(const GroupSetting& setting) {
  layout::EngineOptions options = OptionsOf(setting);
  FB_ASSIGN_OR_RETURN(engine::ModelFiles files, engine::OpenModel(options.model, true, 0));
  FB_ASSIGN_OR_RETURN(const choose::Decision plan, choose::Decide(options, files.config));
  Decoding decoding{.pool_layers = plan.layout.pool_layers.value_or(0),
                    .threshold = plan.group ? plan.group->load.threshold : 0};
  FB_ASSIGN_OR_RETURN(const int64_t batch, BatchOf(setting, plan));
  if (batch == 0) return decoding;
  decoding.kv_tokens = plan.ranks[0].memory.kv_tokens();
  decoding.batch = static_cast<double>(batch);
  // The first choice decodes while the others' prompts are computed.
  const int64_t prompt_steps = batch * setting.context / plan.machine.max_num_batched_tokens + 1;
  const int64_t output = std::min(setting.context - 1, prompt_steps + kSteps);
  const trace::TraceRow row{.prompt_tokens = static_cast<int32_t>(setting.context - output),
                            .output_tokens = static_cast<int32_t>(output)};
  const trace::LengthTrace trace{
      .rows = std::vector<trace::TraceRow>(static_cast<size_t>(batch * setting.dp()), row)};
  // What was chosen is not chosen again.
  options.layout = plan.layout;
  options.limits.max_num_seqs =
      static_cast<int32_t>(batch);  // so that each replica takes its share
  files.random_weights = false;
  FB_ASSIGN_OR_RETURN(
      const trace::SimulationResult run,
      trace::Simulate({.engine = options, .files = &files, .trace = &trace, .record_steps = true}));
  Sums all;
  for (const Sums& sums : SumSteps(run.steps, batch, setting.dp())) {
    if (sums.steps == 0)
      return base::Status(base::kInvalidArgument,
                          fmt::format("a replica of {} never decoded {} choices",
                                      layout::FormatLayout(plan.layout), batch));
    decoding.tokens_per_s += sums.rows / sums.seconds;
    all += sums;
  }
  SetStep(all, setting, plan, &decoding);
  return decoding;
}

// What all layouts of these devices, this model and these lengths have in common.
base::Result<LayoutsCompared> FindBest(const layout::EngineOptions& options,
                                       const model::ModelConfig& config) {
  FB_ASSIGN_OR_RETURN(const std::vector<choose::LayoutTrial> trials,
                      choose::RankLayouts(options, config));
  // With the rows and slots of all layouts alike.
  const auto found = std::ranges::find(trials, "", &choose::LayoutTrial::flags);
  const choose::LayoutTrial& best = found == trials.end() ? trials.front() : *found;
  FB_RETURN_IF_ERROR(best.refused);
  const layout::Layout& cut = best.plan->layout;
  std::string name = fmt::format("dp={},tp={},pp={}", cut.dp, cut.tp, cut.pp);
  if (cut.pools())
    name += fmt::format(",weights={},pool={}", cut.weights.text(), cut.pool_layers.value_or(0));
  return LayoutsCompared{.best = best.plan->forecast->tokens_per_s(),
                         .best_layout = std::move(name)};
}

base::Result<JobFigures> SimulateJob(const JobSetting& job) {
  const trace::LengthTrace trace = JobTrace(job);
  layout::EngineOptions options = OptionsOf(job.setting);
  options.limits.mean_context = 0;  // the trace's
  if (job.adaptive) options.policy = *schedule::FindPolicy("adaptive");
  FB_ASSIGN_OR_RETURN(const trace::SimulationResult run,
                      trace::Simulate({.engine = options, .trace = &trace, .record_steps = true}));
  const job::JobSummary& summary = run.run.summary;
  const auto counter = [&](const std::string& name) {
    return static_cast<double>(summary.stats.counter(name).value_or(0));
  };
  JobFigures outcome{
      .seconds = summary.elapsed_seconds,
      .tokens_per_s = static_cast<double>(summary.output_tokens) / summary.elapsed_seconds,
      .preemptions = static_cast<double>(summary.stats.preemptions),
      .recomputed_tokens = static_cast<double>(summary.stats.recomputed_tokens),
      .kv_tokens = static_cast<double>(summary.model.kv_capacity_tokens) / job.setting.dp()};
  outcome.steps_ship = counter(schedule::StepsCounter({.ffn = FfnMode::kShip})) / job.setting.tp;
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, engine::OpenModel(options.model, true, 0));
  FB_ASSIGN_OR_RETURN(const choose::Decision plan, choose::Decide(options, files.config));
  outcome.threshold = plan.group ? plan.group->load.threshold : 0;
  Sums all;
  for (const StepRecord& step : run.steps) all += SumOf(step);
  outcome.steps = all.steps;
  outcome.batch = all.rows / all.steps;
  SetStep(all, job.setting, plan, &outcome);
  return outcome;
}

}  // namespace

layout::EngineOptions OptionsOf(const GroupSetting& setting) {
  layout::EngineOptions options;
  options.model = "builtin:" + setting.model;
  options.machine.devices =
      *layout::ParseDevices(fmt::format("sim:{}x{}", setting.devices, setting.device));
  options.layout = layout::Layout{.dp = setting.dp(), .tp = setting.tp, .weights = setting.weights};
  if (setting.weights.pools() && setting.pool >= 0) options.layout->pool_layers = setting.pool;
  if (setting.weights.pools() && setting.pool == kAllLayers)
    options.layout->pool_layers = model::LoadBuiltinConfig(setting.model)->num_layers;
  options.machine.memory_utilization = setting.utilization;
  options.limits.mean_context = setting.context;
  options.ship.mode = setting.mode;
  options.pool.order =
      setting.as_used ? weights::FetchOrder::kAsUsed : weights::FetchOrder::kPeakShifted;
  options.pool.by_matrix = setting.by_matrix;
  options.pool.stream_per_owner = !setting.one_stream;
  if (setting.look_ahead > 0) options.pool.slots.look_ahead_layers = setting.look_ahead;
  options.ship.rounds.fuse = setting.fuse;
  options.ship.rounds.skip_idle = setting.skip_idle;
  options.machine.uncalibrated = setting.uncalibrated;
  if (setting.batch > 0) options.limits.max_num_seqs = static_cast<int32_t>(setting.batch);
  return options;
}

trace::LengthTrace JobTrace(const JobSetting& job) {
  const int64_t context = job.setting.context;
  const double mean_output =
      job.output > 0 ? static_cast<double>(job.output) : static_cast<double>(context) / 8;
  const double median = mean_output / std::exp(kTail * kTail / 2);
  auto trace = trace::MakeSyntheticTrace(
      fmt::format("synthetic:n={},prompt={},output=lognormal({},{})", job.requests,
                  context - (job.output > 0 ? job.output : context / 8), std::log(median), kTail));
  FB_CHECK(trace.ok(), "{}", trace.status().ToString());
  return *std::move(trace);
}

void Lab::Substitute(std::string* model, std::string* device) {
  if (!substitutes_.any()) return;
  substituted_ = true;
  if (!substitutes_.model.empty()) *model = substitutes_.model;
  if (!substitutes_.device.empty()) *device = substitutes_.device;
  if (!device->ends_with(substitutes_.numbers)) *device += substitutes_.numbers;
}

base::Result<Decoding> Lab::Decode(const GroupSetting& asked) {
  const GroupSetting setting = Substituted(asked);
  const auto found = decodings_.find(setting);
  if (found != decodings_.end()) return found->second;
  FB_ASSIGN_OR_RETURN(const Decoding decoding, Measure(setting));
  return decodings_.emplace(setting, decoding).first->second;
}

base::Result<LayoutsCompared> Lab::CompareLayouts(const GroupSetting& asked) {
  const GroupSetting setting = Substituted(asked);
  layout::EngineOptions options = OptionsOf(setting);
  options.limits.mean_context = 0;  // the job's
  const int64_t half = setting.context / 2;
  options.job = std::make_shared<std::vector<layout::ChoiceShape>>(
      quick_ ? kComparedQuick : kCompared,
      layout::ChoiceShape{.prompt = half, .output = half, .bound = half});
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, engine::OpenModel(options.model, true, 0));
  GroupSetting common = setting;
  common.tp = 1;
  common.weights = kReplicated;
  common.pool = kAllLayers;
  common.mode = kAuto;
  auto found = compared_.find(common);
  if (found == compared_.end()) {
    layout::EngineOptions any = options;
    any.layout.reset();
    any.ship.mode = kAuto;
    FB_ASSIGN_OR_RETURN(LayoutsCompared best, FindBest(any, files.config));
    found = compared_.emplace(common, std::move(best)).first;
  }
  LayoutsCompared compared = found->second;
  FB_ASSIGN_OR_RETURN(const choose::Decision plan, choose::Decide(options, files.config));
  if (plan.Fits().ok()) compared.own = plan.forecast->tokens_per_s();
  return compared;
}

base::Result<JobFigures> Lab::RunJob(const JobSetting& asked) {
  JobSetting setting = asked;
  setting.setting = Substituted(asked.setting);
  const auto found = jobs_.find(setting);
  if (found != jobs_.end()) return found->second;
  JobSetting shorter = setting;
  if (quick_) shorter.requests = std::max<int64_t>(1, setting.requests / 8);
  FB_ASSIGN_OR_RETURN(JobFigures outcome, SimulateJob(shorter));
  outcome.shortened = shorter.requests < setting.requests;
  return jobs_.emplace(setting, outcome).first->second;
}

base::Result<const trace::SimulationResult*> Lab::Simulate(
    const std::string& name, const std::function<base::Result<trace::SimulationResult>()>& run) {
  const auto found = simulations_.find(name);
  if (found != simulations_.end()) return &found->second;
  FB_ASSIGN_OR_RETURN(trace::SimulationResult result, run());
  return &simulations_.emplace(name, std::move(result)).first->second;
}

}  // namespace forebay::repro

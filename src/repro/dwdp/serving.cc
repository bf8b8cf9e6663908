#include "repro/dwdp/serving.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "base/normal.h"
#include "engine/open_model.h"
#include "job/traffic/arrivals.h"
#include "model/builtin_configs.h"
#include "model/decoder_weights.h"
#include "model/files/config_reader.h"
#include "model/routing.h"
#include "weights/random_reader.h"

namespace forebay::repro {
namespace {

constexpr int32_t kRoundRows = 8192;
// Normal lengths end there, in deviations.
constexpr double kFarthest = 2;

int32_t LongestOf(const Serving& serving) {
  return serving.prompt + static_cast<int32_t>(kFarthest * serving.deviation);
}

trace::LengthTrace TraceOf(const Serving& serving) {
  trace::LengthTrace trace{.name = "serving", .choices = serving.rows_a_choice()};
  const auto output = static_cast<int32_t>(
      std::max<int64_t>(1, std::llround(serving.output / serving.tokens_a_step)));
  base::Rng rng(kSeed);
  for (int64_t i = 0; i < serving.requests; ++i) {
    double tokens = serving.prompt;
    if (serving.deviation > 0) {
      tokens += serving.deviation * std::clamp(base::Normal(rng), -kFarthest, kFarthest);
    } else {
      tokens *= 1 - rng.Uniform() * (1 - serving.ratio);
    }
    trace.rows.push_back(
        {.prompt_tokens = std::max(1, static_cast<int32_t>(tokens)), .output_tokens = output});
  }
  return trace;
}

// The model with a layer more for each draft that is predicted (Serving::drafts).
base::Result<engine::ModelFiles> FilesOf(const Serving& serving) {
  const std::string name = std::string(model::kBuiltinPrefix) + serving.model;
  FB_ASSIGN_OR_RETURN(engine::ModelFiles files, engine::OpenModel(name, true, 0));
  if (serving.drafts == 0) return files;
  std::string json(model::FindBuiltinConfig(name)->json);
  constexpr std::string_view kLayers = "\"num_hidden_layers\": ";
  const size_t key = json.find(kLayers), begin = key + kLayers.size(), end = json.find(',', begin);
  FB_CHECK(key != json.npos, "{} does not say how many layers it has", name);
  json.replace(begin, end - begin, fmt::format("{}", files.config.num_layers + serving.drafts));
  FB_ASSIGN_OR_RETURN(files.config, model::ParseHfConfig(json, name));
  files.reader = std::make_unique<weights::RandomReader>(
      0, model::PlanDecoder(files.config, tensor::DType::kBF16).TensorShapes());
  return files;
}

layout::EngineOptions OptionsOf(const Serving& serving) {
  layout::EngineOptions options;
  options.model = "builtin:" + serving.model;
  options.machine.devices = *layout::ParseDevices(
      fmt::format("sim:{}x{}", serving.context_ranks() + serving.generation, serving.device));
  options.machine.routing = *model::ParseRouting(serving.routing, kSeed);
  options.machine.uncalibrated = serving.uncalibrated;
  options.profile = serving.by_category;
  options.machine.full_detail = serving.by_category && !serving.alone;
  options.machine.memory_utilization = kUtilization;
  if (serving.fp8_kv) options.machine.kv_cache_format = cost::NumberFormat::kFP8;
  // The ranks of a replica that is cut have a part of every layer's experts each, and ship nothing.
  const auto generating = [&](int ranks) {
    layout::Layout layout{.dp = layout::ReplicasOn(ranks, serving.tp, 1), .tp = serving.tp};
    if (serving.tp == 1) layout.experts = {&weights::kByExpert};
    return layout;
  };
  const layout::Layout context{
      .groups = serving.groups, .dp = serving.ranks, .experts = {&weights::kByExpert}};
  options.ship.mode = serving.ships ? kShip : kPull;
  if (serving.generation > 0) {
    options.roles = {context, generating(serving.generation),
                     serving.tp == 1 ? schedule::WantedMode(kShip) : kAuto};
  } else if (serving.tp > 1) {
    options.layout = generating(serving.ranks);
    options.ship.mode = kAuto;
  } else {
    options.layout = context;
  }
  // All ranks' rows may go to one rank: a larger group takes smaller rounds.
  options.ship.rounds.expert_rows =
      std::min(kRoundRows, 8 * kRoundRows / std::max(serving.ranks, serving.generation));
  options.ship.rounds.reduced_wire = true;
  options.ship.rounds.hides_return = false;  // as in the paper, where communication has its time
  options.pool.slots.look_ahead_layers = 1;  // two slots, as in the paper
  options.limits.max_num_batched_tokens = serving.rows;
  // A step of a context rank has as many prompts as it has room for. Ranks that read prompts and
  // decode them all alike have so many each.
  const bool alone = serving.batch > 0 && serving.generation == 0;
  const auto rows = static_cast<int32_t>(serving.batch_rows());
  options.limits.max_num_seqs =
      alone ? rows + rows / 16  // a rank may be dealt a few more
            : std::max(rows,
                       4 * serving.rows_a_choice() * std::max(1, serving.rows / serving.prompt));
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
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, FilesOf(serving));
  RunControl control;
  Clock clock(serving.seconds, control);
  FB_ASSIGN_OR_RETURN(trace::SimulationResult result,
                      trace::Simulate({.engine = OptionsOf(serving),
                                       .files = &files,
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
  return fmt::format(
      "serving {} {} {} {}x{} {} {} {} {} | {} {} {} {} {} {} | {} {} {} {} | {} {} {} {}{}",
      s.device, s.model, s.ships, s.groups, s.ranks, s.generation, s.tp, s.drafts, s.tokens_a_step,
      s.prompt, s.ratio, s.deviation, s.rows, s.output, s.batch, s.requests, s.concurrency, s.rate,
      s.seconds, s.routing, s.uncalibrated, s.fp8_kv, s.by_category, s.alone);
}

}  // namespace

base::Result<Served> RunServing(const Serving& asked, Lab& lab) {
  Serving serving = asked;
  lab.Substitute(&serving.model, &serving.device);
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
        std::abs(step.decode_rows - serving.batch_rows()) <= serving.batch_rows() / 32) {
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
    served.batch /= decoding * serving.tp * serving.rows_a_choice();
    served.tokens_per_s_user =
        serving.tokens_a_step * served.output_tokens_per_s * (end - begin) / running;
    served.output_tokens_per_s *= serving.tokens_a_step / serving.rows_a_choice();
  }
  std::vector<device::OpProfile> kernels;
  for (const engine::RankReport& rank : result->run.ranks) {
    if (rank.role != GroupRole::kGeneration)
      kernels.insert(kernels.end(), rank.profile.begin(), rank.profile.end());
  }
  served.times = AverageTimes(context, kernels, serving.context_ranks(), serving.device);
  return served;
}

}  // namespace forebay::repro

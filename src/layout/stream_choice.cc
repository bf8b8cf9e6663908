#include "layout/stream_choice.h"

#include <algorithm>

#include "base/units.h"
#include "kv/tier/window.h"
#include "layout/job_price.h"
#include "layout/stream_price.h"

namespace forebay::layout {
namespace {

constexpr int32_t kAsManyAsFit = INT32_MAX, kTrials = 24;
// What a prediction must promise to be followed, what is as good as the best, and what counts as
// hidden.
constexpr double kWorthIt = 1.02, kAsGood = 0.99, kHidden = 0.02;
// A running choice's context where nothing is known of the job, at most.
constexpr int64_t kMostMeanContext = 2048;

int64_t MeanContext(const EngineOptions& options, const MemoryPlan& memory) {
  if (options.limits.mean_context > 0) return options.limits.mean_context;
  if (options.job == nullptr || options.job->empty())
    return std::clamp<int64_t>(memory.max_model_len / 4, 1, kMostMeanContext);
  int64_t sum = 0;
  for (const ChoiceShape& choice : *options.job) sum += choice.prompt + choice.output / 2;
  return std::max<int64_t>(1, sum / std::ssize(*options.job));
}

// As many choices of mean context as there is room for.
struct FullBatch {
  int64_t batch, context;

  FullBatch(const EngineOptions& options, const LayoutPlan& plan)
      : batch(0), context(MeanContext(options, plan.ranks[0].memory)) {
    batch = std::min<int64_t>(plan.machine.max_num_seqs,
                              plan.ranks[0].memory.kv_tokens() / (context + kernels::kBlockTokens));
  }
  double held_blocks() const { return HeldBlocks(batch * context, batch); }
};

StreamTrial Try(const EngineOptions& options, const model::ModelConfig& config,
                const StepPricer& pricer, const LayoutPlan& plan) {
  const MemoryPlan& memory = plan.ranks[0].memory;
  StreamTrial trial{.blocks = memory.streamed_blocks};
  const FullBatch full(options, plan);
  if (full.batch == 0) return trial;
  const kv::OffloadPlan step = PriceStreaming(pricer, plan.machine, memory, full.held_blocks(),
                                              pricer.Decode(full.batch, full.context).all());
  trial.exposed = step.exposed_seconds / step.step_seconds;
  trial.tokens_per_s = options.job != nullptr && !config.moe
                           ? ForecastOf(options, config, plan, pricer).tokens_per_s()
                           : static_cast<double>(full.batch) / step.step_seconds;
  return trial;
}

// What the paper's first algorithm would send away of a full batch, with a layer's own time.
std::string SomeLayers(const EngineOptions& options, const StepPricer& pricer,
                       const LayoutPlan& plan) {
  const FullBatch full(options, plan);
  const kv::OffloadCosts costs =
      StreamingCosts(pricer, plan.machine, plan.ranks[0].memory, full.held_blocks(),
                     /*streamed_blocks=*/0, pricer.Decode(full.batch, full.context).all());
  const kv::OffloadPlan some = kv::PlanKeepSome(costs, kv::kWindowSlots, kHidden);
  return fmt::format(
      "by the prices of {} {} of {} layers can live below whole and stay hidden, which frees {}; "
      "plans that keep some layers are priced (forebay repro VA9) and not run; expected uniform, "
      "which frees no less, or off",
      plan.machine.profile.name, costs.num_layers - some.kept_layers, costs.num_layers,
      base::FormatBytes(static_cast<uint64_t>(std::max(0.0, some.saved_bytes(costs)))));
}

}  // namespace

StreamTrial ChooseFastest(const std::vector<StreamTrial>& trials) {
  const double best =
      std::ranges::max_element(trials, {}, &StreamTrial::tokens_per_s)->tokens_per_s;
  if (best <= kWorthIt * trials.front().tokens_per_s) return trials.front();
  return *std::ranges::find_if(
      trials, [&](const StreamTrial& trial) { return trial.tokens_per_s >= kAsGood * best; });
}

StreamTrial ChooseHidden(const std::vector<StreamTrial>& trials) {
  StreamTrial most = trials.front();
  for (const StreamTrial& trial : trials) {
    if (trial.exposed <= kHidden && trial.blocks > most.blocks) most = trial;
  }
  return most;
}

std::string CannotStream(const TierOptions& tier, const LayoutPlan& plan) {
  const MemoryPlan& memory = plan.ranks[0].memory;
  if (memory.tier_blocks.all() == 0)
    return "there is nothing below the device; expected --kv-offloading-size or --kv-file beside "
           "it";
  if (memory.tier_blocks.in_memory == 0 && tier.keep_file)
    return "what lies below is in a file that is kept, whose blocks are read whole; expected "
           "--kv-offloading-size beside it, or no --kv-file-keep";
  if (plan.layout.pp > 1)
    return fmt::format("stages have steps of several choices in flight; expected pp=1, not {}",
                       plan.layout.pp);
  if (plan.steps_in_flight > 1)
    return fmt::format("{} steps are in flight; expected --steps-in-flight 1",
                       plan.steps_in_flight);
  return LayersCannotStream(memory);
}

base::Status PlanStreaming(const EngineOptions& options, const model::ModelConfig& config,
                           const std::function<const StepPricer&()>& pricer, const Divide& divide,
                           LayoutPlan* plan) {
  const Offloading wanted = options.tier.offload;
  const bool forced = wanted != Offloading::kAuto && wanted != Offloading::kOff;
  const auto refuse = [&](std::string_view why) {
    return base::Status(kCannotStream, fmt::format("--kv-offload {}: {}", Name(wanted), why));
  };
  const std::string why_not =
      options.roles
          ? "KV goes over to the ranks of another role, which cannot read what lies below; "
            "expected --layout, or off"
          : CannotStream(options.tier, *plan);
  if (!why_not.empty()) return forced ? refuse(why_not) : base::Status::Ok();
  if (wanted == Offloading::kOff) return {};
  LayoutPlan most = *plan;
  FB_RETURN_IF_ERROR(divide(kAsManyAsFit, &most));
  const int32_t fitting = most.ranks[0].memory.streamed_blocks;
  if (fitting == 0) {
    return forced ? refuse(
                        "the device holds all that --max-num-seqs choices can use; expected "
                        "less --memory, or off")
                  : base::Status::Ok();
  }
  if (wanted == Offloading::kAlg1 || wanted == Offloading::kAlg2 || wanted == Offloading::kMax) {
    const StreamTrial all = Try(options, config, pricer(), most);
    if (wanted != Offloading::kAlg1 && all.exposed <= kHidden) {
      *plan = std::move(most);
      return {};
    }
    if (wanted != Offloading::kAlg2) return refuse(SomeLayers(options, pricer(), most));
    return refuse(
        fmt::format("by the prices of {} the copies of all layers, {} blocks, take {:.0f} % of a "
                    "step that is not hidden; expected uniform, or off",
                    plan->machine.profile.name, all.blocks, 100 * all.exposed));
  }
  // A context that the device does not hold leaves no choice.
  if (wanted == Offloading::kAlways || !plan->Fits().ok()) {
    *plan = std::move(most);
    return {};
  }
  // Nothing is foreseen by the prices of another machine, nor where pulls want the link, too.
  if (!forced && (!plan->machine.prices_modes || plan->layout.pools())) return {};
  std::vector<StreamTrial> trials{Try(options, config, pricer(), *plan)};
  for (int32_t i = 1; i <= kTrials; ++i) {
    LayoutPlan trial = *plan;
    // Closer to each other where they are few: of many, copies show.
    const auto blocks = static_cast<int32_t>(int64_t{fitting} * i * i / (kTrials * kTrials));
    if (blocks == trials.back().blocks) continue;
    FB_RETURN_IF_ERROR(divide(blocks, &trial));
    trials.push_back(Try(options, config, pricer(), trial));
  }
  const StreamTrial chosen = forced ? ChooseHidden(trials) : ChooseFastest(trials);
  if (forced && chosen.blocks == 0) {
    return refuse(
        fmt::format("by the prices of {} the copies of {} blocks take {:.0f} % of a step "
                    "that is not hidden; expected always, or off",
                    plan->machine.profile.name, trials[1].blocks, 100 * trials[1].exposed));
  }
  return chosen.blocks > 0 ? divide(chosen.blocks, plan) : base::Status::Ok();
}

}  // namespace forebay::layout

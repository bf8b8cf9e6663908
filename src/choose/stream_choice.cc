#include "choose/stream_choice.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/units.h"
#include "choose/job_price.h"
#include "choose/pool_choice.h"
#include "cost/copy_forms.h"
#include "kv/tier/window.h"
#include "price/stream_price.h"

namespace forebay::choose {
namespace {

constexpr int32_t kAsManyAsFit = INT32_MAX, kTrials = 24;
// The least limits of a step that are tried.
constexpr int32_t kLeastRows = 128, kLeastChoices = 16;
// What a prediction must promise to be followed, what is as good as the best, and what counts as
// hidden.
constexpr double kWorthIt = 1.02, kAsGood = 0.99, kHidden = 0.02;

int64_t MeanContext(const layout::EngineOptions& options, const layout::MemoryPlan& memory) {
  if (options.limits.mean_context > 0) return options.limits.mean_context;
  if (options.job == nullptr || options.job->empty()) return AssumedContext(memory.max_model_len);
  int64_t sum = 0;
  for (const layout::ChoiceShape& choice : *options.job) sum += choice.prompt + choice.output / 2;
  return std::max<int64_t>(1, sum / std::ssize(*options.job));
}

// As many choices of mean context as there is room for.
struct FullBatch {
  int64_t batch, context;

  FullBatch(const layout::EngineOptions& options, const layout::LayoutPlan& plan)
      : batch(0), context(MeanContext(options, plan.ranks[0].memory)) {
    batch = std::min<int64_t>(plan.machine.max_num_seqs,
                              plan.ranks[0].memory.kv_tokens() / (context + kernels::kBlockTokens));
  }
  double held_blocks() const { return price::HeldBlocks(batch * context, batch); }
};

// Whether a forecast of the job says what a plan comes to; else its full batches do.
bool Forecasts(const layout::EngineOptions& options, const layout::LayoutPlan& plan) {
  return options.job != nullptr && !plan.config.moe;
}

StreamTrial Try(const layout::EngineOptions& options, const price::StepPricer& pricer,
                const layout::LayoutPlan& plan) {
  const layout::MemoryPlan& memory = plan.ranks[0].memory;
  StreamTrial trial{.blocks = memory.streamed_blocks,
                    .max_num_seqs = plan.machine.max_num_seqs,
                    .max_num_batched_tokens = plan.machine.max_num_batched_tokens};
  const FullBatch full(options, plan);
  if (full.batch == 0) return trial;
  const kv::OffloadPlan step =
      price::PriceStreaming(pricer, plan.machine, memory, full.held_blocks(),
                            pricer.Decode(full.batch, full.context).all(),
                            price::PullsOf(pricer, plan.machine, plan.ranks[0].request.pool));
  trial.exposed = step.exposed_seconds / step.step_seconds;
  trial.tokens_per_s = Forecasts(options, plan)
                           ? ForecastOf(options, plan.config, plan, pricer).tokens_per_s()
                           : static_cast<double>(full.batch) / step.step_seconds;
  return trial;
}

// The draft of a plan with other blocks and limits.
layout::LayoutDraft DraftOf(const layout::LayoutPlan& plan, const StreamTrial& trial) {
  layout::LayoutDraft draft = plan;
  draft.streamed_blocks = trial.blocks;
  draft.machine.max_num_seqs = trial.max_num_seqs;
  draft.machine.max_num_batched_tokens = trial.max_num_batched_tokens;
  return draft;
}

// What `auto` chooses from.
class Search {
 public:
  Search(const layout::EngineOptions& options, const price::StepPricer& pricer,
         const PlanOf& plan_of, const layout::LayoutPlan& plan, int32_t fitting)
      : options_(options), pricer_(pricer), plan_of_(plan_of), plan_(plan), fitting_(fitting) {}

  // With the blocks and limits of `like`; nothing where that does not fit, or results would depend
  // on it.
  base::Result<std::optional<StreamTrial>> With(const StreamTrial& like) const {
    FB_ASSIGN_OR_RETURN(const layout::LayoutPlan trial, plan_of_(DraftOf(plan_, like)));
    if (trial.ranks[0].memory.max_model_len != plan_.ranks[0].memory.max_model_len ||
        !trial.Fits().ok())
      return std::optional<StreamTrial>();
    return std::optional(Try(options_, pricer_, trial));
  }

  // None and more and more blocks.
  base::Result<std::vector<StreamTrial>> Blocks(StreamTrial like) const {
    std::vector<StreamTrial> trials;
    for (int32_t i = 0; i <= kTrials; ++i) {
      // Closer to each other where they are few: of many, copies show.
      like.blocks = static_cast<int32_t>(int64_t{fitting_} * i * i / (kTrials * kTrials));
      if (!trials.empty() && like.blocks == trials.back().blocks) continue;
      FB_ASSIGN_OR_RETURN(const auto trial, With(like));
      if (trial) trials.push_back(*trial);
    }
    return trials;
  }

  // Other limits beside the chosen blocks, then other blocks beside these limits.
  base::Result<StreamTrial> Limits(StreamTrial chosen) const {
    // In which mode ranks that cut rows take a step was planned by the rows that it may have.
    if (plan_.layout.sp > 1) return chosen;
    const int32_t rows = chosen.max_num_batched_tokens, choices = chosen.max_num_seqs;
    if (options_.limits.max_num_batched_tokens == 0 && Forecasts(options_, plan_)) {
      std::vector<StreamTrial> trials{chosen};
      for (int32_t less = rows / 2; less >= kLeastRows; less /= 2)
        FB_RETURN_IF_ERROR(Add(chosen, chosen.max_num_seqs, less, &trials));
      chosen = ChooseFastest(trials);
    }
    if (options_.limits.max_num_seqs == 0) {
      std::vector<StreamTrial> trials{chosen};
      // More than steps were priced for cannot be judged.
      for (const int32_t other : {choices * 2, choices / 2, choices / 4}) {
        if (other <= pricer_.decoder().capacity.rows && other >= kLeastChoices)
          FB_RETURN_IF_ERROR(Add(chosen, other, chosen.max_num_batched_tokens, &trials));
      }
      chosen = ChooseFastest(trials);
    }
    if (chosen.max_num_batched_tokens == rows && chosen.max_num_seqs == choices) return chosen;
    FB_ASSIGN_OR_RETURN(std::vector<StreamTrial> trials, Blocks(chosen));
    trials.push_back(chosen);
    return *std::ranges::max_element(trials, {}, &StreamTrial::tokens_per_s);
  }

 private:
  base::Status Add(StreamTrial like, int32_t choices, int32_t rows,
                   std::vector<StreamTrial>* trials) const {
    like.max_num_seqs = choices;
    like.max_num_batched_tokens = rows;
    FB_ASSIGN_OR_RETURN(const auto trial, With(like));
    if (trial) trials->push_back(*trial);
    return {};
  }

  const layout::EngineOptions& options_;
  const price::StepPricer& pricer_;
  const PlanOf& plan_of_;
  const layout::LayoutPlan& plan_;
  const int32_t fitting_;
};

std::string Describe(const StreamTrial& chosen, const StreamTrial& without,
                     const layout::LayoutPlan& plan) {
  return fmt::format(
      "kv-offload=auto: {} blocks of running choices below, at most {} choices and {} rows a step, "
      "by the prices of {}{}: {:.0f} tokens/s; none, {} and {}: {:.0f}",
      chosen.blocks, chosen.max_num_seqs, chosen.max_num_batched_tokens, plan.machine.profile.name,
      cost::HasHostCurve(plan.machine.profile)
          ? ""
          : ", whose link to the host has no measured curve (its datasheet's rate)",
      chosen.tokens_per_s, without.max_num_seqs, without.max_num_batched_tokens,
      without.tokens_per_s);
}

// What the paper's first algorithm would send away of a full batch, with a layer's own time.
std::string SomeLayers(const layout::EngineOptions& options, const price::StepPricer& pricer,
                       const layout::LayoutPlan& plan) {
  const FullBatch full(options, plan);
  const kv::OffloadCosts costs =
      price::StreamingCosts(pricer, plan.machine, plan.ranks[0].memory, full.held_blocks(),
                            /*streamed_blocks=*/0, pricer.Decode(full.batch, full.context).all(),
                            price::PullsOf(pricer, plan.machine, plan.ranks[0].request.pool));
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

std::string CannotStream(const layout::TierOptions& tier, const layout::LayoutPlan& plan) {
  const layout::MemoryPlan& memory = plan.ranks[0].memory;
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
  return layout::LayersCannotStream(memory);
}

base::Result<std::string> ChooseStreaming(const layout::EngineOptions& options,
                                          const std::function<const price::StepPricer&()>& pricer,
                                          const PlanOf& plan_of, layout::LayoutPlan* plan) {
  const layout::Offloading wanted = options.tier.offload;
  const bool forced = wanted != layout::Offloading::kAuto && wanted != layout::Offloading::kOff;
  const auto refuse = [&](std::string_view why) {
    return base::Status(kCannotStream, fmt::format("--kv-offload {}: {}", Name(wanted), why));
  };
  const std::string why_not =
      options.roles
          ? "KV goes over to the ranks of another role, which cannot read what lies below; "
            "expected --layout, or off"
          : CannotStream(options.tier, *plan);
  const auto none = [&](std::string_view why) {
    if (wanted != layout::Offloading::kAuto || plan->ranks[0].memory.tier_blocks.all() == 0)
      return std::string();
    return fmt::format("kv-offload=auto: nothing is streamed: {}", why);
  };
  if (!why_not.empty()) {
    if (forced) return refuse(why_not);
    return none(why_not);
  }
  if (wanted == layout::Offloading::kOff) return std::string();
  const StreamTrial as_planned{.max_num_seqs = plan->machine.max_num_seqs,
                               .max_num_batched_tokens = plan->machine.max_num_batched_tokens};
  const auto with = [&](int32_t blocks) {
    StreamTrial trial = as_planned;
    trial.blocks = blocks;
    return plan_of(DraftOf(*plan, trial));
  };
  FB_ASSIGN_OR_RETURN(layout::LayoutPlan most, with(kAsManyAsFit));
  const int32_t fitting = most.ranks[0].memory.streamed_blocks;
  if (fitting == 0) {
    if (!forced) return std::string();
    return refuse(
        "the device holds all that --max-num-seqs choices can use; expected less --memory, or off");
  }
  if (wanted == layout::Offloading::kAlg1 || wanted == layout::Offloading::kAlg2 ||
      wanted == layout::Offloading::kMax) {
    const StreamTrial all = Try(options, pricer(), most);
    if (wanted != layout::Offloading::kAlg1 && all.exposed <= kHidden) {
      *plan = std::move(most);
      return std::string();
    }
    if (wanted != layout::Offloading::kAlg2) return refuse(SomeLayers(options, pricer(), most));
    return refuse(
        fmt::format("by the prices of {} the copies of all layers, {} blocks, take {:.0f} % of a "
                    "step that is not hidden; expected uniform, or off",
                    plan->machine.profile.name, all.blocks, 100 * all.exposed));
  }
  // A context that the device does not hold leaves no choice.
  if (wanted == layout::Offloading::kAlways || !plan->Fits().ok()) {
    *plan = std::move(most);
    return std::string();
  }
  if (!forced && !plan->machine.prices_modes)
    return none("no profile has the prices of this machine; expected --device-profile");
  if (!forced && plan->layout.pools_experts())
    return none("ranks share experts, and text decides how long their steps wait");
  const Search search(options, pricer(), plan_of, *plan, fitting);
  FB_ASSIGN_OR_RETURN(const std::vector<StreamTrial> trials, search.Blocks(as_planned));
  if (forced) {
    const StreamTrial chosen = ChooseHidden(trials);
    if (chosen.blocks > 0) {
      FB_ASSIGN_OR_RETURN(*plan, with(chosen.blocks));
      return std::string();
    }
    const StreamTrial& fewest = trials[std::min<size_t>(1, trials.size() - 1)];
    return refuse(
        fmt::format("by the prices of {} the copies of {} blocks take {:.0f} % of a step "
                    "that is not hidden; expected always, or off",
                    plan->machine.profile.name, fewest.blocks, 100 * fewest.exposed));
  }
  FB_ASSIGN_OR_RETURN(const StreamTrial chosen, search.Limits(ChooseFastest(trials)));
  std::string streaming = Describe(chosen, trials.front(), *plan);
  FB_ASSIGN_OR_RETURN(*plan, plan_of(DraftOf(*plan, chosen)));
  return streaming;
}

}  // namespace forebay::choose

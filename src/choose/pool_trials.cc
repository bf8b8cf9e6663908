#include "choose/pool_trials.h"

#include <algorithm>
#include <optional>

#include "choose/job_price.h"
#include "price/step_price.h"

namespace forebay::choose {
namespace {

// A plan with so many layers pooled, as a trial.
class Trials {
 public:
  Trials(const layout::EngineOptions& options, const model::ModelConfig& config,
         const Decision& plan)
      : options_(options),
        config_(config),
        plan_(plan),
        pricer_(plan.config, plan.dtype, plan.layout.degrees(), CapacityOf(plan),
                plan.machine.profile, options.pricing()) {
    options_.layout = plan.layout;
    options_.layout_by_job = false;
  }

  // Nothing: no plan says it.
  std::optional<PoolTrial> Of(int64_t layers) {
    options_.layout->pool_layers = layers;
    const auto planned = Decide(options_, config_);
    if (!planned.ok()) return std::nullopt;
    if (!planned->Fits().ok()) return PoolTrial{{}, layers};
    if (options_.job != nullptr && !planned->forecast) return std::nullopt;
    const layout::RankPlan& rank = planned->ranks.front();
    const price::StepPulls pulls =
        price::PullsOf(pricer_, planned->machine, rank.request.pool, planned->layout.pp);
    const PoolQuestion question{
        .mean_context = plan_.mean_context,
        .max_batch = planned->machine.max_num_seqs,
        .pull_rate = pulls.bytes_per_s,
        .step = [&](int64_t batch) { return pricer_.Decode(batch, plan_.mean_context).all(); },
        .contention = pulls.contention};
    return PoolTrial{ThroughputOf(question, {.kv_tokens = rank.memory.kv_tokens(),
                                             .pull_bytes = pulls.bytes,
                                             .job = planned->forecast}),
                     layers};
  }

 private:
  static model::StepCapacity CapacityOf(const Decision& plan) {
    const int64_t rows = plan.machine.max_num_batched_tokens;
    return {.rows = std::max<int64_t>(plan.machine.max_num_seqs, rows),
            .logit_rows = layout::LogitRows(plan.config, rows)};
  }

  layout::EngineOptions options_;
  const model::ModelConfig& config_;
  const Decision& plan_;
  const price::StepPricer pricer_;
};

}  // namespace

PoolChoice TryEveryCount(const layout::EngineOptions& options, const model::ModelConfig& config,
                         const Decision& plan, const std::function<bool()>& go_on) {
  PoolChoice choice = *plan.choice;
  Trials trials(options, config, plan);
  const int64_t most = choice.trials.back().layers;
  for (int64_t layers = 0; layers < most; ++layers) {
    if (std::ranges::find(choice.trials, layers, &PoolTrial::layers) != choice.trials.end())
      continue;
    if (!go_on()) break;
    if (auto trial = trials.Of(layers)) choice.trials.push_back(*std::move(trial));
  }
  std::ranges::sort(choice.trials, {}, &PoolTrial::layers);
  return choice;
}

}  // namespace forebay::choose

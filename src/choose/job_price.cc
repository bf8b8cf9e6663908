#include "choose/job_price.h"

#include <algorithm>
#include <bit>
#include <map>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/part.h"
#include "kernels/kv_layout.h"
#include "price/mode_price.h"
#include "price/stream_price.h"

namespace forebay::choose {
namespace {

// Tokens that the replicas of a forecast generate at most, in a sample of the job.
constexpr int64_t kMostTokens = 8'000'000;

int64_t MostChoices(std::span<const layout::ChoiceShape> job) {
  int64_t tokens = 0;
  for (const layout::ChoiceShape& choice : job) tokens += choice.output;
  return std::max<int64_t>(
      1,
      static_cast<int64_t>(static_cast<double>(job.size()) *
                           std::min(1.0, static_cast<double>(kMostTokens) /
                                             static_cast<double>(std::max<int64_t>(1, tokens)))));
}

// A round of steps, dealt out to those that are in flight on the stages of a pipeline: the largest
// of these, of at most `most_rows`. Prompts go as a whole.
price::StepLoad PartOf(price::StepLoad load, int stages, int64_t most_rows) {
  if (stages == 1) return load;
  kernels::ContextSums& sums = load.sums;
  for (int64_t* count : {&sums.decode_rows, &sums.decode_context, &load.sampled})
    *count = (*count + stages - 1) / stages;
  const int64_t prompts = sums.prefill_sequences;
  sums.prefill_sequences = (prompts + stages - 1) / stages;
  for (int64_t* count : {&sums.prefill_rows, &sums.prefill_context})
    *count = prompts == 0 ? 0 : *count * sums.prefill_sequences / prompts;
  sums.prefill_rows = std::min(sums.prefill_rows, most_rows - sums.decode_rows);
  return load;
}

// Prices of steps in each of a layout's modes, of its own by the pricer that is there.
class ModePricers {
 public:
  ModePricers(const layout::EngineOptions& options, const model::ModelConfig& config,
              const layout::LayoutPlan& plan, const price::StepPricer& own)
      : own_(plan.layout.degrees()), own_pricer_(own) {
    const int64_t rows = plan.machine.max_num_batched_tokens;
    for (const model::ModeRows& used : plan.shift.ModesInUse(rows)) {
      if (used.mode == own_) continue;
      further_.push_back({used.mode, std::make_unique<price::StepPricer>(
                                         config, plan.dtype, used.mode,
                                         model::StepCapacity{rows, layout::LogitRows(config, rows)},
                                         plan.machine.profile, options.pricing())});
    }
  }

  bool is_own(const model::Degrees& mode) const { return mode == own_; }
  const price::StepPricer& Of(const model::Degrees& mode) const {
    if (is_own(mode)) return own_pricer_;
    const auto found = std::ranges::find(further_, mode, &Further::mode);
    FB_CHECK(found != further_.end(), "a step in a mode of sp={}, tp={}", mode.sp, mode.tp);
    return *found->pricer;
  }

 private:
  struct Further {
    model::Degrees mode;
    std::unique_ptr<price::StepPricer> pricer;
  };

  const model::Degrees own_;
  const price::StepPricer& own_pricer_;
  std::vector<Further> further_;
};

}  // namespace

JobForecast ForecastOf(const layout::EngineOptions& options, const model::ModelConfig& config,
                       const layout::LayoutPlan& plan, const price::StepPricer& pricer) {
  const layout::MemoryRequest& rank = plan.ranks.front().request;
  const price::StepPulls pulls = price::PullsOf(pricer, plan.machine, rank.pool);
  const layout::MemoryPlan& memory = plan.ranks.front().memory;
  // A choice that no replica could hold would be refused; one that goes on to the end of the
  // model's context ends with the plan's.
  std::vector<layout::ChoiceShape> job;
  for (layout::ChoiceShape choice : *options.job) {
    if (choice.bound == 0 && choice.prompt + choice.output == config.max_position_embeddings)
      choice.output = std::clamp<int64_t>(memory.max_model_len - choice.prompt, 1, choice.output);
    if (choice.prompt + choice.output > memory.kv_tokens()) continue;
    const int64_t room = std::max(choice.output, memory.max_model_len - choice.prompt);
    choice.bound = choice.bound > 0 ? std::min(choice.bound, room) : room;
    job.push_back(choice);
  }
  // A step's rows of a prompt see half of these on average, and all before them.
  const auto streaming_seconds = [&](const price::StepLoad& load, const cost::Work& step) {
    const kernels::ContextSums& sums = load.sums;
    const int64_t prompts =
        sums.prefill_rows > 0 ? sums.prefill_context * sums.prefill_sequences / sums.prefill_rows +
                                    sums.prefill_rows / 2
                              : 0;
    return price::PriceStreaming(pricer, plan.machine, memory,
                                 price::HeldBlocks(sums.decode_context + prompts,
                                                   sums.decode_rows + sums.prefill_sequences),
                                 step, pulls)
        .step_seconds;
  };
  // Experts come alone that have rows, in steps of few, and who gets most of these delays all.
  // Neither counts where there are none.
  const price::RoutedExperts experts(config, plan.routing.get());
  const share::ShipPlan* const ship = rank.pool.empty() ? nullptr : rank.pool.front().ship.get();
  std::map<int64_t, price::BusiestRank> known;  // by rows, of which three bits count
  const auto busiest = [&](int64_t rows) {
    const int64_t step = std::max<int64_t>(1, std::bit_floor(static_cast<uint64_t>(rows)) / 4);
    const auto [found, is_new] = known.try_emplace(rows / step * step);
    if (is_new) found->second = experts.Busiest(*ship, found->first);
    return found->second;
  };
  // Those that are under way on the stages of a pipeline: each brings a stage's weights anew.
  const auto under_way = [&](const price::StepLoad& load) {
    return std::clamp<int64_t>(load.sums.decode_rows + load.sums.prefill_sequences, 1,
                               plan.layout.pp);
  };
  const auto pulling_seconds = [&](const price::StepPrice& own, const price::StepLoad& load) {
    if (rank.pool.empty()) return own.all().seconds;
    price::StepPulls of_all = pulls;
    of_all.bytes *= static_cast<uint64_t>(under_way(load));
    const price::PullPrices prices{pricer, of_all, rank.pool.front(), experts};
    const int64_t rows = load.rows();
    return rows <= plan.routed_rows ? prices.Routed(own, rows) : prices.Pulled(own);
  };
  const ModePricers modes(options, config, plan, pricer);
  const StepMode own_mode{.sp = static_cast<uint8_t>(plan.layout.sp),
                          .tp = static_cast<uint8_t>(plan.layout.tp)};
  const double most_layers =  // of a stage, as a part of them all
      static_cast<double>(base::EvenPart(config.num_layers, plan.layout.pp, 0).size()) /
      static_cast<double>(config.num_layers);
  const JobSample sample = SampleJob(job, MostChoices(job));
  const auto policy = options.policy->make();
  JobForecast forecast = ForecastJob(
      {.job = sample.job,
       .replicas = plan.replicas(),
       .limits = {.max_num_seqs = plan.machine.max_num_seqs,
                  .max_num_batched_tokens = plan.layout.pp * plan.machine.max_num_batched_tokens,
                  .block_tokens = kernels::kBlockTokens,
                  .total_blocks = static_cast<int32_t>(memory.kv_tokens() / kernels::kBlockTokens)},
       .policy = policy.get(),
       .stages = plan.layout.pp,
       .alone =
           [&](const price::StepLoad& load) {
             // Each of the stages has a step of its own under way: while one of them passes all
             // stages, so do all.
             const price::StepLoad part =
                 PartOf(load, plan.layout.pp, plan.machine.max_num_batched_tokens);
             const StepMode taken = plan.shift.table.Shift(own_mode, part.rows(), 0);
             const model::Degrees mode{taken.sp, taken.tp};
             const price::StepPrice& own = modes.Of(mode).Near(part);
             if (memory.streamed_blocks > 0) return streaming_seconds(load, own.all());
             // In the other modes a rank owns all that it reads of what is pooled along sp.
             if (!modes.is_own(mode)) return own.all().seconds;
             // Those under way follow each other as the longest stage lets go of them.
             return std::max(pulling_seconds(own, load),
                             static_cast<double>(under_way(load)) * own.LongestStage(most_layers));
           },
       .together =
           [&](const price::StepLoad& load, price::RowsOfAll all) {
             const price::StepLoad part =
                 PartOf(load, plan.layout.pp, plan.machine.max_num_batched_tokens);
             const price::StepPrice& own = pricer.Near(part);
             all.rows = (all.rows + plan.layout.pp - 1) / plan.layout.pp;
             const double shipped =
                 price::ShippedSeconds(pricer, *ship, own, part.rows(), all,
                                       busiest(std::max<int64_t>(1, all.rows / plan.replicas())));
             if (plan.layout.pp == 1) return shipped;
             const double stage =
                 own.LongestStage(most_layers) + most_layers * (shipped - own.all().seconds);
             return std::max(shipped, static_cast<double>(under_way(load)) * stage);
           },
       .group = plan.group.value_or(layout::GroupOptions{})});
  return forecast.Times(sample.times * options.job_times);
}

}  // namespace forebay::choose

#include "choose/job_price.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "base/check.h"
#include "base/part.h"
#include "choose/foresee.h"
#include "engine/compose.h"
#include "kernels/kv_layout.h"
#include "price/mode_price.h"
#include "price/steal_price.h"
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
                                         plan.machine.profile, options.pricing(), own.shared())});
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

// Prices of a job's steps in a layout.
class JobPrices {
 public:
  JobPrices(const layout::EngineOptions& options, const model::ModelConfig& config,
            const layout::LayoutPlan& plan, const price::StepPricer& pricer)
      : plan_(plan),
        pricer_(pricer),
        modes_(options, config, plan, pricer),
        experts_(config, plan.routing.get()),
        pulls_(price::PullsOf(pricer, plan.machine, rank().pool, plan.layout.pp)) {
    for (int stage = 0; stage < plan.layout.pp; ++stage) {
      const auto layers = base::EvenPart(config.num_layers, plan.layout.pp, stage).size();
      parts_.push_back(static_cast<double>(layers) / static_cast<double>(config.num_layers));
    }
  }

  // Of all steps that were priced.
  const cost::PriceOrigins& origins() const { return origins_; }
  // As ForeseeQuestion::price.
  void Price(const PricedStep& step, std::span<double> stages) {
    const price::StepPrice& own = modes_.Of(step.mode.degrees).Near(step.load);
    const double alone = own.all().seconds, layers = alone - own.first - own.last,
                 seconds = Seconds(step, own);
    origins_ += own.all().origins * step.times;
    // What links add.
    origins_.Add(cost::NumbersMark(plan_.machine.profile),
                 std::max(0.0, seconds - alone) * step.times);
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      const double part = parts_[stage] * layers + (stage == 0 ? own.first : 0) +
                          (stage + 1 == stages.size() ? own.last : 0);
      // What rows are shipped for is in the layers; what is pulled slows all.
      stages[stage] =
          step.mode.meets() ? part + parts_[stage] * (seconds - alone) : part * seconds / alone;
    }
  }

 private:
  const layout::MemoryRequest& rank() const { return plan_.ranks.front().request; }

  double Seconds(const PricedStep& step, const price::StepPrice& own) {
    if (step.mode.meets()) return Shipped(step, own);
    if (plan_.ranks.front().memory.streamed_blocks > 0) return Streaming(step.load, own.all());
    // In the other modes a rank owns all that it reads of what is pooled along sp.
    if (rank().pool.empty() || !modes_.is_own(step.mode.degrees)) return own.all().seconds;
    // Experts come alone that have rows, in steps of few.
    const price::PullPrices prices{pricer_, pulls_, rank().pool.front(), experts_};
    return step.mode.ffn == FfnMode::kRouted ? prices.Routed(own, step.load.rows())
                                             : prices.Pulled(own);
  }

  // A step's rows of a prompt see half of these on average, and all before them.
  double Streaming(const price::StepLoad& load, const cost::Work& step) const {
    const kernels::ContextSums& sums = load.sums;
    const int64_t prompts =
        sums.prefill_rows > 0 ? sums.prefill_context * sums.prefill_sequences / sums.prefill_rows +
                                    sums.prefill_rows / 2
                              : 0;
    return price::PriceStreaming(pricer_, plan_.machine, plan_.ranks.front().memory,
                                 price::HeldBlocks(sums.decode_context + prompts,
                                                   sums.decode_rows + sums.prefill_sequences),
                                 step, pulls_)
        .step_seconds;
  }

  // Who gets most of the experts' rows delays all.
  double Shipped(const PricedStep& step, const price::StepPrice& own) {
    const share::ShipPlan& ship = *rank().pool.front().ship;
    const int64_t rows = std::max<int64_t>(1, step.all.rows / plan_.layout.dp);
    // Three bits of it count.
    const int64_t grain = std::max<int64_t>(1, std::bit_floor(static_cast<uint64_t>(rows)) / 4);
    const auto [busiest, is_new] = busiest_.try_emplace(rows / grain * grain);
    if (is_new) busiest->second = experts_.Busiest(ship, busiest->first);
    return price::ShippedSeconds(pricer_, ship, own, step.load.rows(), step.all, busiest->second);
  }

  const layout::LayoutPlan& plan_;
  const price::StepPricer& pricer_;
  const ModePricers modes_;
  const price::RoutedExperts experts_;
  const price::StepPulls pulls_;  // of all stages
  cost::PriceOrigins origins_;
  std::vector<double> parts_;                      // by stage: of the layers
  std::map<int64_t, price::BusiestRank> busiest_;  // by rows of a replica
};

// The job as the engine takes it: what it refuses is left out, prompts are cut to the plan's
// context where requests say so, and a choice that goes on to the end of the model's context ends
// with the plan's.
std::vector<layout::ChoiceShape> TakenOf(const std::vector<layout::ChoiceShape>& job,
                                         int64_t model_context, int64_t max_model_len) {
  std::vector<layout::ChoiceShape> taken;
  for (layout::ChoiceShape choice : job) {
    if (choice.cut) {
      const int64_t most = max_model_len - std::max<int64_t>(1, choice.bound);
      if (most < 1) continue;
      choice.prompt = std::min(choice.prompt, most);
    }
    if (choice.bound == 0 && choice.prompt + choice.output == model_context)
      choice.output = std::clamp<int64_t>(max_model_len - choice.prompt, 1, choice.output);
    if (choice.prompt + std::max<int64_t>(1, choice.bound) <= max_model_len)
      taken.push_back(choice);
  }
  return taken;
}

int64_t LongestOf(std::span<const layout::ChoiceShape> job) {
  int64_t longest = 0;
  for (const layout::ChoiceShape& choice : job)
    longest = std::max(longest, choice.prompt + choice.output);
  return longest;
}

bool Shares(std::span<const layout::ChoiceShape> job) {
  return std::ranges::any_of(job,
                             [](const layout::ChoiceShape& choice) { return choice.shared > 0; });
}

// The job as a forecast follows it, of replicas with contexts so long.
struct AskedJob {
  AskedJob(const layout::EngineOptions& options, const model::ModelConfig& config,
           int64_t max_model_len) {
    const std::vector<layout::ChoiceShape> job =
        TakenOf(*options.job, config.max_position_embeddings, max_model_len);
    sample = SampleJob(job, MostChoices(job));
    times = sample.times * options.job_times;
    left_out =
        std::llround(static_cast<double>(options.job->size() - job.size()) * options.job_times);
  }

  // Of the sample, to which a forecast is followed that comes to no less than `most`.
  double MostSeconds(const JobCost& most) const {
    return left_out < most.left_out ? std::numeric_limits<double>::infinity()
                                    : most.seconds / times;
  }
  JobForecast Whole(const JobForecast& of_sample) const {
    JobForecast forecast = of_sample.Times(times);
    forecast.left_out = left_out;
    return forecast;
  }

  JobSample sample;
  double times = 1;  // as long as the sample
  int64_t left_out = 0;
};

// What is asked of the plan's groups. All arguments outlive it.
ForeseeQuestion QuestionOf(const layout::EngineOptions& options, const model::ModelConfig& config,
                           const layout::LayoutPlan& plan, const price::StepPricer& pricer,
                           const AskedJob& job, const schedule::Policy& policy, JobPrices& prices) {
  const layout::MemoryPlan& memory = plan.ranks.front().memory;
  const std::optional<schedule::StealPrices> steal = price::PriceStealing(options, plan, &pricer);
  engine::ChoicesOptions choices{
      .limits = {.max_num_seqs = plan.machine.max_num_seqs,
                 .max_num_batched_tokens = plan.machine.max_num_batched_tokens,
                 .total_blocks = memory.num_blocks + memory.streamed_blocks},
      .prefix_caching = options.prefix_caching && Shares(job.sample.job),
      .kept_states = memory.kept_states,
      .state_every = options.limits.state_every,
      // Books are as large as the job needs.
      .max_blocks_per_sequence = static_cast<int32_t>(std::min<int64_t>(
          memory.max_blocks_per_sequence, LongestOf(job.sample.job) / kernels::kBlockTokens + 1)),
      .steps_in_flight = plan.steps_in_flight,
      .steal = steal.value_or(schedule::StealPrices{}),
      .lengths = policy.wants_lengths() ? std::optional(options.lengths) : std::nullopt,
      .overcommit = options.trial.overcommit};
  engine::FitToModel(config, &choices);
  return {.job = job.sample.job,
          .groups = plan.layout.groups,
          .replicas = plan.layout.dp,
          .choices = choices,
          .max_model_len = memory.max_model_len,
          .policy = &policy,
          .mode = {.wanted = {.ffn = plan.layout.pools() ? FfnMode::kPull : FfnMode::kLocal,
                              .degrees = plan.layout.degrees()},
                   .routed_rows = plan.routed_rows,
                   .shift = plan.shift.table},
          .agreement = plan.group,
          .steals = steal.has_value(),
          .stages = plan.layout.pp,
          .price = [&prices](const PricedStep& step, std::span<double> stages) {
            prices.Price(step, stages);
          }};
}

// JobForecast::context_seconds and generation_seconds. The mean length stands for all.
void PriceRoles(const ForeseeQuestion& of, JobForecast* forecast) {
  const schedule::Limits& limits = of.choices.limits;
  const auto seconds = [&](const price::StepLoad& load) {
    double stage = 0;
    of.price({load, of.mode.Of(load.rows(), 0), {}, /*times=*/0}, std::span(&stage, 1));
    return stage;
  };
  int64_t prompts = 0, tokens = 0, context = 0;  // context: that rows of tokens see, of all
  for (const layout::ChoiceShape& choice : of.job) {
    const int64_t shared = of.choices.prefix_caching ? choice.shared : 0;
    prompts += std::max<int64_t>(1, choice.prompt - shared);
    const int64_t further = std::max<int64_t>(0, choice.output - 1);
    tokens += further;
    context += further * (choice.prompt + choice.output / 2);
  }
  const auto choices = std::ssize(of.job);
  if (choices == 0) return;
  const int64_t length = std::max<int64_t>(1, prompts / choices),
                rows = std::min<int64_t>(limits.max_num_batched_tokens, prompts);
  price::StepLoad load;
  for (int64_t left = rows; left > 0; left -= length) {
    // The middle of a prompt that is longer than a step.
    load.sums.Add(std::max<int64_t>(0, (length - rows) / 2), std::min(left, length));
    ++load.sampled;
  }
  forecast->context_seconds =
      seconds(load) * static_cast<double>(prompts) / static_cast<double>(load.rows());
  if (tokens == 0) return;
  const int64_t held = context / tokens;
  for (int64_t replicas = 1; replicas < of.replicas; ++replicas) {
    const int64_t batch = std::max<int64_t>(
        1, std::min<int64_t>({limits.max_num_seqs, limits.max_num_batched_tokens,
                              (choices + replicas - 1) / replicas,
                              int64_t{limits.total_blocks} * kernels::kBlockTokens / held}));
    forecast->generation_seconds.push_back(seconds(price::Decoding(batch, held)) *
                                           static_cast<double>(tokens) /
                                           static_cast<double>(batch * replicas));
  }
}

}  // namespace

std::unique_ptr<price::StepPricer> PricerOf(const layout::EngineOptions& options,
                                            const layout::LayoutDraft& draft,
                                            price::SharedPrices* prices) {
  const layout::MachinePlan& machine = draft.machine;
  const int64_t rows = std::max(machine.max_num_seqs, machine.max_num_batched_tokens);
  return std::make_unique<price::StepPricer>(
      draft.config, draft.dtype, draft.layout.degrees(),
      model::StepCapacity{rows, layout::LogitRows(draft.config, machine.max_num_batched_tokens)},
      machine.profile, options.pricing(), prices);
}

JobForecast ForecastOf(const layout::EngineOptions& options, const model::ModelConfig& config,
                       const layout::LayoutPlan& plan, const price::StepPricer& pricer,
                       const JobCost& most) {
  const AskedJob job(options, config, plan.ranks.front().memory.max_model_len);
  const auto policy = options.policy->make();
  JobPrices prices(options, config, plan, pricer);
  ForeseeQuestion question = QuestionOf(options, config, plan, pricer, job, *policy, prices);
  question.most_seconds = job.MostSeconds(most);
  JobForecast forecast = Foresee(question);
  forecast.origins = prices.origins();
  if (!plan.layout.pools() && plan.layout.pp == 1) PriceRoles(question, &forecast);
  return job.Whole(forecast);
}

JobForecast ForecastOfRoles(const layout::EngineOptions& options, const model::ModelConfig& config,
                            const layout::LayoutPlan& context, const layout::LayoutPlan& generation,
                            const JobCost& most, price::SharedPrices* prices) {
  const AskedJob job(options, config, context.ranks.front().memory.max_model_len);
  const auto policy = options.policy->make();
  const auto context_pricer = PricerOf(options, context, prices),
             generation_pricer = PricerOf(options, generation, prices);
  JobPrices reads(options, config, context, *context_pricer),
      goes_on(options, config, generation, *generation_pricer);
  ForeseeQuestion question =
                      QuestionOf(options, config, context, *context_pricer, job, *policy, reads),
                  of_generation = QuestionOf(options, config, generation, *generation_pricer, job,
                                             *policy, goes_on);
  question.choices.role = GroupRole::kContext;
  of_generation.choices.role = GroupRole::kGeneration;
  const schedule::StealPrices moving = price::PriceHandOver(options, context, generation);
  of_generation.choices.steal.kv_token_seconds = moving.kv_token_seconds;
  of_generation.choices.steal.move_seconds = moving.move_seconds;
  question.generation = &of_generation;
  question.most_seconds = job.MostSeconds(most);
  JobForecast forecast = Foresee(question);
  forecast.origins = reads.origins();
  forecast.origins += goes_on.origins();
  return job.Whole(forecast);
}

}  // namespace forebay::choose

#include "choose/decide.h"

#include <algorithm>
#include <utility>

#include "choose/borders.h"
#include "choose/job_price.h"
#include "choose/stream_choice.h"
#include "cost/model.h"
#include "price/mode_price.h"
#include "weights/book/placement.h"

namespace forebay::choose {
namespace {

// A forecast of another rule that is not below this part of the first one's is as good.
constexpr double kSooner = 0.995;
// Of a layout among others it is not asked for where the first rule's steps alone would save less
// than this part of the time if they were taken together.
constexpr double kSavesTooLittle = (1 - kSooner) / 2;
// A sample of a job has as many tokens as the job, but for so much.
constexpr double kTokensOfSample = 1.01;

// Layers of whose matrices ranks can share some by layer.
int64_t SharedLayers(const layout::LayoutDraft& draft) {
  const model::ModelConfig& config = draft.config;
  if (!draft.layout.pool_attention) return config.DenseLayers();
  int64_t layers = 0;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) layers += !config.HasExperts(layer);
  return layers;
}

// How many of a layer's experts ranks can hold, whichever part of them is theirs (tp). Ascending.
base::Result<std::vector<int64_t>> ExpertSizes(const layout::LayoutDraft& draft) {
  const layout::Layout& layout = draft.layout;
  std::vector<int64_t> sizes;
  for (int t = 0; t < layout.tp; ++t) {
    const int64_t part = draft.decoders[static_cast<size_t>(t)]->shard.experts.size();
    const std::vector<int64_t> of_part = weights::ExpertSizes(part, layout.pool_ranks());
    if (t == 0) sizes = of_part;
    std::erase_if(sizes, [&](int64_t size) { return !std::ranges::binary_search(of_part, size); });
  }
  if (!sizes.empty()) return sizes;
  return base::Status(layout::kLayoutPool,
                      fmt::format("--layout: expert-size=auto with dp={},tp={}: the parts of the "
                                  "experts are not alike, and no size is one for all of them; "
                                  "expected expert-size=least",
                                  layout.dp, layout.tp));
}

// Fills in what a draft leaves open. Candidates are copies of the draft with an answer each,
// planned by layout::PlanLayout.
class Decider {
 public:
  Decider(const layout::EngineOptions& options, layout::LayoutDraft draft, const Effort& effort)
      : options_(options),
        draft_(std::move(draft)),
        effort_(effort),
        known_(effort.known ? *effort.known : own_known_) {}

  base::Result<Decision> Run() {
    FB_RETURN_IF_ERROR(ChooseModes(nullptr));
    if (draft_.experts_are_open()) FB_RETURN_IF_ERROR(ChooseExperts());
    if (draft_.layout.pools_along_sp()) {
      // What steps pull decides which modes they take.
      FB_ASSIGN_OR_RETURN(const price::StepPulls pulls,
                          draft_.pool_is_open() ? ChoosePoolAlongSp() : PullsAlongSp());
      FB_RETURN_IF_ERROR(ChooseModes(&pulls));
    } else if (draft_.pool_is_open()) {
      FB_RETURN_IF_ERROR(ChoosePool());
    }
    layout::LayoutPlan& plan = decision_;
    FB_ASSIGN_OR_RETURN(plan, Plan(draft_));
    FB_ASSIGN_OR_RETURN(
        decision_.streaming,
        ChooseStreaming(
            options_, [this]() -> const price::StepPricer& { return pricer(); },
            [this](const layout::LayoutDraft& draft) { return Plan(draft); }, &plan));
    if (prices_modes() && options_.job != nullptr && decision_.Fits().ok()) {
      // No other was of a plan that streams.
      if (!decision_.streaming.empty()) known_.clear();
      decision_.forecast = Foretell(&plan, effort_.rival);
    }
    return std::move(decision_);
  }

 private:
  bool prices_modes() const { return draft_.machine.prices_modes; }

  // Made where something is chosen by prices, for the steps that the draft began with.
  const price::StepPricer& pricer() {
    if (!pricer_) pricer_ = PricerOf(options_, draft_, effort_.prices);
    return *pricer_;
  }

  price::StepPulls PullsOf(const layout::LayoutPlan& plan) {
    return price::PullsOf(pricer(), plan.machine, plan.ranks[0].request.pool);
  }

  // With borders by price where steps have prices.
  base::Result<layout::LayoutPlan> Plan(const layout::LayoutDraft& draft) {
    FB_ASSIGN_OR_RETURN(layout::LayoutPlan plan, layout::PlanLayout(options_, draft));
    if (plan.may_ship()) SetBorders(options_, prices_modes() ? &pricer() : nullptr, &plan);
    return plan;
  }

  // What the job takes as planned. Where the group's replicas meet by their load, and would for a
  // part of the job that counts, it is asked too what it takes where they always meet: they do if
  // that ends sooner. A group that begins free pulls until its first prompts are computed, which
  // is most of a short job. A plan that comes to no less than `most` is followed no further.
  JobForecast Foretell(layout::LayoutPlan* plan, const JobCost& most) {
    const bool by_load = !plan->group || plan->group->by_load;
    const auto [known, is_new] = known_.try_emplace(
        {plan->layout.pool_layers.value_or(0), plan->layout.expert_size.value_or(0)});
    auto& [forecast, meets_by_load] = known->second;
    if (is_new || (forecast.stopped && most.seconds > forecast.seconds)) {
      forecast = ForecastInEitherRule(plan, most);
      meets_by_load = !plan->group || plan->group->by_load;
    }
    if (by_load && plan->group) plan->group->by_load = meets_by_load;
    return forecast;
  }

  JobForecast ForecastInEitherRule(layout::LayoutPlan* plan, const JobCost& most) {
    const auto forecast = [&](const JobCost& limit) {
      return ForecastOf(options_, plan->config, *plan, pricer(), limit);
    };
    const JobForecast by_load = forecast(most);
    const bool open = plan->group && plan->group->by_load && options_.ship.threshold <= 0 &&
                      options_.trial.flip_every == 0;
    const bool among_others = effort_.rival.left_out == 0;
    if (!open || by_load.steps_together < by_load.steps / 4 ||
        (among_others && by_load.together_saves < kSavesTooLittle * by_load.seconds))
      return by_load;
    plan->group->by_load = false;
    const JobCost sooner{by_load.left_out,
                         by_load.stopped ? most.seconds : kSooner * by_load.seconds};
    if (const JobForecast always = forecast(sooner); !always.stopped && CostOf(always) < sooner)
      return always;
    plan->group->by_load = true;
    return by_load;
  }

  // In tokens/s, as numbers of layers and experts are compared.
  CountRival Rival() const {
    CountRival rival{.quarters_do = effort_.quarters_do};
    if (options_.job != nullptr && effort_.rival.left_out == 0)
      rival.tokens_per_s = OutputTokens() / effort_.rival.seconds;
    return rival;
  }
  JobCost CostAt(double tokens_per_s) const {
    if (tokens_per_s <= 0) return {};
    return {0, kTokensOfSample * OutputTokens() / tokens_per_s};
  }
  double OutputTokens() const {
    int64_t tokens = 0;
    for (const layout::ChoiceShape& choice : *options_.job) tokens += choice.output;
    return static_cast<double>(tokens) * options_.job_times;
  }

  base::Status ChooseModes(const price::StepPulls* pulls) {
    FB_ASSIGN_OR_RETURN(ShiftChoice shift, ChooseShift(options_, draft_, pulls));
    draft_.shift = std::move(shift.plan);
    decision_.mode_prices = std::move(shift.prices);
    return {};
  }

  // What is asked of a job of which nothing is known, but for what is to be chosen.
  PoolQuestion SteadyState() {
    const cost::DeviceProfile& profile = pricer().profile();
    const int64_t longest = options_.limits.max_model_len ? options_.limits.max_model_len
                                                          : draft_.config.max_position_embeddings;
    decision_.priced_by = profile.name;
    decision_.mean_context =
        options_.limits.mean_context ? options_.limits.mean_context : AssumedContext(longest);
    return {
        .mean_context = decision_.mean_context,
        .max_batch = draft_.machine.max_num_seqs,
        .pull_rate = cost::PullRate(profile),
        .step =
            [this](int64_t batch) { return pricer().Decode(batch, decision_.mean_context).all(); },
        .contention = cost::ContentionOf(profile, draft_.machine.workers),
        .rival = Rival()};
  }

  // What a replica of the candidate has, which is planned into `plan`; nothing where it does not
  // fit.
  PooledMemory MemoryOf(const layout::LayoutDraft& draft, layout::LayoutPlan* plan) {
    auto planned = layout::PlanLayout(options_, draft);
    if (!planned.ok() || !planned->Fits().ok()) return {};
    *plan = *std::move(planned);
    PooledMemory memory{.kv_tokens = plan->ranks[0].memory.kv_tokens()};
    for (const layout::RankPlan& rank : plan->ranks) {
      for (const share::PoolPlan& pool : rank.request.pool)
        memory.pull_bytes = std::max(memory.pull_bytes, price::PullBytes(pool));
    }
    memory.pull_bytes *= static_cast<uint64_t>(plan->layout.pp);
    return memory;
  }

  PooledMemory MemoryWithLayers(int64_t layers, double least) {
    layout::LayoutDraft draft = draft_;
    draft.layout.pool_layers = layers;
    layout::LayoutPlan plan;
    PooledMemory memory = MemoryOf(draft, &plan);
    if (options_.job == nullptr || memory.kv_tokens == 0) return memory;
    SetBorders(options_, &pricer(), &plan);
    memory.job = Foretell(&plan, CostAt(least));
    return memory;
  }

  // A candidate with so many experts of a layer on each rank. Layers that are left open as well are
  // not pooled in it.
  layout::LayoutDraft WithExperts(int64_t size) const {
    layout::LayoutDraft draft = draft_;
    draft.layout.expert_size = size;
    if (draft.pool_is_open()) draft.layout.pool_layers = 0;
    return draft;
  }

  // Where rows go is taken from the law of --routing, or from chance.
  PooledMemory MemoryWithExperts(int64_t size, double least) {
    layout::LayoutPlan plan;
    PooledMemory memory = MemoryOf(WithExperts(size), &plan);
    if (memory.kv_tokens == 0) return memory;
    SetBorders(options_, &pricer(), &plan);
    if (options_.job != nullptr) memory.job = Foretell(&plan, CostAt(least));
    const std::shared_ptr<const share::ShipPlan> ship = plan.ranks[0].request.pool[0].ship;
    if (!plan.group || ship == nullptr) return memory;
    const price::RoutedExperts experts(plan.config, plan.routing.get());
    memory.always_together = !plan.group->by_load;
    memory.together = [this, ship,
                       busiest = experts.Busiest(*ship, plan.machine.max_num_seqs)](int64_t batch) {
      return price::ShippedSeconds(pricer(), *ship, pricer().Decode(batch, decision_.mean_context),
                                   batch, {batch * ship->num_replicas, ship->num_replicas},
                                   busiest);
    };
    return memory;
  }

  // Sets how many experts of a layer a rank holds.
  base::Status ChooseExperts() {
    PoolQuestion question = SteadyState();
    // What cannot work at all is an error, not a size that does not fit.
    FB_RETURN_IF_ERROR(layout::PlanLayout(options_, WithExperts(0)).status());
    question.memory = [this](int64_t size, double least) { return MemoryWithExperts(size, least); };
    FB_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ExpertSizes(draft_));
    if (effort_.other) {
      const auto size = std::ranges::find(sizes, effort_.other->layout.expert_size);
      question.rival.about = size == sizes.end() ? -1 : size - sizes.begin();
    }
    decision_.expert_choice = ChooseExpertSize(sizes, question);
    draft_.layout.expert_size = decision_.expert_choice->size;
    return {};
  }

  // Sets the pooled layers.
  base::Status ChoosePool() {
    PoolQuestion question = SteadyState();
    question.num_layers = SharedLayers(draft_);
    if (effort_.other) question.rival.about = effort_.other->layout.pool_layers.value_or(-1);
    // What cannot work at all is an error, not a number of layers that does not fit.
    layout::LayoutDraft all = draft_;
    all.layout.pool_layers = question.num_layers;
    FB_RETURN_IF_ERROR(layout::PlanLayout(options_, all).status());
    question.memory = [this](int64_t layers, double least) {
      return MemoryWithLayers(layers, least);
    };
    decision_.choice = ChoosePoolLayers(question);
    draft_.layout.pool_layers = decision_.choice->layers;
    return {};
  }

  // Those of a step in the layout's own mode.
  base::Result<price::StepPulls> PullsAlongSp() {
    FB_ASSIGN_OR_RETURN(const layout::LayoutPlan plan, layout::PlanLayout(options_, draft_));
    return PullsOf(plan);
  }

  // The same along sp: the most layers whose fetch is hidden behind a full step of a prompt, in the
  // layout's own mode. Returns what they pull.
  base::Result<price::StepPulls> ChoosePoolAlongSp() {
    const int64_t num_layers = SharedLayers(draft_), rows = draft_.machine.max_num_batched_tokens;
    draft_.layout.pool_layers = num_layers;
    FB_ASSIGN_OR_RETURN(const price::StepPulls all, PullsAlongSp());
    const cost::Work step = pricer().Prompts(rows, rows).all();
    PoolChoice& choice = decision_.choice.emplace();
    // More layers take longer to fetch and leave more memory: the last that hides is taken.
    for (int64_t layers = 0; layers <= num_layers; ++layers) {
      price::StepPulls pulls = all;
      pulls.bytes = all.bytes * static_cast<uint64_t>(layers) / static_cast<uint64_t>(num_layers);
      PoolTrial trial;
      trial.layers = layers;
      trial.batch = rows;
      trial.step_seconds = price::SecondsBeside(step, pulls);
      trial.fetch_seconds = pulls.seconds();
      if (trial.fetch_seconds <= trial.step_seconds) choice.layers = layers;
      choice.trials.push_back(trial);
    }
    decision_.priced_by = pricer().profile().name;
    decision_.mean_context = rows;
    draft_.layout.pool_layers = choice.layers;
    if (choice.layers == num_layers) return all;
    return PullsAlongSp();
  }

  const layout::EngineOptions& options_;
  layout::LayoutDraft draft_;
  const Effort effort_;
  KnownForecasts own_known_;
  KnownForecasts& known_;
  Decision decision_;  // Why the draft was filled in so; the plan at the end.
  std::unique_ptr<price::StepPricer> pricer_;
};

}  // namespace

base::Result<Decision> Decide(const layout::EngineOptions& options,
                              const model::ModelConfig& config, int num_devices,
                              const Effort& effort) {
  FB_ASSIGN_OR_RETURN(layout::LayoutDraft draft, layout::DraftLayout(options, config, num_devices));
  return Decider(options, std::move(draft), effort).Run();
}

std::string FormatJob(const JobForecast& job) {
  if (job.stopped) return fmt::format("stopped: later than {:.1f} s", job.seconds);
  return fmt::format(
      "{:.1f} s, {:.0f} output tok/s, {:.0f} % of the steps together, {} preemptions", job.seconds,
      job.tokens_per_s(),
      100.0 * static_cast<double>(job.steps_together) /
          static_cast<double>(std::max<int64_t>(1, job.steps)),
      job.preemptions);
}

std::string FormatTrial(const Throughput& trial) {
  if (trial.batch == 0) return "does not fit";
  if (trial.job) return FormatJob(*trial.job);
  return fmt::format("batch {}, step {:.1f} ms, fetch {:.1f} ms, {:.0f} tokens/s of a replica",
                     trial.batch, 1e3 * trial.step_seconds, 1e3 * trial.fetch_seconds,
                     trial.tokens_per_s());
}

std::string FormatExpertChoice(const Decision& plan) {
  const ExpertChoice& choice = *plan.expert_choice;
  const auto trial = [](const char* name, const ExpertTrial& of) {
    return fmt::format("{}, {}: {}", name, of.size, FormatTrial(of));
  };
  return fmt::format(
      "expert-size=auto: a rank holds {} of {} experts of a layer, for a mean context of {} tokens "
      "and by the prices of {}: {}; {}; {}",
      choice.size, plan.config.moe->num_experts, plan.mean_context, plan.priced_by,
      FormatTrial(choice.chosen()), trial("least", choice.trials.front()),
      trial("most", choice.trials.back()));
}

std::string FormatForecast(const Decision& plan) {
  return fmt::format("expected of this job: {}", FormatJob(*plan.forecast));
}

std::string FormatChoice(const Decision& plan) {
  const PoolChoice& choice = *plan.choice;
  const std::string_view basis = plan.layout.pools_along_sp()
                                     ? "to be hidden behind a step of a prompt of"
                                     : "for a mean context of";
  return fmt::format(
      "pool=auto: {} of {} layers are pooled, {} {} tokens and by the prices of {}: {}; none: {}; "
      "all: {}",
      choice.layers, choice.trials.back().layers, basis, plan.mean_context, plan.priced_by,
      FormatTrial(choice.chosen()), FormatTrial(choice.trials.front()),
      FormatTrial(choice.trials.back()));
}

}  // namespace forebay::choose

#include "choose/decide.h"

#include <algorithm>

#include "choose/group_plan.h"
#include "choose/job_price.h"
#include "choose/stream_choice.h"
#include "cost/model.h"
#include "layout/plan_checks.h"
#include "price/mode_price.h"
#include "price/step_price.h"
#include "weights/book/placement.h"

namespace forebay::choose {
namespace {

// While one layer is used, the next are on their way.
constexpr int64_t kLookAheadLayers = 2;

// Every device a replica, where nothing else is asked for.
base::Result<layout::Layout> LayoutOf(const layout::EngineOptions& options,
                                      const model::ModelConfig& config, int num_devices) {
  const layout::Layout layout = options.layout.value_or(layout::Layout{.dp = num_devices});
  FB_RETURN_IF_ERROR(layout::CheckRouted(options, layout));
  if (!options.layout) return layout;
  FB_RETURN_IF_ERROR(layout::ValidateLayout(*options.layout, config, num_devices));
  if (options.layout->sp > 1 && options.ship.mode && options.ship.mode->meets()) {
    return base::Status(share::kCannotShip,
                        fmt::format("--mode {} with sp={}: ranks that cut rows pull what they "
                                    "share; expected pull, or sp=1",
                                    schedule::Name(*options.ship.mode), options.layout->sp));
  }
  return layout;
}

// What ranks pool that share weights with one of this cut; a stage pools its part of the layers.
base::Result<std::vector<share::PoolPlan>> PlanPool(const layout::EngineOptions& options,
                                                    const layout::LayoutPlan& plan,
                                                    const model::DecoderPlan& decoder) {
  share::PoolOptions pool = options.pool;
  pool.placement = plan.layout.weights;
  pool.experts = plan.layout.experts;
  if (const int64_t size = plan.layout.expert_size.value_or(0); size > 0)
    pool.experts.parameter = size;
  pool.layers = base::EvenPart(plan.layout.pool_layers.value_or(0), decoder.shard.cut.pp,
                               decoder.shard.cut.stage)
                    .size();
  pool.attention = plan.layout.pool_attention;
  weights::SlotSettings& slots = pool.slots;
  if (slots.budget_bytes == 0 && slots.look_ahead_layers == 0 && slots.look_ahead_bytes == 0)
    slots.look_ahead_layers = kLookAheadLayers;
  // Parts of layers come from all owners alike: there is no peak to shift.
  if (pool.placement.kind != &weights::kByLayer || plan.layout.pools_experts())
    pool.order = weights::FetchOrder::kAsUsed;
  // From all peers at once.
  if (pool.requests_in_flight == 0)
    pool.requests_in_flight = std::max(2, plan.layout.pool_ranks() - 1);
  if (pool.slice_bytes == 0) pool.slice_bytes = plan.machine.slice_bytes;
  base::Result<std::vector<share::PoolPlan>> pools =
      share::PlanPools(pool, plan.layout.pool_ranks(), decoder);
  if (pools.ok() || !plan.layout.pools_experts() || plan.layout.tp == 1) return pools;
  const base::Part& part = decoder.shard.experts;
  return pools.status().WithContext(fmt::format("tp={}, whose rank {} has experts {} to {}",
                                                plan.layout.tp, decoder.shard.cut.tp_rank,
                                                part.begin, part.end - 1));
}

model::ReplicaCut CutOf(const layout::EngineOptions& options, const layout::LayoutPlan& plan,
                        int rank) {
  model::ReplicaCut cut = layout::CutOf(plan.layout, rank);
  cut.two_step_kv = options.shift.two_step_kv;
  return cut;
}

// What the ranks of a replica hold, before anything is pooled.
using DecoderPlans = std::vector<std::shared_ptr<const model::DecoderPlan>>;
DecoderPlans PlanDecoders(const layout::EngineOptions& options, const model::ModelConfig& config,
                          const layout::LayoutPlan& plan) {
  DecoderPlans decoders;
  for (int rank = 0; rank < plan.layout.ranks_per_replica(); ++rank) {
    decoders.push_back(std::make_shared<model::DecoderPlan>(
        model::PlanDecoder(config, plan.dtype, CutOf(options, plan, rank))));
  }
  return decoders;
}

// Pools and memory, for plan->layout. `pricer`: see PlanGroup.
base::Status PlanRanks(const layout::EngineOptions& options, const model::ModelConfig& config,
                       const DecoderPlans& decoders, const price::StepPricer* pricer,
                       layout::LayoutPlan* plan) {
  std::vector<layout::MemoryRequest> requests;
  for (int rank = 0; rank < plan->layout.ranks_per_replica(); ++rank) {
    layout::MemoryRequest& request = requests.emplace_back();
    request = {
        .budget_bytes = plan->machine.budget_bytes,
        .device_bytes = plan->machine.device_bytes,
        .max_model_len = options.limits.max_model_len,
        .stable_bytes = plan->machine.stable_bytes,
        .max_num_seqs = plan->machine.max_num_seqs,
        .max_num_batched_tokens = plan->machine.max_num_batched_tokens,
        .max_kv_blocks = options.limits.kv_blocks,
        .steps_in_flight = plan->steps_in_flight,
        .host_bytes = options.tier.host_bytes / static_cast<uint64_t>(plan->machine.spec.count),
        .file_bytes = options.tier.file_bytes / static_cast<uint64_t>(plan->machine.spec.count),
        .staging_bytes = 2 * options.tier.StagingBytes(plan->machine.spec.count),
        .streamed_blocks = plan->streamed_blocks,
        .digest = options.digest,
        .record_routing = !options.machine.record_routing.empty(),
        .modes = plan->shift.ModesInUse(plan->machine.max_num_batched_tokens),
        .cut = CutOf(options, *plan, rank),
        .decoder = decoders[rank]};
    for (const model::ModeRows& used : request.modes) {
      if (used.mode == plan->layout.degrees()) continue;
      request.views.push_back(std::make_shared<const model::DecoderPlan>(
          model::PlanDecoder(config, plan->dtype, request.cut, used.mode)));
    }
    request.copies_views = options.shift.copies_weights;
    if (!plan->layout.pools()) continue;
    FB_ASSIGN_OR_RETURN(request.pool, PlanPool(options, *plan, *request.decoder));
  }
  const bool pools = plan->layout.pool_layers.value_or(0) > 0 || plan->layout.pools_experts();
  if (pools && !plan->layout.pools_along_sp()) {
    const price::RoutedExperts experts(config, plan->routing.get());
    FB_ASSIGN_OR_RETURN(plan->group, PlanGroup(options, plan->machine, pricer, experts, &requests));
    plan->routed_rows = PlanRouted(options, plan->machine, pricer, experts, requests);
  }
  const std::vector<layout::MemoryPlan> memory =
      layout::DivideReplicaMemory(config, plan->dtype, requests);
  plan->ranks.clear();
  for (size_t rank = 0; rank < requests.size(); ++rank)
    plan->ranks.push_back({std::move(requests[rank]), memory[rank]});
  return base::Status::Ok();
}

// What a replica of the plan's layout has; nothing where that does not fit.
PooledMemory MemoryOf(const layout::EngineOptions& options, const model::ModelConfig& config,
                      const DecoderPlans& decoders, const price::StepPricer* pricer,
                      layout::LayoutPlan* plan) {
  if (!PlanRanks(options, config, decoders, pricer, plan).ok() || !plan->Fits().ok()) return {};
  PooledMemory memory{.kv_tokens = plan->ranks[0].memory.kv_tokens()};
  for (const layout::RankPlan& rank : plan->ranks) {
    for (const share::PoolPlan& pool : rank.request.pool)
      memory.pull_bytes = std::max(memory.pull_bytes, price::PullBytes(pool));
  }
  memory.pull_bytes *= static_cast<uint64_t>(plan->layout.pp);
  return memory;
}

PooledMemory MemoryWithLayers(const layout::EngineOptions& options,
                              const model::ModelConfig& config, const DecoderPlans& decoders,
                              const price::StepPricer& pricer, layout::LayoutPlan plan,
                              int64_t layers) {
  plan.layout.pool_layers = layers;
  const bool forecasts = options.job != nullptr;
  PooledMemory memory = MemoryOf(options, config, decoders, forecasts ? &pricer : nullptr, &plan);
  if (forecasts && memory.kv_tokens > 0) memory.job = ForecastOf(options, config, plan, pricer);
  return memory;
}

// Where rows go is taken from the law of --routing, or from chance.
PooledMemory MemoryWithExperts(const layout::EngineOptions& options,
                               const model::ModelConfig& config, const DecoderPlans& decoders,
                               const price::StepPricer& pricer, layout::LayoutPlan plan,
                               int64_t mean_context, int64_t size) {
  plan.layout.expert_size = size;
  PooledMemory memory = MemoryOf(options, config, decoders, &pricer, &plan);
  if (memory.kv_tokens == 0) return memory;
  if (options.job != nullptr) memory.job = ForecastOf(options, config, plan, pricer);
  const std::shared_ptr<const share::ShipPlan> ship = plan.ranks[0].request.pool[0].ship;
  if (!plan.group || ship == nullptr) return memory;
  const price::RoutedExperts experts(config, plan.routing.get());
  memory.always_together = !plan.group->by_load;
  memory.together = [&pricer, ship, context = mean_context,
                     busiest = experts.Busiest(*ship, plan.machine.max_num_seqs)](int64_t batch) {
    return price::ShippedSeconds(pricer, *ship, pricer.Decode(batch, context), batch,
                                 {batch * ship->num_replicas, ship->num_replicas}, busiest);
  };
  return memory;
}

int64_t DenseLayers(const model::ModelConfig& config) {
  return config.moe ? std::ranges::count(config.moe->has_experts, 0) : config.num_layers;
}

// What is asked of a job of which nothing is known, but for what is to be chosen.
PoolQuestion SteadyState(const layout::EngineOptions& options, const model::ModelConfig& config,
                         const price::StepPricer& pricer, Decision* plan) {
  const cost::DeviceProfile& profile = pricer.profile();
  const int64_t longest =
      options.limits.max_model_len ? options.limits.max_model_len : config.max_position_embeddings;
  plan->priced_by = profile.name;
  plan->mean_context =
      options.limits.mean_context ? options.limits.mean_context : AssumedContext(longest);
  return {.mean_context = plan->mean_context,
          .max_batch = plan->machine.max_num_seqs,
          .pull_rate = cost::PullRate(profile),
          .step = [&pricer, context = plan->mean_context](
                      int64_t batch) { return pricer.Decode(batch, context).all(); },
          .contention = cost::ContentionOf(profile, plan->machine.workers)};
}

// How many of a layer's experts ranks can hold, whichever part of them is theirs (tp). Ascending.
base::Result<std::vector<int64_t>> ExpertSizes(const layout::Layout& layout,
                                               const DecoderPlans& decoders) {
  std::vector<int64_t> sizes;
  for (int t = 0; t < layout.tp; ++t) {
    const int64_t part = decoders[static_cast<size_t>(t)]->shard.experts.size();
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

// Sets how many experts of a layer a rank holds.
base::Status ChooseExperts(const layout::EngineOptions& options, const model::ModelConfig& config,
                           const DecoderPlans& decoders, const price::StepPricer& pricer,
                           Decision* plan) {
  PoolQuestion question = SteadyState(options, config, pricer, plan);
  // What cannot work at all is an error, not a size that does not fit.
  layout::LayoutPlan least = *plan;
  least.layout.expert_size = 0;
  FB_RETURN_IF_ERROR(PlanRanks(options, config, decoders, nullptr, &least));
  question.memory = [&](int64_t size) {
    return MemoryWithExperts(options, config, decoders, pricer, *plan, plan->mean_context, size);
  };
  FB_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, ExpertSizes(plan->layout, decoders));
  plan->expert_choice = ChooseExpertSize(sizes, question);
  plan->layout.expert_size = plan->expert_choice->size;
  return base::Status::Ok();
}

// Sets the pooled layers.
base::Status ChoosePool(const layout::EngineOptions& options, const model::ModelConfig& config,
                        const DecoderPlans& decoders, const price::StepPricer& pricer,
                        Decision* plan) {
  PoolQuestion question = SteadyState(options, config, pricer, plan);
  question.num_layers = DenseLayers(config);
  // What cannot work at all is an error, not a number of layers that does not fit.
  layout::LayoutPlan all = *plan;
  all.layout.pool_layers = question.num_layers;
  FB_RETURN_IF_ERROR(PlanRanks(options, config, decoders, nullptr, &all));
  question.memory = [&](int64_t layers) {
    return MemoryWithLayers(options, config, decoders, pricer, *plan, layers);
  };
  plan->choice = ChoosePoolLayers(question);
  plan->layout.pool_layers = plan->choice->layers;
  return base::Status::Ok();
}

// The same along sp: the most layers whose fetch is hidden behind a full step of a prompt, in the
// layout's own mode.
base::Status ChoosePoolAlongSp(const layout::EngineOptions& options,
                               const model::ModelConfig& config, const DecoderPlans& decoders,
                               const price::StepPricer& pricer, Decision* plan) {
  const int64_t num_layers = DenseLayers(config), rows = plan->machine.max_num_batched_tokens;
  plan->priced_by = pricer.profile().name;
  plan->layout.pool_layers = num_layers;
  FB_RETURN_IF_ERROR(PlanRanks(options, config, decoders, nullptr, plan));
  const price::StepPulls all = price::PullsOf(pricer, plan->machine, plan->ranks[0].request.pool);
  const cost::Work step = pricer.Prompts(rows, rows).all();
  PoolChoice& choice = plan->choice.emplace();
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
  plan->mean_context = rows;
  plan->layout.pool_layers = choice.layers;
  return base::Status::Ok();
}

// Where rows go on devices without data; null: data say so, or the model has no experts.
base::Result<std::shared_ptr<const model::Routing>> PlanRouting(
    const layout::EngineOptions& options, const model::ModelConfig& config,
    const layout::LayoutPlan& plan) {
  const std::shared_ptr<const model::Routing>& given = options.machine.routing;
  if (!options.machine.record_routing.empty())
    FB_RETURN_IF_ERROR(layout::CheckRecording(options, config, plan));
  if (!plan.machine.has_data && config.moe && !given)
    return model::ParseRouting("balanced", options.seed);
  if (given && config.moe) FB_RETURN_IF_ERROR(given->Check(config));
  if (given && given->names_rows() && plan.layout.sp > 1) {
    return base::Status(base::kInvalidArgument,
                        fmt::format("--routing: a recorded file beside sp={}, where each rank has "
                                    "rows of its own, is not there yet; expected balanced, power:A "
                                    "or sp=1",
                                    plan.layout.sp));
  }
  if (!given || (!plan.machine.has_data && config.moe)) return given;
  return base::Status(base::kInvalidArgument,
                      plan.machine.has_data
                          ? "--routing: on real devices data say which experts rows go to; "
                            "expected --devices sim:..."
                          : fmt::format("--routing: {} has no experts", config.architecture));
}

// The model as its weights and its KV cache lie in memory: devices that compute have both in the
// compute type.
base::Result<model::ModelConfig> AsStored(const layout::MachineOptions& options, bool has_data,
                                          model::ModelConfig model) {
  const std::optional<cost::NumberFormat> quantization = options.quantization;
  if (!has_data) {
    if (quantization) model.stored = {*quantization, {}};
    model.stored_kv = options.kv_cache_format;
    return model;
  }
  if (options.kv_cache_format) {
    return base::Status(
        layout::kKvCacheDtype,
        fmt::format(
            "--kv-cache-dtype {}: no kernel reads it, real devices keep the KV cache in the "
            "compute type; expected auto, or --devices sim:...",
            cost::Name(*options.kv_cache_format)));
  }
  if (quantization) {
    return base::Status(
        layout::kQuantization,
        fmt::format("--quantization {}: real devices compute with what the files hold, in bfloat16 "
                    "or float32; expected --devices sim:...",
                    cost::Name(*quantization)));
  }
  if (model.stored && model.stored->format == cost::NumberFormat::kNVFP4) {
    return base::Status(layout::kQuantization,
                        "the model's weights are NVFP4, which real devices do not read; expected "
                        "fp8 with blocks of 128 x 128, bfloat16, float16 or float32");
  }
  model.stored.reset();
  return model;
}

}  // namespace

base::Result<Decision> Decide(const layout::EngineOptions& options, const model::ModelConfig& model,
                              int num_devices) {
  Decision plan;
  FB_RETURN_IF_ERROR(layout::CheckOptions(options, model));
  plan.dtype = options.machine.dtype;
  plan.kernels = options.machine.kernels;
  if (plan.kernels == nullptr) {
    FB_ASSIGN_OR_RETURN(plan.kernels, kernels::ChooseKernels("auto"));
  }
  FB_ASSIGN_OR_RETURN(plan.machine, layout::PlanMachine(options, model, *plan.kernels));
  FB_ASSIGN_OR_RETURN(const model::ModelConfig config,
                      AsStored(options.machine, plan.machine.has_data, model));
  FB_ASSIGN_OR_RETURN(
      plan.layout,
      LayoutOf(options, config, num_devices > 0 ? num_devices : plan.machine.spec.count));
  FB_ASSIGN_OR_RETURN(plan.routing, PlanRouting(options, config, plan));
  FB_RETURN_IF_ERROR(layout::CheckLinks(options, plan));
  FB_RETURN_IF_ERROR(layout::CheckDigest(options, plan));
  FB_RETURN_IF_ERROR(layout::CheckRequests(options, plan));
  plan.steps_in_flight =
      options.limits.steps_in_flight ? options.limits.steps_in_flight : plan.layout.pp;
  // The default is that of a step: choices are shared out among those in flight.
  if (options.limits.max_num_seqs == 0) plan.machine.max_num_seqs *= plan.steps_in_flight;
  const auto choose_shift = [&](const price::StepPulls* pulls) -> base::Status {
    FB_ASSIGN_OR_RETURN(ShiftChoice shift,
                        ChooseShift(options, config, plan.layout, plan.machine, pulls));
    plan.shift = std::move(shift.plan);
    plan.mode_prices = std::move(shift.prices);
    return {};
  };
  FB_RETURN_IF_ERROR(choose_shift(nullptr));
  const DecoderPlans decoders = PlanDecoders(options, config, plan);
  const bool chooses = plan.layout.pools_layers() && !plan.layout.pool_layers;
  std::optional<price::StepPricer> pricer;
  const bool forecasts = plan.machine.prices_modes && options.job != nullptr;
  const auto pricer_of_ranks = [&]() -> const price::StepPricer& {
    // Made once, and only where something is chosen by prices.
    if (!pricer) {
      const int64_t rows = std::max(plan.machine.max_num_seqs, plan.machine.max_num_batched_tokens);
      pricer.emplace(
          config, plan.dtype, plan.layout.degrees(),
          model::StepCapacity{rows, layout::LogitRows(config, plan.machine.max_num_batched_tokens)},
          plan.machine.profile, options.pricing());
    }
    return *pricer;
  };
  const bool chooses_experts = plan.layout.pools_experts() && !plan.layout.expert_size;
  if (forecasts ||
      (plan.layout.pools() && (plan.machine.prices_modes || chooses || chooses_experts)))
    pricer_of_ranks();
  if (chooses_experts) FB_RETURN_IF_ERROR(ChooseExperts(options, config, decoders, *pricer, &plan));
  if (chooses) {
    const auto choose = plan.layout.pools_along_sp() ? &ChoosePoolAlongSp : &ChoosePool;
    FB_RETURN_IF_ERROR(choose(options, config, decoders, *pricer, &plan));
  }
  if (plan.layout.pools_along_sp()) {
    // What steps pull decides which modes they take.
    FB_RETURN_IF_ERROR(PlanRanks(options, config, decoders, nullptr, &plan));
    const price::StepPulls pulls =
        price::PullsOf(pricer_of_ranks(), plan.machine, plan.ranks[0].request.pool);
    FB_RETURN_IF_ERROR(choose_shift(&pulls));
  }
  FB_RETURN_IF_ERROR(PlanRanks(options, config, decoders,
                               plan.machine.prices_modes && pricer ? &*pricer : nullptr, &plan));
  FB_RETURN_IF_ERROR(layout::CheckTier(options, plan));
  const auto divide = [&](int32_t blocks, layout::LayoutPlan* trial) {
    trial->streamed_blocks = blocks;
    return PlanRanks(options, config, decoders,
                     trial->machine.prices_modes && pricer ? &*pricer : nullptr, trial);
  };
  FB_RETURN_IF_ERROR(PlanStreaming(options, config, pricer_of_ranks, divide, &plan));
  if (forecasts && plan.Fits().ok()) {
    if (plan.choice && plan.streaming.empty()) plan.forecast = plan.choice->chosen().job;
    if (!plan.forecast) plan.forecast = ForecastOf(options, config, plan, *pricer);
  }
  return plan;
}

std::string FormatJob(const JobForecast& job) {
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
      choice.size, plan.config().moe->num_experts, plan.mean_context, plan.priced_by,
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

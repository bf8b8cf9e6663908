#include "engine/layout_plan.h"

#include <algorithm>

#include "cost/model.h"
#include "engine/group_plan.h"
#include "engine/step_price.h"

namespace forebay::engine {
namespace {

// Of pool=auto: what a choice holds where nobody says, at most; and the built-in profile by which a real CPU is priced.
constexpr int64_t kMostMeanContext = 2048;
constexpr char kCpuProfile[] = "zen4";
// More only fill memory: a step waits for its turn on every stage.
constexpr int kMostStepsInFlight = 64;
// While one layer is used, the next are on their way.
constexpr int64_t kLookAheadLayers = 2;
// Links of simulated devices are shared evenly however copies are cut, and each slice is an event.
constexpr uint64_t kSlice = base::kMiB, kSimulatedSlice = 64 * base::kMiB;

base::Result<tensor::DType> ComputeType(const std::string& dtype) {
  if (dtype == "auto" || dtype == "bfloat16") return tensor::DType::kBF16;
  if (dtype == "float32") return tensor::DType::kF32;
  if (dtype == "float16" || dtype == "half") {
    return base::Status(base::kInvalidArgument,
                        "--dtype float16 is not supported: its range is too small for the residual streams of the models "
                        "served here, and no kernel of this device computes in it; use bfloat16 or float32");
  }
  return base::Status(base::kInvalidArgument,
                      fmt::format("--dtype \"{}\" is unknown; expected auto, bfloat16 or float32", dtype));
}

base::Status CheckOptions(const EngineOptions& options) {
  const auto at_least = [](const char* flag, int64_t value, int64_t least) {
    if (value >= least) return base::Status::Ok();
    return base::Status(base::kInvalidArgument, fmt::format("{} is {}; expected at least {}", flag, value, least));
  };
  FB_RETURN_IF_ERROR(at_least("--max-num-seqs", options.max_num_seqs, 0));
  FB_RETURN_IF_ERROR(at_least("--max-num-batched-tokens", options.max_num_batched_tokens, 0));
  FB_RETURN_IF_ERROR(at_least("--max-model-len", options.max_model_len, 0));
  FB_RETURN_IF_ERROR(at_least("--num-kv-blocks-override", options.kv_blocks, 0));
  FB_RETURN_IF_ERROR(at_least("--threads", options.threads, 0));
  FB_RETURN_IF_ERROR(at_least("--steps-in-flight", options.steps_in_flight, 0));
  if (options.steps_in_flight > kMostStepsInFlight) {
    return base::Status(base::kInvalidArgument, fmt::format("--steps-in-flight is {}; expected at most {}", options.steps_in_flight, kMostStepsInFlight));
  }
  if (options.memory_bytes > 0 && options.memory_per_rank_bytes > 0) {
    return base::Status(base::kInvalidArgument, fmt::format("--memory {} and --memory-per-rank {} are both given; expected one of them",
                                                            base::FormatBytes(options.memory_bytes),
                                                            base::FormatBytes(options.memory_per_rank_bytes)));
  }
  if (options.memory_utilization > 0 && options.memory_utilization <= 1) return base::Status::Ok();
  return base::Status(base::kInvalidArgument, fmt::format("--gpu-memory-utilization is {}; expected more than 0 and at most 1",
                                                          options.memory_utilization));
}

base::Status CheckLength(const EngineOptions& options, const model::ModelConfig& config) {
  if (options.max_model_len <= config.max_position_embeddings) return base::Status::Ok();
  return base::Status(kMaxModelLen, fmt::format("--max-model-len {} is more than the {} positions of the model (config.json, "
                                                "max_position_embeddings)",
                                                options.max_model_len, config.max_position_embeddings));
}

// Every device a replica, where nothing else is asked for.
base::Result<Layout> ChooseLayout(const EngineOptions& options, const model::ModelConfig& config, int num_devices) {
  if (options.layout.empty()) return Layout{.dp = num_devices};
  FB_ASSIGN_OR_RETURN(const Layout layout, ParseLayout(options.layout));
  FB_RETURN_IF_ERROR(ValidateLayout(layout, config, num_devices));
  return layout;
}

// Of the ranks that share weights with one of this cut; a stage pools its part of the layers.
base::Result<std::vector<model::PoolPlan>> PlanPool(const EngineOptions& options,
                                                    const LayoutPlan& plan, const model::DecoderPlan& decoder) {
  model::PoolOptions pool = options.pool;
  pool.placement = plan.layout.weights;
  pool.layers = base::EvenPart(*plan.layout.pool_layers, decoder.shard.cut.pp, decoder.shard.cut.stage).size();
  pool.attention = plan.layout.pool_attention;
  weights::SlotSettings& slots = pool.slots;
  if (slots.budget_bytes == 0 && slots.look_ahead_layers == 0 && slots.look_ahead_bytes == 0) slots.look_ahead_layers = kLookAheadLayers;
  // Parts of layers come from all owners alike: there is no peak to shift.
  if (pool.placement != "by_layer") pool.order = weights::FetchOrder::kAsUsed;
  // From all peers at once.
  pool.requests_in_flight = std::max(pool.requests_in_flight, plan.layout.dp - 1);
  if (pool.slice_bytes == 0) pool.slice_bytes = plan.machine.spec.simulated ? kSimulatedSlice : kSlice;
  return model::PlanPools(pool, plan.layout.dp, decoder);
}

// What the ranks of a replica hold, before anything is pooled.
using DecoderPlans = std::vector<std::shared_ptr<const model::DecoderPlan>>;
DecoderPlans PlanDecoders(const model::ModelConfig& config, const LayoutPlan& plan) {
  DecoderPlans decoders;
  for (int rank = 0; rank < plan.layout.ranks_per_replica(); ++rank) {
    decoders.push_back(std::make_shared<model::DecoderPlan>(model::PlanDecoder(config, plan.dtype, 1, CutOf(plan.layout, rank))));
  }
  return decoders;
}

// Pools and memory, for plan->layout. `pricer`: see PlanGroup.
base::Status PlanRanks(const EngineOptions& options, const model::ModelConfig& config, const DecoderPlans& decoders,
                       const StepPricer* pricer, LayoutPlan* plan) {
  std::vector<MemoryRequest> requests;
  for (int rank = 0; rank < plan->layout.ranks_per_replica(); ++rank) {
    MemoryRequest& request = requests.emplace_back();
    request = {.budget_bytes = plan->machine.budget_bytes,
               .device_bytes = plan->machine.device_bytes,
               .max_model_len = options.max_model_len,
               .stable_bytes = plan->machine.stable_bytes,
               .max_num_seqs = plan->machine.max_num_seqs,
               .max_num_batched_tokens = plan->machine.max_num_batched_tokens,
               .max_kv_blocks = options.kv_blocks,
               .steps_in_flight = plan->steps_in_flight,
               .digest = options.digest,
               .cut = CutOf(plan->layout, rank),
               .decoder = decoders[rank]};
    if (!plan->layout.pools()) continue;
    FB_ASSIGN_OR_RETURN(request.pool, PlanPool(options, *plan, *request.decoder));
  }
  if (plan->layout.pool_layers.value_or(0) > 0) {
    FB_ASSIGN_OR_RETURN(plan->group, PlanGroup(options, plan->machine, pricer, &requests));
  }
  const std::vector<MemoryPlan> memory = DivideReplicaMemory(config, plan->dtype, requests);
  plan->ranks.clear();
  for (size_t rank = 0; rank < requests.size(); ++rank) plan->ranks.push_back({std::move(requests[rank]), memory[rank]});
  return base::Status::Ok();
}

// What a replica has with so many layers pooled; nothing where they do not fit.
PooledMemory MemoryWith(const EngineOptions& options, const model::ModelConfig& config, const DecoderPlans& decoders,
                        LayoutPlan plan, int64_t layers) {
  plan.layout.pool_layers = layers;
  if (!PlanRanks(options, config, decoders, nullptr, &plan).ok() || !plan.Fits().ok()) return {};
  PooledMemory memory{.kv_tokens = plan.ranks[0].memory.kv_tokens()};
  for (const RankPlan& rank : plan.ranks) {
    for (const model::PoolPlan& pool : rank.request.pool) memory.pull_bytes = std::max(memory.pull_bytes, pool.book->StepBytes(pool.rank));
  }
  return memory;
}

// Sets the pooled layers.
base::Status ChoosePool(const EngineOptions& options, const model::ModelConfig& config, const DecoderPlans& decoders,
                        const StepPricer& pricer, LayoutPlan* plan) {
  const cost::DeviceProfile& profile = pricer.profile();
  const int64_t longest = options.max_model_len ? options.max_model_len : config.max_position_embeddings;
  plan->priced_by = profile.name;
  plan->mean_context = options.mean_context ? options.mean_context : std::clamp<int64_t>(longest / 4, 1, kMostMeanContext);
  // What cannot work at all is an error, not a number of layers that does not fit.
  LayoutPlan all = *plan;
  all.layout.pool_layers = config.num_layers;
  FB_RETURN_IF_ERROR(PlanRanks(options, config, decoders, nullptr, &all));
  plan->choice = ChoosePoolLayers(
      {.num_layers = config.num_layers,
       .mean_context = plan->mean_context,
       .max_batch = plan->machine.max_num_seqs,
       .pull_rate = cost::PullRate(profile),
       .memory = [&](int64_t layers) { return MemoryWith(options, config, decoders, *plan, layers); },
       .step = [&](int64_t batch) { return pricer.Decode(batch, plan->mean_context).all(); },
       .contention = cost::ContentionOf(profile, plan->machine.workers)});
  plan->layout.pool_layers = plan->choice->layers;
  return base::Status::Ok();
}

}  // namespace

base::Result<cost::DeviceProfile> PriceProfile(const MachinePlan& machine) {
  if (machine.spec.simulated) return machine.profile;
  return cost::LoadProfile(kCpuProfile);
}

base::Status LayoutPlan::Fits() const {
  for (const RankPlan& rank : ranks) FB_RETURN_IF_ERROR(CheckFits(rank.memory, rank.request));
  return base::Status::Ok();
}

base::Result<LayoutPlan> PlanLayout(const EngineOptions& options, const model::ModelConfig& config) {
  LayoutPlan plan;
  FB_RETURN_IF_ERROR(CheckOptions(options));
  FB_RETURN_IF_ERROR(CheckLength(options, config));
  FB_ASSIGN_OR_RETURN(plan.dtype, ComputeType(options.dtype));
  plan.kernels = options.kernels;
  if (plan.kernels == nullptr) {
    FB_ASSIGN_OR_RETURN(plan.kernels, kernels::ChooseKernels(options.isa));
  }
  FB_ASSIGN_OR_RETURN(plan.machine, PlanMachine(options, config, plan.dtype, *plan.kernels));
  FB_ASSIGN_OR_RETURN(plan.layout, ChooseLayout(options, config, plan.machine.spec.count));
  plan.steps_in_flight = options.steps_in_flight ? options.steps_in_flight : plan.layout.pp;
  // The default is that of a step: choices are shared out among those in flight.
  if (options.max_num_seqs == 0) plan.machine.max_num_seqs *= plan.steps_in_flight;
  const DecoderPlans decoders = PlanDecoders(config, plan);
  const bool simulated = plan.machine.spec.simulated, chooses = plan.layout.pools() && !plan.layout.pool_layers;
  FB_ASSIGN_OR_RETURN(const cost::DeviceProfile profile, PriceProfile(plan.machine));
  std::optional<StepPricer> pricer;
  if (plan.layout.pools() && (simulated || chooses)) {
    const int64_t rows = std::max(plan.machine.max_num_seqs, plan.machine.max_num_batched_tokens);
    const auto calibration = options.sim_uncalibrated ? cost::Calibration::kUncalibrated : cost::Calibration::kCalibrated;
    pricer.emplace(config, plan.dtype, plan.layout.tp, model::StepCapacity{rows, LogitRows(config, plan.machine.max_num_batched_tokens)},
                   profile, calibration);
  }
  if (chooses) FB_RETURN_IF_ERROR(ChoosePool(options, config, decoders, *pricer, &plan));
  FB_RETURN_IF_ERROR(PlanRanks(options, config, decoders, simulated && pricer ? &*pricer : nullptr, &plan));
  return plan;
}

std::string FormatChoice(const LayoutPlan& plan) {
  const auto format = [](const PoolTrial& trial) {
    if (trial.batch == 0) return std::string("does not fit");
    return fmt::format("batch {}, step {:.1f} ms, fetch {:.1f} ms, {:.0f} tokens/s of a replica", trial.batch, 1e3 * trial.step_seconds,
                       1e3 * trial.fetch_seconds, trial.tokens_per_s());
  };
  const PoolChoice& choice = *plan.choice;
  return fmt::format("pool=auto: {} of {} layers are pooled, for a mean context of {} tokens and by the prices of {}: {}; none: {}; "
                     "all: {}",
                     choice.layers, choice.trials.back().layers, plan.mean_context, plan.priced_by, format(choice.chosen()),
                     format(choice.trials.front()), format(choice.trials.back()));
}

}  // namespace forebay::engine

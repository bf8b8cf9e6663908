#include "engine/compose.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "device/sim/sim_device.h"
#include "engine/build_machine.h"
#include "fabric/sim/sim_fabric.h"
#include "kernels/kernel_set.h"
#include "layout/layout_plan.h"
#include "layout/layout_search.h"
#include "layout/park_price.h"
#include "layout/steal_price.h"
#include "layout/step_price.h"

namespace forebay::engine {
namespace {

std::vector<int32_t> EndTokens(const ModelFiles& files) {
  std::vector<int32_t> ids = files.config.eos_token_ids;
  ids.insert(ids.end(), files.generation.eos_token_ids.begin(),
             files.generation.eos_token_ids.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::string NumericsClass(const kernels::KernelSet& kernels, tensor::DType dtype,
                          const model::ModelConfig& config) {
  // The form of latent attention decides what is rounded, and so is part of the name.
  const char* const form = config.mla ? "-absorbed" : "";
  if (dtype == tensor::DType::kF32) return fmt::format("pair-f32-kvf32{}", form);
  return fmt::format("{}-bf16-kvbf16{}", kernels.numerics_class, form);
}

// What all groups of a job are made from.
struct Materials {
  runtime::Runtime& runtime;
  const layout::EngineOptions& options;
  const model::ModelConfig& config;
  const layout::LayoutPlan& plan;
  const weights::TensorReader* reader;  // null: shapes only
  device::EventEngine* sim;             // null: real devices
  std::optional<schedule::StealPrices> steal;
  schedule::ParkPrices park;
  std::shared_ptr<model::RoutingLog> routing_log;  // null: nobody records
  bool foresees = false;  // whether the policy wants to know how long choices will be
};
using Devices = std::vector<std::unique_ptr<device::Device>>;
using Fabrics = std::vector<std::unique_ptr<fabric::Fabric>>;

// By rank; none where a rank is alone.
Fabrics MakeFabrics(const Materials& job, const layout::JobGroup& group) {
  const int ranks = group.layout.ranks_per_group();
  if (ranks == 1) return {};
  Fabrics fabrics = job.sim ? fabric::CreateSimFabric(*job.sim, ranks)
                            : fabric::CreateLocalFabric(job.runtime, ranks);
  const int fault = job.options.trial.fault.rank - group.first_device;
  if (fault >= 0 && fault < ranks) {
    auto dead = job.sim ? device::CreateSimCounter(*job.sim)
                        : device::CreateCpuCounter(job.runtime, "a planted fault");
    std::unique_ptr<fabric::Fabric>& fabric = fabrics[static_cast<size_t>(fault)];
    fabric = fabric::PlantFault(std::move(fabric), std::move(dead), job.options.trial.fault);
  }
  return fabrics;
}

schedule::OwnMode OwnModeOf(const Materials& job) {
  const schedule::WantedMode& mode = job.options.ship.mode;
  // A group that meets flips by itself.
  const bool flips = mode && !mode->meets();
  return {job.plan.routed_rows, flips ? job.options.trial.flip_every : 0};
}

ReplicaOptions ReplicaOptionsOf(const Materials& job, const layout::JobGroup& group, int index) {
  const layout::MemoryPlan& memory = job.plan.ranks.back().memory;
  std::vector<base::Reach> kv_reaches;
  for (const kv::KvGroup& kv : job.plan.ranks.front().memory.kv_groups)
    kv_reaches.push_back(kv.spec.reach);
  return {.choices = {.replica = index,
                      .limits = {.max_num_seqs = job.plan.machine.max_num_seqs,
                                 .max_num_batched_tokens = job.plan.machine.max_num_batched_tokens,
                                 .total_blocks = memory.num_blocks},
                      .mode = {.ffn = group.layout.pools() ? FfnMode::kPull : FfnMode::kLocal,
                               .sp = static_cast<uint8_t>(group.layout.sp),
                               .tp = static_cast<uint8_t>(group.layout.tp)},
                      .prefix_caching = job.options.prefix_caching,
                      .max_blocks_per_sequence = memory.max_blocks_per_sequence,
                      .steps_in_flight = job.plan.steps_in_flight,
                      .kv_reaches = kv_reaches,
                      .steal = job.steal.value_or(schedule::StealPrices{}),
                      .tier_blocks = memory.tier_blocks,
                      .park = job.park,
                      .streamed_blocks = memory.streamed_blocks,
                      .lengths = job.foresees ? std::optional(job.options.lengths) : std::nullopt,
                      .overcommit = job.options.trial.overcommit},
          .shift = job.plan.shift.table,
          .own_mode = OwnModeOf(job),
          .seed = job.options.seed,
          .stall_timeout = static_cast<runtime::TimeNs>(job.options.stall_seconds * 1e9),
          .routing = job.plan.routing,
          .routing_log = job.routing_log};
}

int64_t OneMeetingRows(const Materials& job, const model::Degrees& mode) {
  const layout::MachinePlan& machine = job.plan.machine;
  return layout::OneMeetingRows(job.config, job.plan.dtype, mode.tp, machine.max_num_batched_tokens,
                                machine.profile, job.options.machine.calibration());
}

std::vector<Membership::Mode> ModesOf(const Materials& job, const layout::Layout& layout, int rank,
                                      const layout::MemoryPlan& memory) {
  std::vector<Membership::Mode> modes;
  for (const auto& view : memory.views) {
    const model::Degrees& mode = view->shard.mode;
    modes.push_back({mode, layout::TpRanks(layout, rank, mode), layout::SpRanks(layout, rank, mode),
                     OneMeetingRows(job, mode)});
  }
  return modes;
}

// The ranks of replica `member` of the group, whose devices and fabrics these are.
base::Result<std::vector<std::unique_ptr<Rank>>> MakeRanks(const Materials& job,
                                                           const layout::JobGroup& group,
                                                           int first_replica, int member,
                                                           Devices& devices,
                                                           const Fabrics& fabrics) {
  const layout::Layout& layout = group.layout;
  const layout::MachinePlan& machine = job.plan.machine;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (const layout::RankPlan& plan : job.plan.ranks) {
    const model::ReplicaCut& cut = plan.request.cut;
    const int number = layout::RankOf(layout, {member, cut.stage, cut.tp_rank, cut.sp_rank});
    const auto at = static_cast<size_t>(number);
    // Where all steps take another mode, nobody meets in the layout's own.
    const std::vector<model::ModeRows>& modes = plan.memory.capacity.modes;
    const bool own_mode =
        modes.empty() || std::ranges::count(modes, layout.degrees(), &model::ModeRows::mode) > 0;
    const fabric::Communicator nobody;
    const Membership membership{
        .cut = cut,
        .fabric = fabrics.empty() ? nullptr : fabrics[at].get(),
        .tensor = own_mode ? layout::TpRanks(layout, number, layout.degrees()) : nobody,
        .sequence = own_mode ? layout::SpRanks(layout, number, layout.degrees()) : nobody,
        .stage = layout::RanksOfStage(layout, number),
        .one_meeting_rows = OneMeetingRows(job, layout.degrees()),
        .modes = ModesOf(job, layout, number, plan.memory),
        .stages = layout::StageRanks(layout, number),
        .peers = layout::PoolRanks(layout, number),
        .pool = layout.pools() ? &plan.request.pool[static_cast<size_t>(member)] : nullptr,
        .ship_members = layout.pools() ? layout::ShipRanks(layout, number) : fabric::Communicator{},
        .replica = static_cast<uint64_t>(first_replica + member),
        .routing = job.plan.routing};
    FB_ASSIGN_OR_RETURN(
        ranks.emplace_back(),
        Rank::Create(std::move(devices[at]), job.config, plan.memory, job.options.digest,
                     *job.plan.kernels, job.reader, machine.workers, membership));
    if (!job.sim && job.options.machine.touch_kv_bytes > 0)
      ranks.back()->kv().Touch(job.options.machine.touch_kv_bytes, machine.workers);
  }
  return ranks;
}

// `first_replica`: the job's number of its first one.
base::Result<std::unique_ptr<Group>> MakeGroup(const Materials& job, const layout::JobGroup& group,
                                               int first_replica, Devices devices) {
  const layout::Layout& layout = group.layout;
  GroupParts parts{.role = group.role,
                   .fabrics = MakeFabrics(job, group),
                   .agreement = job.plan.group,
                   .steal = job.steal.has_value()};
  // Where ranks share weights, or meet in a step.
  parts.one_fate = layout.dp > 1 && (layout.pools() || layout.ranks_per_replica() > 1);
  for (int member = 0; member < layout.dp; ++member) {
    FB_ASSIGN_OR_RETURN(auto ranks,
                        MakeRanks(job, group, first_replica, member, devices, parts.fabrics));
    FB_ASSIGN_OR_RETURN(auto policy, schedule::CreatePolicy(job.options.policy));
    parts.replicas.push_back(
        std::make_unique<Replica>(job.runtime, std::move(ranks), std::move(policy),
                                  ReplicaOptionsOf(job, group, first_replica + member)));
  }
  for (const auto& replica : parts.replicas) {
    for (const auto& rank : replica->ranks()) FB_RETURN_IF_ERROR(rank->Connect());
  }
  return std::make_unique<Group>(job.runtime, std::move(parts));
}

// Sums over all ranks of the job.
void AddMemory(const layout::LayoutPlan& plan, ModelFacts* facts) {
  const auto replicas = static_cast<uint64_t>(plan.replicas());
  facts->max_model_len = static_cast<int32_t>(plan.ranks[0].memory.max_model_len);
  facts->kv_capacity_tokens = plan.ranks[0].memory.kv_tokens() * plan.replicas();
  for (const auto& [request, memory] : plan.ranks) {
    const uint64_t weights =
        memory.bytes(layout::RegionUse::kWeights) + memory.bytes(layout::RegionUse::kPool);
    facts->weight_bytes += weights * replicas;
    facts->kv_bytes += memory.bytes(layout::RegionUse::kKv) * replicas;
    facts->workspace_bytes += (memory.fixed_bytes() - weights) * replicas;
  }
}

}  // namespace

base::Result<std::unique_ptr<LocalEngine>> CreateEngine(runtime::Runtime& runtime,
                                                        const layout::EngineOptions& options,
                                                        const ModelFiles& files,
                                                        const text::Tokenizer* tokenizer) {
  const model::ModelConfig& config = files.config;
  FB_ASSIGN_OR_RETURN(const layout::LayoutPlan layout_plan, layout::PlanJob(options, config));
  const layout::Layout& layout = layout_plan.layout;
  const layout::MachinePlan& machine_plan = layout_plan.machine;
  const bool simulated = machine_plan.spec.simulated;
  if (simulated && options.digest) {
    return base::Status(
        base::kInvalidArgument,
        fmt::format("--digest: the devices {} have no data to digest", machine_plan.spec.text));
  }
  FB_RETURN_IF_ERROR(layout_plan.Fits());
  if (layout_plan.choice) base::Log(base::LogLevel::kInfo, layout::FormatChoice(layout_plan));
  if (options.layout_by_job)
    base::Log(base::LogLevel::kInfo, fmt::format("--layout auto: {}", FormatLayout(layout)));
  if ((layout_plan.choice || options.layout_by_job) && layout_plan.forecast)
    base::Log(base::LogLevel::kInfo, layout::FormatForecast(layout_plan));
  const kernels::KernelSet* const kernels = layout_plan.kernels;

  EngineParts parts{.isa = simulated ? machine_plan.spec.text : kernels->name};
  parts.pool_layers = layout.pool_layers.value_or(0);
  if (layout.dp > 1 && (parts.pool_layers > 0 || layout.pools_experts()))
    parts.forced_mode = options.ship.mode;
  if (layout_plan.forecast) parts.expected_ms = std::llround(1e3 * layout_plan.forecast->seconds);
  parts.most_ahead =
      static_cast<size_t>(layout_plan.replicas()) * static_cast<size_t>(machine_plan.max_num_seqs);
  const std::optional<schedule::StealPrices> steal_prices =
      layout::PriceStealing(options, layout_plan);
  const std::vector<layout::JobGroup> groups = layout::GroupsOf(layout);
  FB_ASSIGN_OR_RETURN(Machine machine, BuildMachine(machine_plan, options, groups, runtime));
  parts.sim = std::move(machine.sim);
  FB_ASSIGN_OR_RETURN(const auto policy, schedule::CreatePolicy(options.policy));
  std::shared_ptr<model::RoutingLog> routing_log;
  if (!options.machine.record_routing.empty()) {
    FB_ASSIGN_OR_RETURN(routing_log,
                        model::RoutingLog::Create(options.machine.record_routing, config));
  }
  const Materials job{.runtime = runtime,
                      .options = options,
                      .config = config,
                      .plan = layout_plan,
                      .reader = simulated ? nullptr : files.reader.get(),
                      .sim = parts.sim.get(),
                      .steal = steal_prices,
                      .park = layout::PriceParking(options, layout_plan),
                      .routing_log = routing_log,
                      .foresees = policy->wants_lengths()};
  int replicas = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const layout::JobGroup& group = groups[i];
    FB_ASSIGN_OR_RETURN(parts.groups.emplace_back(),
                        MakeGroup(job, group, replicas, std::move(machine.groups[i])));
    replicas += group.layout.dp;
  }

  parts.facts = {.name = files.name,
                 .vocab_size = static_cast<int32_t>(config.vocab_size),
                 .numerics_class =
                     simulated ? "simulated" : NumericsClass(*kernels, layout_plan.dtype, config),
                 .model_fingerprint = files.fingerprint,
                 .random_weights = files.random_weights,
                 .device_profile = machine_plan.profile.name};
  AddMemory(layout_plan, &parts.facts);
  parts.context = {tokenizer, EndTokens(files), parts.facts.max_model_len};
  return std::make_unique<LocalEngine>(runtime, std::move(parts));
}

}  // namespace forebay::engine

#include "engine/compose.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "engine/backend/backend.h"
#include "engine/refusal.h"
#include "kernels/kernel_set.h"
#include "model/blocks/latent_forms.h"
#include "price/park_price.h"
#include "price/steal_price.h"
#include "price/step_price.h"
#include "price/step_table.h"
#include "price/stream_price.h"

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

// A row for each platform.
constexpr struct {
  const layout::Platform& (*platform)();
  std::unique_ptr<Backend> (*create)(runtime::Runtime&, const layout::LayoutDraft&,
                                     const layout::EngineOptions&);
} kBackends[] = {
    {layout::CpuPlatform, CreateCpuBackend},
    {layout::CudaPlatform, CreateCudaBackend},
    {layout::SimulatedPlatform, CreateSimBackend},
};

std::unique_ptr<Backend> CreateBackend(runtime::Runtime& runtime, const layout::LayoutDraft& plan,
                                       const layout::EngineOptions& options) {
  const auto row = std::ranges::find_if(kBackends, [&](const auto& backend) {
    return &backend.platform() == plan.machine.spec.platform;
  });
  return row->create(runtime, plan, options);
}

// What a kept file must be of to be of use.
std::string KeptIdentity(const ModelFiles& files, const layout::LayoutPlan& plan,
                         const std::string& numerics, bool digests) {
  return fmt::format("model {:016x}, numerics class {}, {} bytes a block of {} tokens",
                     files.fingerprint, numerics, plan.KvBlockBytes(digests), kv::kBlockTokens);
}

// Null where the policy asks for no prices.
std::shared_ptr<const schedule::StepPrices> PricesFor(const schedule::Policy& policy,
                                                      const layout::EngineOptions& options,
                                                      const layout::LayoutPlan& plan) {
  if (!policy.orders_services()) return nullptr;
  auto prices = std::make_shared<schedule::StepPrices>(price::PriceSteps(options, plan));
  const double target_ms = options.limits.target_itl_ms,
               least_ms = 1e3 * prices->Seconds(schedule::StepRows().With(0, 1, true));
  if (target_ms > 0 && target_ms < least_ms) {
    base::Log(
        base::LogLevel::kWarning,
        fmt::format("--target-itl-ms {}: a step of one row takes {:.3g} ms by the profile {}; "
                    "beside interactive answers batches get one row a step",
                    target_ms, least_ms, plan.machine.profile.name));
  }
  return prices;
}

// What all groups of a role are made from.
struct Materials {
  runtime::Runtime& runtime;
  const layout::EngineOptions& options;
  const model::ModelConfig& config;
  const std::vector<layout::JobGroup>& groups;  // all of the job
  const std::vector<layout::RolePlan>& roles;   // all of the job
  Fabrics& kv_fabrics;                          // EngineParts'
  const layout::LayoutPlan& plan;               // of the role
  const schedule::WantedMode& mode;             // of the role
  const weights::TensorReader* reader;          // null: shapes only
  Backend& backend;
  std::optional<schedule::StealPrices> steal;
  schedule::ParkPrices park;
  bool by_service = false;                             // the policy orders services
  std::shared_ptr<const schedule::StepPrices> prices;  // null: it does not
  std::shared_ptr<model::RoutingLog> routing_log;      // null: nobody records
  std::string kept_identity, model_name;               // of what a kept file is
  // Where the policy wants to know how long choices will be, EngineParts::earlier; else null.
  std::shared_ptr<std::vector<schedule::EarlierAnswer>> earlier;
};

// In the fabric of one of them, of which the first is the job's `first_device`.
void PlantFault(const Materials& job, int first_device, Fabrics* fabrics) {
  const int fault = job.options.trial.fault.rank - first_device;
  if (fault < 0 || fault >= static_cast<int>(fabrics->size())) return;
  auto dead = job.backend.NewCounter("a planted fault");
  std::unique_ptr<fabric::Fabric>& fabric = (*fabrics)[static_cast<size_t>(fault)];
  fabric = fabric::PlantFault(std::move(fabric), std::move(dead), job.options.trial.fault);
}

// By rank; none where a rank is alone.
Fabrics MakeFabrics(const Materials& job, const layout::JobGroup& group) {
  const int ranks = group.layout.ranks_per_group();
  if (ranks == 1) return {};
  Fabrics fabrics = job.backend.NewFabric(ranks);
  PlantFault(job, group.first_device, &fabrics);
  return fabrics;
}

schedule::ModeRule ModeRuleOf(const Materials& job, const layout::Layout& layout) {
  // A group that meets flips by itself.
  const bool flips = job.mode && !job.mode->meets();
  return {.wanted = {.ffn = layout.pools() ? FfnMode::kPull : FfnMode::kLocal,
                     .degrees = layout.degrees()},
          .routed_rows = job.plan.routed_rows,
          .flip_every = flips ? job.options.trial.flip_every : 0,
          .shift = job.plan.shift.table};
}

// By device of the job; none where no KV goes from group to group.
Fabrics MakeKvFabrics(const Materials& job) {
  if (job.groups.front().role == GroupRole::kAll) return {};
  Fabrics fabrics = job.backend.NewPullFabric(job.plan.machine.spec.count);
  PlantFault(job, 0, &fabrics);
  return fabrics;
}

// What the ranks of the group's replica of this number have of its KV; `plan` is that of their
// role.
std::vector<kv::KvShare> SharesOf(const layout::LayoutPlan& plan, const layout::JobGroup& group,
                                  int replica) {
  std::vector<kv::KvShare> shares;
  for (const layout::RankPlan& rank : plan.ranks) {
    const model::ReplicaCut& cut = rank.request.cut;
    const layout::RankPlace place{replica, cut.stage, cut.tp_rank, cut.sp_rank};
    const model::Shard& shard = rank.memory.decoder->shard;
    const int in_group = layout::RankOf(group.layout, place);
    shares.push_back({group.role == GroupRole::kAll ? in_group : group.DeviceAt(place),
                      shard.layers, rank.memory.kv_groups, rank.memory.num_blocks,
                      rank.memory.states});
  }
  return shares;
}

// What the rank with plan.ranks[`rank`] of `group` pulls of KV: Membership::lent. KV goes over from
// all groups, else within one.
std::vector<std::vector<kv::PullPart>> LentTo(const Materials& job, const layout::JobGroup& group,
                                              int replica, size_t rank) {
  std::vector<std::vector<kv::PullPart>> lent;
  const std::vector<kv::KvShare> takers = SharesOf(job.plan, group, replica);
  for (const layout::JobGroup& other : job.groups) {
    const bool lends = group.role != GroupRole::kAll || other.first_device == group.first_device;
    const auto role = std::ranges::find(job.roles, other.role, &layout::RolePlan::role);
    for (int giver = 0; giver < other.layout.dp; ++giver) {
      lent.emplace_back();
      if (!lends) continue;
      lent.back() =
          kv::PullParts(takers, rank, SharesOf(role->plan, other, giver), job.options.digest);
    }
  }
  return lent;
}

// What is forced is not measured; nor are ranks that wait for each other, too.
StreamingOptions StreamingOf(const Materials& job, const layout::MemoryPlan& memory) {
  StreamingOptions options{
      .places = memory.streamed_blocks,
      .least = std::max(0, memory.max_blocks_per_sequence - memory.num_blocks),
      .block_bytes = static_cast<double>(memory.kv_groups[0].layout.LayerBytes()) *
                     static_cast<double>(memory.kv_groups[0].layers.size()),
      .flip_seed = job.options.trial.flip_streaming};
  if (job.options.tier.offload != layout::Offloading::kAlways && job.plan.ranks.size() == 1 &&
      !job.options.trial.fixed_streaming)
    options.bytes_per_s = price::StreamRate(job.plan.machine.profile, memory.tier_blocks,
                                            job.plan.machine.spec.count);
  return options;
}

int64_t JobReplicas(const Materials& job) {
  int64_t replicas = 0;
  for (const layout::JobGroup& group : job.groups) replicas += group.layout.dp;
  return replicas;
}

ReplicaOptions ReplicaOptionsOf(const Materials& job, const layout::JobGroup& group, int index) {
  const layout::MemoryPlan& memory = job.plan.ranks.back().memory;
  std::vector<base::Reach> kv_reaches;
  std::vector<int32_t> most_kv_blocks;
  for (const kv::KvGroup& kv : job.plan.ranks.front().memory.kv_groups) {
    kv_reaches.push_back(kv.spec.reach);
    most_kv_blocks.push_back(kv.most_blocks);
  }
  ReplicaOptions options{
      .choices = {.replica = index,
                  .role = group.role,
                  .limits = {.max_num_seqs = job.plan.machine.max_num_seqs,
                             .max_num_batched_tokens = job.plan.machine.max_num_batched_tokens,
                             .total_blocks = memory.num_blocks,
                             .prompt_blocks = job.plan.prompt_blocks,
                             .target_itl_seconds = job.options.limits.target_itl_ms / 1e3,
                             .max_step_seconds = job.options.limits.max_step_ms / 1e3},
                  .prefix_caching = job.options.prefix_caching,
                  .kept_states = memory.kept_states,
                  .state_every = job.options.limits.state_every,
                  .max_blocks_per_sequence = memory.max_blocks_per_sequence,
                  .steps_in_flight = job.plan.steps_in_flight,
                  .kv_reaches = kv_reaches,
                  .most_kv_blocks = most_kv_blocks,
                  .steal = job.steal.value_or(schedule::StealPrices{}),
                  .tier = memory.tier_blocks,
                  .state_blocks = memory.state_blocks,
                  .tier_flag = job.options.tier.size_flag(),
                  .keeps_tier = job.options.tier.keep_file,
                  .park = job.park,
                  .streaming = StreamingOf(job, memory),
                  .lengths = job.earlier ? std::optional(job.options.lengths) : std::nullopt,
                  .earlier = job.earlier,
                  .most_logprob_bytes = kHeldLogprobBytes / JobReplicas(job),
                  .overcommit = job.options.trial.overcommit,
                  .by_service = job.by_service,
                  .prices = job.prices},
      .mode = ModeRuleOf(job, group.layout),
      .seed = job.options.seed,
      .stall_timeout = static_cast<runtime::TimeNs>(job.options.stall_seconds * 1e9),
      .enqueue_waits = job.backend.enqueue_waits(),
      .routing = job.plan.routing,
      .routing_log = job.routing_log};
  FitToModel(job.config, &options.choices);
  return options;
}

model::AllReducePlan PlanAllReduce(const Materials& job, const model::Degrees& mode) {
  const layout::MachinePlan& machine = job.plan.machine;
  return price::PlanAllReduce(job.config, job.plan.dtype, mode.tp, machine.max_num_batched_tokens,
                              machine.profile, job.options.pricing());
}

std::vector<Membership::Mode> ModesOf(const Materials& job, const layout::Layout& layout, int rank,
                                      const layout::MemoryPlan& memory) {
  std::vector<Membership::Mode> modes = {{.degrees = layout.degrees()}};
  // Where all steps take another mode, nobody meets in the layout's own.
  const std::vector<model::ModeRows>& taken = memory.capacity.modes;
  if (taken.empty() || std::ranges::count(taken, layout.degrees(), &model::ModeRows::mode) > 0) {
    modes[0].tensor = layout::TpRanks(layout, rank, layout.degrees());
    modes[0].sequence = layout::SpRanks(layout, rank, layout.degrees());
    modes[0].all_reduce = PlanAllReduce(job, layout.degrees());
  }
  for (const auto& view : memory.views) {
    const model::Degrees& mode = view->shard.mode;
    modes.push_back({mode, layout::TpRanks(layout, rank, mode), layout::SpRanks(layout, rank, mode),
                     PlanAllReduce(job, mode)});
  }
  return modes;
}

// Null: nothing is pooled.
const share::PoolPlan* PoolOf(const layout::Layout& layout, const layout::RankPlan& plan,
                              int replica) {
  if (!layout.pools()) return nullptr;
  return &plan.request
              .pool[static_cast<size_t>(layout.sp > 1 ? plan.request.cut.sp_rank : replica)];
}

// Where the KV of a rank lies below, if in a file: of several ranks each has one.
kv::FileOptions FileOf(const Materials& job, const layout::MemoryPlan& memory, int device) {
  const layout::TierOptions& tier = job.options.tier;
  if (!tier.in_file()) return {};
  const int ranks = job.plan.machine.spec.count;
  kv::FileOptions file{.path = tier.FileOf(device, ranks),
                       .staging_bytes = tier.StagingBytes(ranks),
                       .keep = tier.keep_file,
                       .identity = job.kept_identity,
                       .name = job.model_name,
                       .sharers = ranks,
                       .streams = memory.streamed_blocks > 0 && memory.tier_blocks.in_memory == 0};
  if (!job.backend.computes()) file.open = nullptr;
  return file;
}

kv::SlowUp SlowUpOf(const Materials& job) {
  const layout::TrialOptions& trial = job.options.trial;
  if (!trial.slows_kv_up()) return {};
  return {.link = {&job.runtime, 1e9 * trial.kv_up_gbps},
          .stall = std::llround(1e9 * trial.kv_up_stall),
          .stall_at = trial.kv_up_stall_at};
}

// The ranks of the group's replica of this number, whose devices and fabrics these are.
base::Result<std::vector<std::unique_ptr<Rank>>> MakeRanks(const Materials& job,
                                                           const layout::JobGroup& group,
                                                           int replica, Devices& devices,
                                                           const Fabrics& fabrics) {
  const layout::Layout& layout = group.layout;
  const layout::MachinePlan& machine = job.plan.machine;
  std::vector<std::unique_ptr<Rank>> ranks;
  for (const layout::RankPlan& plan : job.plan.ranks) {
    const model::ReplicaCut& cut = plan.request.cut;
    const layout::RankPlace place{replica, cut.stage, cut.tp_rank, cut.sp_rank};
    const int number = layout::RankOf(layout, place);
    const auto at = static_cast<size_t>(number);
    fabric::Fabric* const fabric = fabrics.empty() ? nullptr : fabrics[at].get();
    const Membership membership{
        .cut = cut,
        .fabric = fabric,
        .modes = ModesOf(job, layout, number, plan.memory),
        .pace = {job.options.trial.link_gbps > 0 ? &job.runtime : nullptr,
                 1e9 * job.options.trial.link_gbps},
        .stage = layout::RanksOfStage(layout, number),
        .stages = layout::StageRanks(layout, number),
        .peers = layout::PoolRanks(layout, number),
        .kv_fabric = job.kv_fabrics.empty()
                         ? fabric
                         : job.kv_fabrics[static_cast<size_t>(group.DeviceAt(place))].get(),
        .lent = LentTo(job, group, replica, ranks.size()),
        .ship_members = layout.pools() && layout.sp == 1 ? layout::ShipRanks(layout, number)
                                                         : fabric::Communicator{},
        .replica = static_cast<uint64_t>(group.first_replica + replica),
        .kv_file = FileOf(job, plan.memory, group.DeviceAt(place)),
        .slow_kv_up = SlowUpOf(job),
        .routing = job.plan.routing};
    FB_ASSIGN_OR_RETURN(ranks.emplace_back(), Rank::Create(std::move(devices[at]),
                                                           {.memory = plan.memory,
                                                            .kernels = *job.plan.kernels,
                                                            .reader = job.reader,
                                                            .load_threads = machine.workers,
                                                            .digest = job.options.digest,
                                                            .pool = PoolOf(layout, plan, replica)},
                                                           membership));
    if (job.backend.computes())
      ranks.back()->TouchPages(job.options.machine.touch_kv_bytes, machine.workers);
  }
  return ranks;
}

base::Result<std::unique_ptr<Group>> MakeGroup(const Materials& job, const layout::JobGroup& group,
                                               Devices devices) {
  const layout::Layout& layout = group.layout;
  GroupParts parts{.role = group.role,
                   .fabrics = MakeFabrics(job, group),
                   .agreement = job.plan.group,
                   .steal = job.steal.has_value()};
  // Where ranks share weights, or meet in a step.
  parts.one_fate = layout.dp > 1 && (layout.pools() || layout.ranks_per_replica() > 1);
  for (int replica = 0; replica < layout.dp; ++replica) {
    FB_ASSIGN_OR_RETURN(auto ranks, MakeRanks(job, group, replica, devices, parts.fabrics));
    parts.replicas.push_back(
        std::make_unique<Replica>(job.runtime, std::move(ranks), job.options.policy->make(),
                                  ReplicaOptionsOf(job, group, group.first_replica + replica)));
  }
  for (const auto& replica : parts.replicas) {
    for (const auto& rank : replica->ranks()) FB_RETURN_IF_ERROR(rank->Connect());
  }
  return std::make_unique<Group>(job.runtime, std::move(parts));
}

// Sums over all ranks of the layout.
void AddMemory(const layout::LayoutPlan& plan, ModelFacts* facts) {
  const auto replicas = static_cast<uint64_t>(plan.replicas());
  facts->max_model_len = static_cast<int32_t>(plan.ranks[0].memory.max_model_len);
  facts->kv_capacity_tokens += plan.ranks[0].memory.kv_tokens() * plan.replicas();
  for (const auto& [request, memory] : plan.ranks) {
    const uint64_t weights = memory.weight_bytes();
    facts->weight_bytes += weights * replicas;
    facts->kv_bytes += memory.bytes(layout::RegionUse::kKv) * replicas;
    facts->workspace_bytes += (memory.fixed_bytes() - weights) * replicas;
    for (const auto& [form, bytes] : memory.decoder->BytesByForm()) {
      const bool expanded = form == kernels::TileForm::kExpanded;
      facts->weight_forms[std::string(expanded ? cost::Name(kernels::NumberFormatOf(memory.dtype))
                                               : kernels::TraitsOf(form).name)] += bytes;
    }
  }
}

}  // namespace

void FitToModel(const model::ModelConfig& config, ChoicesOptions* options) {
  options->limits.least_chunk = config.expands_prompts() ? model::kLeastChunk : 0;
  options->limits.whole_prompts = config.both_ways;
  options->keeps_states = config.states.has_value();
  options->prefix_caching &= !config.both_ways;
  // Nobody begins behind a prefix whose state is not kept, and without prefixes none is.
  if (options->keeps_states) options->prefix_caching &= options->kept_states > 0;
  if (!options->prefix_caching) options->kept_states = 0;
}

base::Result<std::unique_ptr<LocalEngine>> CreateEngine(runtime::Runtime& runtime,
                                                        const layout::EngineOptions& options,
                                                        const layout::JobPlan& job_plan,
                                                        const ModelFiles& files,
                                                        const text::Tokenizer* tokenizer) {
  const model::ModelConfig& config = files.config;
  const std::vector<layout::RolePlan>& roles = job_plan.roles;
  const layout::LayoutPlan& first_plan = roles.front().plan;
  const layout::MachinePlan& machine_plan = first_plan.machine;
  const std::unique_ptr<schedule::Policy> policy = options.policy->make();
  EngineParts parts{.backend = CreateBackend(runtime, first_plan, options),
                    .facts = FactsOf(files)};
  Backend& backend = *parts.backend;
  parts.isa = backend.isa();
  if (policy->growth_is_free()) {
    parts.isa += fmt::format(", {}", policy->name());
    base::Log(
        base::LogLevel::kWarning,
        fmt::format("--scheduling-policy {}: what choices generate takes no memory and copies "
                    "no time; no device does so",
                    policy->name()));
  }
  const layout::Offloading offload = options.tier.offload;
  if (offload != layout::Offloading::kAuto && offload != layout::Offloading::kOff)
    parts.forced_offload = layout::Name(offload);
  parts.expected = job_plan.expected;
  parts.least_steps = job_plan.least_steps;
  parts.most_ahead =
      static_cast<size_t>(first_plan.replicas()) * static_cast<size_t>(machine_plan.max_num_seqs);
  const std::vector<layout::JobGroup> groups = job_plan.Groups();
  std::vector<Devices> devices;  // by group
  for (const layout::JobGroup& group : groups) {
    FB_ASSIGN_OR_RETURN(devices.emplace_back(), backend.MakeDevices(group));
  }
  if (policy->wants_lengths())
    parts.earlier = std::make_shared<std::vector<schedule::EarlierAnswer>>();
  std::shared_ptr<model::RoutingLog> routing_log;
  if (!options.machine.record_routing.empty()) {
    FB_ASSIGN_OR_RETURN(routing_log,
                        model::RoutingLog::Create(options.machine.record_routing, config));
  }
  const std::string numerics = backend.NumericsClass(first_plan);
  for (const layout::RolePlan& role : roles) {
    const Materials job{.runtime = runtime,
                        .options = options,
                        .config = role.plan.config,
                        .groups = groups,
                        .roles = roles,
                        .kv_fabrics = parts.kv_fabrics,
                        .plan = role.plan,
                        .mode = role.mode,
                        .reader = backend.computes() ? files.reader.get() : nullptr,
                        .backend = backend,
                        .steal = price::PriceStealing(options, role.plan),
                        .park = price::PriceParking(options, role.plan),
                        .by_service = policy->orders_services(),
                        .prices = PricesFor(*policy, options, role.plan),
                        .routing_log = routing_log,
                        .kept_identity = KeptIdentity(files, role.plan, numerics, options.digest),
                        .model_name = files.name,
                        .earlier = parts.earlier};
    if (job.by_service) {
      parts.target_itl_seconds = std::max(
          parts.target_itl_seconds,
          schedule::TargetItlSeconds(options.limits.target_itl_ms / 1e3, job.prices.get(), 1));
    }
    if (&role == &roles.front()) parts.kv_fabrics = MakeKvFabrics(job);
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i].role != role.role) continue;
      FB_ASSIGN_OR_RETURN(parts.groups.emplace_back(),
                          MakeGroup(job, groups[i], std::move(devices[i])));
    }
    parts.pool_layers = std::max(parts.pool_layers, role.plan.layout.pool_layers.value_or(0));
    const layout::Layout& cut = role.plan.layout;
    // Where pool=auto chose no layer, rows that were to be shipped stay.
    const bool auto_pool =
        options.layout && options.layout->pools() && !options.layout->pool_layers;
    if (role.mode && cut.pool_ranks() > 1 &&
        (cut.pool_layers.value_or(0) > 0 || cut.pools_experts() ||
         (role.mode->meets() && auto_pool)))
      parts.forced_modes.push_back(*role.mode);
    AddMemory(role.plan, &parts.facts);
    parts.facts.ranks += role.plan.layout.num_devices();
    if (role.role != GroupRole::kGeneration)
      parts.facts.context_ranks += role.plan.layout.num_devices();
  }

  parts.facts.numerics_class = numerics;
  parts.facts.device_profile = machine_plan.profile.name;
  parts.layout = layout::FormatLayout(first_plan.layout);
  parts.facts.tp_wire = options.machine.tp_wire_bf16 ? "bf16" : "exact";
  parts.context = {tokenizer, EndTokens(files), parts.facts.max_model_len, config.pooling,
                   config.expands_prompts()};
  return std::make_unique<LocalEngine>(runtime, std::move(parts));
}

}  // namespace forebay::engine

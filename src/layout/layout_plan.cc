#include "layout/layout_plan.h"

#include <algorithm>
#include <utility>

#include "layout/group_plan.h"
#include "layout/plan_checks.h"

namespace forebay::layout {
namespace {

// While one layer is used, the next are on their way.
constexpr int64_t kLookAheadLayers = 2;

// What ranks pool that share weights with one of this cut; a stage pools its part of the layers.
base::Result<std::vector<share::PoolPlan>> PlanPool(const EngineOptions& options,
                                                    const LayoutDraft& draft,
                                                    const model::DecoderPlan& decoder) {
  share::PoolOptions pool = options.pool;
  pool.placement = draft.layout.weights;
  pool.experts = draft.layout.experts;
  if (const int64_t size = draft.layout.expert_size.value_or(0); size > 0)
    pool.experts.parameter = size;
  pool.layers = base::EvenPart(draft.layout.pool_layers.value_or(0), decoder.shard.cut.pp,
                               decoder.shard.cut.stage)
                    .size();
  pool.attention = draft.layout.pool_attention;
  weights::SlotSettings& slots = pool.slots;
  const bool slots_are_open =
      slots.budget_bytes == 0 && slots.look_ahead_layers == 0 && slots.look_ahead_bytes == 0;
  // Steps that are all shipped pull nothing while each replica lives: the least that could.
  const bool ships = options.ship.mode && options.ship.mode->ffn == FfnMode::kShip;
  if (slots_are_open && ships && pool.layers == 0) {
    slots.look_ahead_bytes = 1;
    pool.by_matrix |= !pool.merges_experts && !pool.waits_by_part;
  } else if (slots_are_open) {
    slots.look_ahead_layers = kLookAheadLayers;
  }
  // Parts of layers come from all owners alike: there is no peak to shift.
  if (pool.placement.kind != &weights::kByLayer || draft.layout.pools_experts())
    pool.order = weights::FetchOrder::kAsUsed;
  // From all peers at once.
  if (pool.requests_in_flight == 0)
    pool.requests_in_flight = std::max(2, draft.layout.pool_ranks() - 1);
  if (pool.slice_bytes == 0) pool.slice_bytes = draft.machine.slice_bytes;
  base::Result<std::vector<share::PoolPlan>> pools =
      share::PlanPools(pool, draft.layout.pool_ranks(), decoder);
  if (pools.ok() || !draft.layout.pools_experts() || draft.layout.tp == 1) return pools;
  const base::Part& part = decoder.shard.experts;
  return pools.status().WithContext(fmt::format("tp={}, whose rank {} has experts {} to {}",
                                                draft.layout.tp, decoder.shard.cut.tp_rank,
                                                part.begin, part.end - 1));
}

MemoryRequest RequestOf(const EngineOptions& options, const LayoutDraft& draft, int rank) {
  const auto devices = static_cast<uint64_t>(draft.machine.spec.count);
  // A sequence that is read both ways is in one step.
  const int64_t longest = options.limits.max_model_len == 0 && draft.config.both_ways
                              ? std::min<int64_t>(draft.config.max_position_embeddings,
                                                  draft.machine.max_num_batched_tokens)
                              : options.limits.max_model_len;
  MemoryRequest request{.budget_bytes = draft.machine.budget_bytes,
                        .device_bytes = draft.machine.device_bytes,
                        .max_model_len = longest,
                        .stable_bytes = draft.machine.stable_bytes,
                        .max_num_seqs = draft.machine.max_num_seqs,
                        .max_num_batched_tokens = draft.machine.max_num_batched_tokens,
                        .max_kv_blocks = options.limits.kv_blocks,
                        .state_every = options.prefix_caching ? options.limits.state_every : 0,
                        .steps_in_flight = draft.steps_in_flight,
                        .host_bytes = options.tier.host_bytes / devices,
                        .file_bytes = options.tier.file_bytes / devices,
                        .staging_bytes = 2 * options.tier.StagingBytes(draft.machine.spec.count),
                        .streamed_blocks = draft.streamed_blocks,
                        .digest = options.digest,
                        .draws = draft.kernels->draw_rows != nullptr,
                        .record_routing = !options.machine.record_routing.empty(),
                        .modes = draft.shift.ModesInUse(draft.machine.max_num_batched_tokens),
                        .cut = CutOf(options, draft.layout, rank),
                        .decoder = draft.decoders[static_cast<size_t>(rank)],
                        .copies_views = options.shift.copies_weights};
  for (const model::ModeRows& used : request.modes) {
    if (used.mode == draft.layout.degrees()) continue;
    request.views.push_back(model::DecoderPlanOf(options.decoders.get(), draft.config, draft.dtype,
                                                 request.cut, used.mode));
  }
  return request;
}

}  // namespace

bool FitsPlaces(const EngineOptions& options, const model::ModelConfig& config) {
  if (config.both_ways || options.roles || options.limits.max_num_seqs > 0 ||
      options.policy->make()->preset().max_num_seqs > 0)
    return false;
  bool windows = false, all = false;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    if (!config.HasAttention(layer) || config.HasState(layer)) continue;
    const base::Reach reach = config.ReachOf(layer);
    (reach.window > 0 || reach.chunk > 0 ? windows : all) = true;
  }
  return windows && all;
}

base::Result<LayoutPlan> PlanLayout(const EngineOptions& options, const LayoutDraft& draft) {
  FB_CHECK(!draft.pool_is_open() && !draft.experts_are_open() && !draft.modes_are_open(),
           "a plan of a draft that leaves something open");
  LayoutPlan plan{draft};
  FB_RETURN_IF_ERROR(CheckShift(options, plan.config, plan.layout, plan.shift));
  std::vector<MemoryRequest> requests;
  for (int rank = 0; rank < plan.layout.ranks_per_replica(); ++rank) {
    MemoryRequest request = RequestOf(options, plan, rank);
    // The ranks of a block along sp are each other's peers: one plan is of all.
    const auto peer = std::ranges::find_if(requests, [&](const MemoryRequest& other) {
      return plan.layout.pools_along_sp() && other.cut.stage == request.cut.stage &&
             other.cut.tp_rank == request.cut.tp_rank;
    });
    if (peer != requests.end()) {
      request.pool = peer->pool;
    } else if (plan.layout.pools()) {
      FB_ASSIGN_OR_RETURN(request.pool, PlanPool(options, plan, *request.decoder));
    }
    requests.push_back(std::move(request));
  }
  if (plan.may_ship()) {
    FB_ASSIGN_OR_RETURN(plan.group, PlanGroup(options, plan.machine, &requests));
    plan.routed_rows = AskedRoutedRows(options, requests.front().pool).value_or(0);
  }
  if (options.job_held > 0 && FitsPlaces(options, plan.config)) {
    FitPlaces(plan.config, plan.dtype, options.job_held, &requests);
    plan.machine.max_num_seqs = requests[0].max_num_seqs;
  }
  const std::vector<MemoryPlan> memory = DivideReplicaMemory(plan.config, plan.dtype, requests);
  for (size_t rank = 0; rank < requests.size(); ++rank)
    plan.ranks.push_back({std::move(requests[rank]), memory[rank]});
  FB_RETURN_IF_ERROR(CheckTier(options, plan));
  return plan;
}

bool LayoutPlan::may_ship() const {
  return (layout.pool_layers.value_or(0) > 0 || layout.pools_experts()) && !layout.pools_along_sp();
}

uint64_t LayoutPlan::KvBlockBytes(bool digest) const {
  uint64_t bytes = 0;
  for (const RankPlan& rank : ranks)
    bytes = std::max(bytes, kv::KvBlockBytes(rank.memory.kv_groups, digest));
  return bytes;
}

uint64_t LayoutPlan::BlockBytesBelow(bool digest) const {
  uint64_t bytes = 0;
  for (const RankPlan& rank : ranks) bytes = std::max(bytes, rank.memory.block_bytes_below(digest));
  return bytes;
}

base::Status LayoutPlan::Fits() const {
  for (const RankPlan& rank : ranks) FB_RETURN_IF_ERROR(CheckFits(rank.memory, rank.request));
  return base::Status::Ok();
}

}  // namespace forebay::layout

#include "layout/memory_plan.h"

#include <algorithm>
#include <bit>

#include "kv/book/block_book.h"
#include "kv/tier/file_store.h"
#include "kv/tier/window.h"
#include "layout/region_table.h"
#include "model/blocks/latent_forms.h"
#include "model/kv_groups.h"
#include "share/ship_plan.h"

namespace forebay::layout {
namespace {

// The book counts in the blocks that the kernels read.
static_assert(kv::kBlockTokens == kernels::kBlockTokens);
// Logits of this many bytes at most are held at once; the head runs over the wanted rows in parts.
constexpr uint64_t kLogitsBytes = 64 * base::kMiB;
// Where prompts attend in the expanded form, K and V of their contexts take this part of a rank's
// memory, or those of one head: other heads come after them.
constexpr uint64_t kExpandedPart = 16;
// Where windows have places for as many choices as fit by their mean length, full layers give up
// this part of theirs for more places: choices may be shorter for a while.
constexpr double kSparePlaces = 1.0 / 32;
// A tier's book takes 72 bytes a block.
constexpr uint64_t kMostTierBlocks = uint64_t{1} << 26;

// What each use would have to shrink to, all else as it is, so that one block of KV cache fits.
std::string WhatWouldFit(const MemoryPlan& plan, uint64_t excess) {
  std::string text;
  for (const FixedUse& use : kFixedUses) {
    const uint64_t bytes = plan.bytes(use.use);
    if (use.shrunk_by == nullptr || bytes <= excess) continue;
    text += fmt::format("{} {} of at most {} ({})", text.empty() ? "; what would fit:" : ", or",
                        use.name, base::FormatBytes(bytes - excess), use.shrunk_by);
  }
  return text;
}

base::Status TooSmall(const MemoryPlan& plan, const MemoryRequest& request, uint64_t least_kv) {
  const uint64_t needed = request.device_bytes + plan.fixed_bytes() + least_kv,
                 excess = needed - request.budget_bytes;
  std::string uses;
  for (const FixedUse& use : kFixedUses) {
    if (plan.bytes(use.use) == 0) continue;
    uses += fmt::format("{} {}, ", use.name, base::FormatBytes(plan.bytes(use.use)));
  }
  return base::Status(
      kMemoryTooSmall,
      fmt::format(
          "the model does not fit in a rank's memory of {}: {}device's own {}, and at least "
          "{} of KV cache make {}, {} too much; give more memory, more ranks that share the "
          "weights, a smaller --max-model-len or --max-num-batched-tokens{}",
          base::FormatBytes(request.budget_bytes), uses, base::FormatBytes(request.device_bytes),
          base::FormatBytes(least_kv), base::FormatBytes(needed), base::FormatBytes(excess),
          WhatWouldFit(plan, excess)));
}

// The most parts of a step's sequences: each has its end, the end of what its prompt shares, and
// one more for each `state_every` rows and the first of these.
int64_t StateRows(const MemoryRequest& request) {
  if (request.state_every == 0) return request.max_num_seqs;
  return std::min<int64_t>(
      request.max_num_batched_tokens,
      3 * int64_t{request.max_num_seqs} + request.max_num_batched_tokens / request.state_every);
}

bool IsBounded(const kv::KvGroup& group) {
  return group.spec.reach.window > 0 || group.spec.reach.chunk > 0;
}

// Blocks of a window that a choice holds at most between steps: what its next row sees, in blocks
// that begin and end anywhere, and a block that its rows of a step begin.
int64_t WindowBlocks(const kv::KvGroup& group) {
  const int64_t seen = std::max(group.spec.reach.window, group.spec.reach.chunk);
  return base::CeilDiv(seen, kernels::kBlockTokens) + 2;
}

// Blocks that the rows of all steps in flight fill.
int64_t StepBlocks(const MemoryRequest& request) {
  return base::CeilDiv(int64_t{request.max_num_batched_tokens} * request.steps_in_flight,
                       kernels::kBlockTokens) +
         1;
}

// Where some layers see all, those that see a window have blocks for all that `max_num_seqs`
// choices hold of them at once, and for a step's rows.
void BoundWindows(const MemoryRequest& request, std::vector<kv::KvGroup>* groups) {
  if (std::ranges::all_of(*groups, IsBounded)) return;
  for (kv::KvGroup& group : *groups) {
    if (!IsBounded(group)) continue;
    group.most_blocks = static_cast<int32_t>(std::min<int64_t>(
        INT32_MAX, request.max_num_seqs * WindowBlocks(group) + StepBlocks(request)));
  }
}

// Fills everything but the KV cache for one max_model_len.
MemoryPlan WithoutKv(const model::ModelConfig& config, tensor::DType dtype,
                     const MemoryRequest& request, int64_t max_model_len) {
  MemoryPlan plan;
  plan.max_model_len = max_model_len;
  plan.capacity = {request.max_num_batched_tokens,
                   LogitRows(config, request.max_num_batched_tokens)};
  plan.capacity.max_model_len = max_model_len;
  plan.capacity.expanded_bytes = request.budget_bytes / kExpandedPart;
  plan.capacity.modes = request.modes;
  if (const share::ShipPlan* ship = request.pool.empty() ? nullptr : request.pool[0].ship.get()) {
    plan.capacity.gathered_rows = std::max(ship->max_planes > 0 ? ship->gathered_rows() : 0,
                                           ship->num_experts > 0 ? ship->served_rows() : 0);
    plan.capacity.returned_rows = int64_t{ship->options.rows} * ship->total_planes;
  }
  plan.max_blocks_per_sequence =
      static_cast<int32_t>(base::CeilDiv(max_model_len, kernels::kBlockTokens));
  plan.dtype = dtype;
  plan.decoder = request.decoder ? request.decoder
                                 : std::make_shared<const model::DecoderPlan>(
                                       model::PlanDecoder(config, dtype, request.cut));
  const model::Shard& shard = plan.decoder->shard;
  plan.kv_groups = model::PlanKvGroups(config, dtype, shard);
  BoundWindows(request, &plan.kv_groups);
  plan.states = model::PlanStates(config, shard);
  plan.step_shape = {.rows = request.max_num_batched_tokens,
                     .sequences = request.max_num_seqs,
                     .blocks_per_sequence = plan.max_blocks_per_sequence,
                     .kv_groups = static_cast<int>(plan.kv_groups.size()),
                     .expanded_blocks = model::ExpandedBlocks(
                         config, request.max_num_batched_tokens, max_model_len),
                     .typed = config.token_types > 1,
                     .state_rows = plan.states.empty() ? 0 : StateRows(request),
                     .draws = request.draws};
  plan.steps_in_flight = request.steps_in_flight;
  plan.views = request.views;
  plan.copies_views = request.copies_views;
  plan.regions = PlanRegions(request, plan);
  return plan;
}

void SetBlocks(const MemoryRequest& request, int32_t num_blocks, int32_t streamed,
               MemoryPlan* plan) {
  plan->num_blocks = num_blocks;
  plan->streamed_blocks = streamed;
  plan->regions = PlanRegions(request, *plan);
}

// So many that no rank's part of a choice's states is larger than the largest block of KV. A rank
// with little KV has larger blocks below.
int32_t StateBlocks(std::span<const MemoryPlan> ranks, bool digest) {
  uint64_t place = 0, block = 0;
  for (const MemoryPlan& rank : ranks) {
    place = std::max(place, kv::PlaceBytes(rank.states));
    block = std::max(block, kv::KvBlockBytes(rank.kv_groups, digest));
  }
  return static_cast<int32_t>(
      base::CeilDiv(place, block == 0 ? std::max(place, uint64_t{1}) : block));
}

// Of the place's part in a block below that has most of it.
uint64_t StatePartBytes(const MemoryPlan& plan) {
  if (plan.state_blocks == 0) return 0;
  return static_cast<uint64_t>(
      kv::PartOfPlace(kv::PlaceBytes(plan.states), plan.state_blocks, 0).size());
}

kv::TierBlocks TierBlocksOf(const MemoryRequest& request, const MemoryPlan& plan) {
  const auto blocks = [](uint64_t bytes, uint64_t block) {
    return static_cast<int32_t>(std::min(bytes / std::max<uint64_t>(1, block), kMostTierBlocks));
  };
  return {blocks(request.host_bytes, plan.block_bytes_below(request.digest)),
          blocks(request.file_bytes, plan.block_bytes_in_file(request.digest))};
}

void SetTierBlocks(const MemoryRequest& request, const kv::TierBlocks& blocks, MemoryPlan* plan) {
  plan->tier_blocks = blocks;
  plan->tier_bytes =
      static_cast<uint64_t>(blocks.in_memory) * plan->block_bytes_below(request.digest) +
      request.staging_bytes;
  plan->file_bytes =
      static_cast<uint64_t>(blocks.in_file) * plan->block_bytes_in_file(request.digest);
}

// Bytes of a cache that holds one sequence of full length.
uint64_t SequenceBytes(const MemoryPlan& plan, bool digests) {
  return kv::KvCacheBytes(plan.kv_groups, static_cast<uint64_t>(plan.max_blocks_per_sequence),
                          digests);
}

// Gives a quarter of the rest to states that are kept, but nothing that a sequence of full length
// needs.
void KeepStates(const MemoryRequest& request, MemoryPlan* plan) {
  if (request.state_every == 0 || plan->states.empty()) return;
  const uint64_t place = kv::PlaceBytes(plan->states),
                 needed = request.device_bytes + plan->fixed_bytes() + 2 * kRegionRounding +
                          SequenceBytes(*plan, request.digest),
                 rest = request.budget_bytes > needed ? request.budget_bytes - needed : 0,
                 useful = static_cast<uint64_t>(request.max_num_seqs) *
                          static_cast<uint64_t>(plan->max_model_len / request.state_every + 1);
  // A stage may have no such layers.
  plan->kept_states =
      static_cast<int32_t>(place == 0 ? useful : std::min(useful, rest / 4 / place));
  plan->regions = PlanRegions(request, *plan);
}

// Gives the rest of the budget to the KV cache and to the window through which blocks are streamed,
// half of it at most, but no more than all sequences at full length can use.
void GiveRestToKv(const MemoryRequest& request, MemoryPlan* plan) {
  const uint64_t fixed = request.device_bytes + plan->fixed_bytes() +
                         (request.streamed_blocks > 0 ? 2 : 1) * kRegionRounding;
  const uint64_t rest = request.budget_bytes > fixed ? request.budget_bytes - fixed : 0;
  const uint64_t place = WindowPlaceBytes(*plan),
                 useful =
                     static_cast<uint64_t>(request.max_num_seqs) * plan->max_blocks_per_sequence;
  const auto resident = [&](uint64_t streamed) {
    uint64_t blocks = std::min(
        kv::KvBlocksWithin(plan->kv_groups, rest - streamed * place, request.digest), useful);
    if (request.max_kv_blocks > 0) blocks = std::min<uint64_t>(blocks, request.max_kv_blocks);
    return std::min(blocks, uint64_t{0x7FFFFFFF});
  };
  uint64_t streamed = 0;
  if (request.streamed_blocks > 0) {
    streamed = std::min({static_cast<uint64_t>(request.streamed_blocks),
                         static_cast<uint64_t>(TierBlocksOf(request, *plan).near()),
                         rest / 2 / place, useful - resident(0)});
  }
  SetBlocks(request, static_cast<int32_t>(resident(streamed)), static_cast<int32_t>(streamed),
            plan);
}

}  // namespace

uint64_t WindowPlaceBytes(const MemoryPlan& plan) {
  return static_cast<uint64_t>(kv::kWindowSlots * plan.kv_groups[0].layout.LayerBytes());
}

uint64_t MemoryPlan::bytes(RegionUse use) const {
  uint64_t sum = 0;
  for (const Region& region : regions) sum += region.use == use ? region.bytes : 0;
  return sum;
}

uint64_t MemoryPlan::block_bytes_below(bool digest) const {
  return std::max(kv::KvBlockBytes(kv_groups, digest), StatePartBytes(*this));
}

uint64_t MemoryPlan::block_bytes_in_file(bool digest) const {
  return std::max(kv::FileBlockBytes(kv_groups, digest),
                  base::RoundUp(StatePartBytes(*this), kv::kFileAlignment));
}

uint64_t MemoryPlan::weight_bytes() const {
  return bytes(RegionUse::kWeights) + bytes(RegionUse::kModeWeights) + bytes(RegionUse::kPool);
}

uint64_t MemoryPlan::fixed_bytes() const {
  uint64_t sum = 0;
  for (const Region& region : regions) sum += region.use == RegionUse::kKv ? 0 : region.bytes;
  return sum;
}

int64_t ChosenElements(const MemoryPlan& plan) {
  return static_cast<int64_t>(plan.decoder->layers.size()) * plan.capacity.rows *
         plan.decoder->config.moe->experts_per_token;
}

int64_t LogitRows(const model::ModelConfig& config, int64_t max_num_batched_tokens) {
  const auto row_bytes = static_cast<uint64_t>(config.vocab_size) * sizeof(float);
  const auto fitting = static_cast<int64_t>(std::max<uint64_t>(1, kLogitsBytes / row_bytes));
  return std::min({fitting, int64_t{256}, max_num_batched_tokens});
}

namespace {

// The longest of the model's length and the powers of two below it that a budget of stable_bytes
// holds; at least a block.
int64_t ChooseLength(const model::ModelConfig& config, tensor::DType dtype,
                     const MemoryRequest& request) {
  MemoryRequest stable = request;
  if (request.stable_bytes != 0) stable.budget_bytes = request.stable_bytes;
  stable.streamed_blocks = 0;
  int64_t length = config.max_position_embeddings;
  while (length > kernels::kBlockTokens) {
    MemoryPlan plan = WithoutKv(config, dtype, stable, length);
    GiveRestToKv(stable, &plan);
    if (plan.kv_tokens() >= length) break;
    length = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(length - 1)));
  }
  return length;
}

// The same that all ranks of a replica hold.
int64_t LengthOf(const model::ModelConfig& config, tensor::DType dtype,
                 const std::vector<MemoryRequest>& requests) {
  if (requests[0].max_model_len != 0) return requests[0].max_model_len;
  int64_t length = config.max_position_embeddings;
  for (const MemoryRequest& request : requests)
    length = std::min(length, ChooseLength(config, dtype, request));
  return length;
}

// Choices that a rank's KV cache holds at once if each holds `held` tokens, and the spare ones.
double PlacesFor(double held, const MemoryRequest& request, const MemoryPlan& plan) {
  const double blocks = held / kernels::kBlockTokens + 1;
  double rest = static_cast<double>(request.budget_bytes) -
                static_cast<double>(request.device_bytes + plan.fixed_bytes() + kRegionRounding);
  double windows = 0, full = 0;  // bytes of a choice
  for (const kv::KvGroup& group : plan.kv_groups) {
    const auto block = static_cast<double>(kv::KvBlockBytes({&group, 1}, request.digest));
    if (IsBounded(group)) {
      windows += block * std::min(blocks, static_cast<double>(WindowBlocks(group)));
      rest -= block * static_cast<double>(StepBlocks(request));
    } else {
      full += block * blocks;
    }
  }
  // A stage may have none of these layers.
  if (windows == 0 || rest <= 0) return windows == 0 ? request.max_num_seqs : 0;
  const double fitting = rest / (windows + full);
  return fitting + kSparePlaces * fitting * full / windows;
}

}  // namespace

void FitPlaces(const model::ModelConfig& config, tensor::DType dtype, double held,
               std::vector<MemoryRequest>* requests) {
  std::vector<MemoryRequest> fitted = *requests;
  const int64_t length = LengthOf(config, dtype, fitted);
  double places = fitted[0].max_num_seqs;
  for (MemoryRequest& request : fitted) {
    request.max_model_len = length;
    places = std::min(places, PlacesFor(held, request, WithoutKv(config, dtype, request, length)));
  }
  for (MemoryRequest& request : fitted)
    request.max_num_seqs = std::max(request.steps_in_flight, static_cast<int32_t>(places));
  // Choices that run at once if each holds so much.
  const auto running = [&](const std::vector<MemoryRequest>& of) {
    const auto blocks = static_cast<double>(DivideReplicaMemory(config, dtype, of)[0].num_blocks);
    return std::min<double>(of[0].max_num_seqs, blocks / (held / kernels::kBlockTokens + 1));
  };
  if (running(fitted) > running(*requests)) *requests = std::move(fitted);
}

MemoryPlan DivideMemory(const model::ModelConfig& config, tensor::DType dtype,
                        const MemoryRequest& request) {
  const int64_t length =
      request.max_model_len ? request.max_model_len : ChooseLength(config, dtype, request);
  MemoryPlan plan = WithoutKv(config, dtype, request, length);
  plan.state_blocks = StateBlocks({&plan, 1}, request.digest);
  KeepStates(request, &plan);
  GiveRestToKv(request, &plan);
  SetTierBlocks(request, TierBlocksOf(request, plan), &plan);
  return plan;
}

uint64_t LeastBytes(const MemoryPlan& plan, const MemoryRequest& request) {
  return request.device_bytes + plan.fixed_bytes() - plan.kept_state_bytes() + 2 * kRegionRounding +
         SequenceBytes(plan, request.digest);
}

std::string LayersCannotStream(const MemoryPlan& plan) {
  if (!plan.states.empty()) return "the model has layers that keep a state; expected off";
  if (plan.kv_groups.size() > 1 || !plan.kv_groups[0].spec.reach.all())
    return "the model has layers with windows, which let go of blocks by themselves; expected off";
  if (std::ssize(plan.kv_groups[0].layers) <= kv::kWindowSlots)
    return fmt::format("the model has {} layers; expected more than the window's {} slots",
                       plan.kv_groups[0].layers.size(), kv::kWindowSlots);
  return {};
}

base::Status CheckFits(const MemoryPlan& plan, const MemoryRequest& request) {
  const int64_t length = plan.max_model_len;
  if (plan.kv_tokens() >= length) return base::Status::Ok();
  if (plan.num_blocks == 0) return TooSmall(plan, request, kv::KvBlockBytes(plan.kv_groups, false));
  const uint64_t needed = SequenceBytes(plan, false);
  const bool tier_helps = LayersCannotStream(plan).empty() && request.steps_in_flight == 1 &&
                          std::max(request.host_bytes, request.file_bytes) < needed;
  return base::Status(
      kMemoryTooSmall,
      fmt::format(
          "--max-model-len {} needs {} of KV cache for one sequence, but --memory {} leaves {} ({} "
          "tokens); "
          "give more memory{} or at most --max-model-len {}",
          length, base::FormatBytes(needed), base::FormatBytes(request.budget_bytes),
          base::FormatBytes(plan.bytes(RegionUse::kKv)), plan.kv_tokens(),
          tier_helps ? fmt::format(", --kv-offloading-size {} for what is read layer by layer,",
                                   base::FormatBytes(needed))
                     : "",
          plan.kv_tokens()));
}

base::Result<MemoryPlan> PlanMemory(const model::ModelConfig& config, tensor::DType dtype,
                                    const MemoryRequest& request) {
  MemoryPlan plan = DivideMemory(config, dtype, request);
  FB_RETURN_IF_ERROR(CheckFits(plan, request));
  return plan;
}

std::vector<MemoryPlan> DivideReplicaMemory(const model::ModelConfig& config, tensor::DType dtype,
                                            const std::vector<MemoryRequest>& requests) {
  const int64_t length = LengthOf(config, dtype, requests);
  std::vector<MemoryPlan> plans;
  int32_t blocks = INT32_MAX, streamed = INT32_MAX, kept_states = INT32_MAX;
  kv::TierBlocks tier_blocks{INT32_MAX, INT32_MAX};
  for (MemoryRequest request : requests) {
    request.max_model_len = length;
    plans.push_back(DivideMemory(config, dtype, request));
    blocks = std::min(blocks, plans.back().num_blocks);
    streamed = std::min(streamed, plans.back().streamed_blocks);
    kept_states = std::min(kept_states, plans.back().kept_states);
  }
  const int32_t state_blocks = StateBlocks(plans, requests[0].digest);
  for (size_t i = 0; i < plans.size(); ++i) {
    plans[i].state_blocks = state_blocks;
    const kv::TierBlocks below = TierBlocksOf(requests[i], plans[i]);
    tier_blocks = {std::min(tier_blocks.in_memory, below.in_memory),
                   std::min(tier_blocks.in_file, below.in_file)};
  }
  for (size_t i = 0; i < plans.size(); ++i) {
    plans[i].kept_states = kept_states;
    SetBlocks(requests[i], blocks, streamed, &plans[i]);
    SetTierBlocks(requests[i], tier_blocks, &plans[i]);
  }
  return plans;
}

}  // namespace forebay::layout

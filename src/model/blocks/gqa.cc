// Grouped-query attention over the paged cache of K and V, with rope on halves of a head.
#include <cmath>
#include <optional>

#include "model/blocks/kinds.h"
#include "model/ulysses.h"

namespace forebay::model {
namespace {

constexpr Role kQkv{"qkv"}, kQNorm{"q_norm"}, kKNorm{"k_norm"}, kSinks{"sinks"},
    kAttentionGate{"attention_gate"};

bool HasGqa(const ModelConfig& config, int64_t) { return !config.mla; }

// A layer without K and V of its own reads another's.
bool OwnsKv(const ModelConfig& config, int64_t layer) { return config.KvLayerOf(layer) == layer; }

void PlanGqa(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  site.AddNorms(kAttentionNorm, names.attention_norm, kAttentionPostNorm, names.attention_post_norm,
                layer);
  const auto [total_kv, head_dim] = config.HeadsOf(index);
  const weights::HeadOrder order{head_dim, config.rotary_dim > 0 ? config.rotary_dim : head_dim,
                                 config.rope_interleaved};
  const bool of_rows = config.qk_norm_of_rows;
  site.AddNorm(kQNorm, names.q_norm, (of_rows ? config.num_heads : 1) * head_dim, layer, order);
  site.AddNorm(kKNorm, names.k_norm, (of_rows ? total_kv : 1) * head_dim, layer, order);
  if (config.sinks) layer->vectors.push_back({kSinks, names.sinks, config.num_heads});
  const std::vector<int> ranks = SpRanks(shard.cut.degrees(), shard.mode, shard.cut.block());
  const std::vector<int32_t> kv_heads =
      OwnsKv(config, index) ? heads.KvHeadsOf(ranks) : std::vector<int32_t>();
  layer->matrices.push_back(
      {kQkv, Block::kAttention, LeafRule::kEven,
       weights::PlanQkv(site.Label(kQkv), dtype,
                        {names.q, names.k, names.v, names.q_bias, names.k_bias, names.v_bias},
                        {config.num_heads, total_kv, heads.QueryHeadsOf(ranks), kv_heads, order,
                         config.attention_gate ? 2 * head_dim : 0,
                         /*share_panels=*/shard.cut.sp == 1},  // else other modes take some heads
                        config.hidden_size)});
  if (config.attention_gate) {
    // Behind each head's query in its tensor.
    std::vector<weights::PlannedRows> gates;
    for (const int32_t head : heads.QueryHeadsOf(ranks))
      gates.push_back({0, (2 * head + 1) * head_dim, head_dim});
    layer->matrices.push_back(
        {kAttentionGate, Block::kAttention, LeafRule::kEven,
         weights::PlanRows(site.Label(kAttentionGate), dtype, {names.q},
                           {2 * config.num_heads * head_dim}, gates, config.hidden_size)});
  }
  weights::MatrixPlan output = weights::PlanMatrix(
      site.Label(kOutput), dtype, names.o, names.o_bias, config.hidden_size,
      config.num_heads * head_dim, kernels::LeafBorders::ForOutput(config.num_heads, head_dim));
  output.KeepLeaves(shard.output_leaves);
  layer->matrices.push_back({kOutput, Block::kAttention, LeafRule::kEven, std::move(output)});
}

// What a step makes of Activations::attention. H and K are the heads and KV heads of the linear
// layers, h and k those of attention; they differ where rows are cut over ranks.
struct GqaBuffers {
  float* qkv = nullptr;            // [own rows, (H + 2 K) * head_dim]
  std::byte* q = nullptr;          // [rows, h * head_dim] T
  std::byte* kv = nullptr;         // [rows, 2, k * head_dim] T; where rows are cut
  std::byte* attention = nullptr;  // [own rows, H * head_dim] T
  float* gates = nullptr;          // [own rows, H * head_dim]; where the model has them
};

// A rank's heads in a layer.
struct LayerHeads {
  const KvCut& kv;
  int64_t head_dim;
};

// Cuts them from `at` on; returns their bytes.
uint64_t CutGqaBuffers(const ModelConfig& config, const Shard& shard, const LayerHeads& layer,
                       tensor::DType dtype, int64_t step_rows, std::byte* at, GqaBuffers* buffers) {
  const auto rows = static_cast<uint64_t>(step_rows),
             own_rows = static_cast<uint64_t>(MostOwnRows(step_rows, shard.mode));
  const auto width = [&](const Part& heads) {
    return static_cast<uint64_t>(heads.size() * layer.head_dim);
  };
  const uint64_t element = tensor::SizeOf(dtype);
  BufferCutter cutter(at);
  cutter.Cut(&buffers->qkv,
             own_rows * (width(shard.heads) + 2 * width(layer.kv.kv_heads)) * sizeof(float));
  cutter.Cut(&buffers->q, rows * width(shard.own_heads) * element);
  cutter.Cut(&buffers->kv,
             shard.mode.sp == 1 ? 0 : rows * 2 * width(layer.kv.own_kv_heads) * element);
  const auto room =
      static_cast<uint64_t>(kernels::RoomForRows(config.packed, static_cast<int64_t>(own_rows)));
  cutter.Cut(&buffers->attention, room * width(shard.heads) * element);
  cutter.Cut(&buffers->gates,
             config.attention_gate ? own_rows * width(shard.heads) * sizeof(float) : 0);
  return cutter.bytes();
}

BlockWorkspace GqaWorkspace(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                            int64_t rows, const StepCapacity&) {
  GqaBuffers none;
  uint64_t bytes =
      CutGqaBuffers(config, shard, {shard, config.head_dim}, dtype, rows, nullptr, &none);
  if (config.full_heads) {
    const LayerHeads full{*shard.full_kv, config.full_heads->head_dim};
    bytes = std::max(bytes, CutGqaBuffers(config, shard, full, dtype, rows, nullptr, &none));
  }
  return {bytes, shard.heads.size() * config.MostHeadDim(),
          shard.mode.sp == 1 ? 0 : UlyssesPartBytes(config, shard, dtype, rows)};
}

// What rope and the cache need to know of a layer.
struct Cached {
  const kernels::StepBatch& batch;  // with the group's tables
  const kv::CacheView::Layer& layer;
  const kv::CacheView::KvGroupView& group;
  int32_t index;  // of the model
  const KvCut& kv;
};

// What the layer does to heads of q and k, for RopeKvArgs or RopeRowsArgs.
template <typename Args>
void SetRope(const BlockContext& context, const LayerWeights& w, int64_t index, Args* args) {
  const ModelConfig& config = *context.config;
  const DecoderWeights& weights = context.weights;
  if (!config.qk_norm_of_rows) {
    args->q_norm = w.vector(kQNorm);
    args->k_norm = w.vector(kKNorm);
  }
  args->norm_eps = static_cast<float>(config.rms_norm_eps);
  args->v_norm = config.value_norm;
  const bool turned = config.HasRope(index);
  if (!turned || config.temperature_everywhere) args->q_scale = weights.q_scale;
  if (!turned) return;
  args->norm_after = config.norm_after_rope;
  const bool windowed = weights.windowed_cos != nullptr && config.sliding_window[index] > 0;
  args->rope_cos = windowed ? weights.windowed_cos : weights.rope_cos;
  args->rope_sin = windowed ? weights.windowed_sin : weights.rope_sin;
}

// Norms of all heads of q at once, and of k, in place. REQUIRES: the rank has all heads.
void NormRows(const BlockContext& context, const LayerWeights& w, int32_t rows, float* qkv) {
  const ModelConfig& config = *context.config;
  const int64_t heads = config.num_heads, kv_heads = config.num_kv_heads, dim = config.head_dim;
  kernels::RmsNormArgs norm{.dtype = tensor::DType::kF32,
                            .num_rows = rows,
                            .stride = (heads + 2 * kv_heads) * dim,
                            .eps = static_cast<float>(config.rms_norm_eps)};
  const auto run = [&](const Role& role, float* first, int64_t columns) {
    norm.x = norm.out = reinterpret_cast<std::byte*>(first);
    norm.weight = w.vector(role);
    norm.columns = static_cast<int32_t>(columns);
    kernels::RmsNorm(*context.stream, *context.kernels, role.name, norm);
  };
  run(kQNorm, qkv, heads * dim);
  run(kKNorm, qkv + heads * dim, kv_heads * dim);
}

// q of all rows is in `buffers`, K and V are in the cache.
void RopeAndStore(const BlockContext& context, const LayerWeights& w, const Cached& cached,
                  const kernels::ContextSums& sums, const GqaBuffers& buffers) {
  const Shard& shard = context.weights.shard;
  kernels::RopeKvArgs rope{.batch = cached.batch,
                           .layout = cached.group.layout,
                           .layer = cached.layer.bases,
                           .qkv = buffers.qkv,
                           .q = buffers.q,
                           .heads = static_cast<int32_t>(shard.own_heads.size()),
                           .prefill_rows = sums.prefill_rows,
                           .digests = cached.group.digests,
                           .layer_index = cached.index,
                           .first_kv_head = static_cast<int32_t>(cached.kv.own_kv_heads.begin),
                           .digested_elsewhere = cached.kv.kv_copies,
                           .first_layer = cached.layer.first};
  SetRope(context, w, cached.index, &rope);
  kernels::RopeKv(*context.stream, *context.kernels, rope);
}

// q of all rows alone, where the layer reads K and V that lie in the cache.
void RopeQueries(const BlockContext& context, const LayerWeights& w, const Cached& cached,
                 const GqaBuffers& buffers) {
  const auto heads = static_cast<int32_t>(context.weights.shard.own_heads.size());
  kernels::RopeRowsArgs rope{.dtype = context.dtype,
                             .num_rows = cached.batch.num_rows,
                             .positions = cached.batch.positions,
                             .qkv = buffers.qkv,
                             .heads = heads,
                             .head_dim = cached.group.layout.key_dim};
  SetRope(context, w, cached.index, &rope);
  rope.readers[rope.num_readers++] = {.out = buffers.q, .heads = heads};
  kernels::RopeRows(*context.stream, *context.kernels, rope);
}

// q, k and v of all rows come at once.
void MeetOnce(const BlockContext& context, const UlyssesPlan& plan, const GqaBuffers& buffers) {
  fabric::Exchange& exchange = *context.links.sequence;
  const fabric::MatrixBehind kv{buffers.kv, plan.kv_row_bytes()};
  fabric::AllToAll(*context.stream, exchange, "all_to_all_qkv", plan.forth(), buffers.q,
                   plan.forth()[0].bytes, kv);
  CountMeeting(context, &ExchangeCounters::bytes_all_to_all,
               fabric::BytesFromOthers(exchange, plan.forth(), kv));
}

// q of all rows and k and v of a class's rows, which go into this rank's part of the next meeting;
// then k and v of all.
void MeetTwice(const BlockContext& context, const UlyssesPlan& plan, const GqaBuffers& buffers) {
  fabric::Exchange& exchange = *context.links.sequence;
  fabric::AllToAll(*context.stream, exchange, "all_to_all_q", plan.forth(), buffers.q,
                   plan.forth()[0].bytes);
  fabric::TakeBlocks(*context.stream, exchange, "all_to_all_kv", plan.kv_class(), exchange.mine(),
                     plan.kv_row_bytes());
  CountMeeting(context, &ExchangeCounters::bytes_all_to_all,
               fabric::BytesFromOthers(exchange, plan.forth()) +
                   fabric::BytesFromOthers(exchange, plan.kv_class()));
  fabric::AllGather(*context.stream, exchange, "all_gather_kv", plan.kv_all(), buffers.kv,
                    plan.kv_row_bytes());
  CountMeeting(context, &ExchangeCounters::bytes_all_to_all,
               fabric::BytesFromOthers(exchange, plan.kv_all()));
}

// The same where rows are cut over ranks: each rounds q, k and v of its own rows, and takes what
// its own heads need of all.
void RopeMeetAndStore(const BlockContext& context, const LayerWeights& w, const Cached& cached,
                      const UlyssesPlan& plan, const GqaBuffers& buffers) {
  const Shard& shard = context.weights.shard;
  const kernels::StepBatch& batch = cached.batch;
  fabric::Exchange& exchange = *context.links.sequence;
  kernels::RopeRowsArgs rope{.dtype = context.dtype,
                             .num_rows = batch.own_end - batch.own_begin,
                             .positions = batch.positions + batch.own_begin,
                             .qkv = buffers.qkv,
                             .heads = static_cast<int32_t>(shard.heads.size()),
                             .kv_heads = static_cast<int32_t>(cached.kv.kv_heads.size()),
                             .head_dim = cached.group.layout.key_dim};
  SetRope(context, w, cached.index, &rope);
  for (const auto& [heads, kv_heads] : cached.kv.run_heads) {
    const int reader = rope.num_readers++;
    rope.readers[reader] = {
        .out = exchange.mine() + plan.StagingOf(reader),
        .first_head = static_cast<int32_t>(heads.begin - shard.heads.begin),
        .heads = static_cast<int32_t>(heads.size()),
        .first_kv_head = static_cast<int32_t>(kv_heads.begin - cached.kv.kv_heads.begin),
        .kv_heads = plan.SendsKv(reader) ? static_cast<int32_t>(kv_heads.size()) : 0};
  }
  kernels::RopeRows(*context.stream, *context.kernels, rope);
  plan.two_step() ? MeetTwice(context, plan, buffers) : MeetOnce(context, plan, buffers);
  kernels::StoreKv(*context.stream, *context.kernels,
                   {.batch = batch,
                    .layout = cached.group.layout,
                    .layer = cached.layer.bases,
                    .kv = buffers.kv,
                    .digests = cached.group.digests,
                    .layer_index = cached.index,
                    .first_kv_head = static_cast<int32_t>(cached.kv.own_kv_heads.begin),
                    .digested_elsewhere = cached.kv.kv_copies,
                    .first_layer = cached.layer.first});
}

// Whether the layer's attention differs from that of the one before it in K and V alone.
bool AsBefore(const BlockContext& context, int64_t layer) {
  const ModelConfig& config = *context.config;
  const int64_t index = context.weights.shard.layers.begin + layer;
  if (layer == 0 || &AttentionOf(config, index - 1) != &AttentionOf(config, index)) return false;
  const auto [kv_heads, head_dim] = config.HeadsOf(index);
  const auto [kv_heads_before, head_dim_before] = config.HeadsOf(index - 1);
  return kv_heads == kv_heads_before && head_dim == head_dim_before &&
         config.ReachOf(index) == config.ReachOf(index - 1);
}

// K and V of every row are in the cache afterwards.
void RunGqa(const BlockContext& context, const kernels::StepBatch& batch,
            const kernels::ContextSums& sums, int64_t layer) {
  const ModelConfig& config = *context.config;
  const Activations& activations = context.activations;
  const Shard& shard = context.weights.shard;
  fabric::Exchange* const sequence = context.links.sequence;
  const int32_t own_rows = batch.own_end - batch.own_begin;
  const LayerWeights& w = context.weights.layers[layer];
  const int64_t index = shard.layers.begin + layer;
  const int64_t kv_layer = config.KvLayerOf(index) - shard.layers.begin;
  const LayerHeads heads{shard.KvOf(config, index), config.HeadsOf(index).head_dim};
  GqaBuffers buffers;
  CutGqaBuffers(config, shard, heads, context.dtype, batch.num_rows, activations.attention,
                &buffers);
  const kv::CacheView::Layer& in_cache = context.kv.layers[kv_layer];
  const kv::CacheView::KvGroupView& group = context.kv.groups[in_cache.group];
  const kernels::StepBatch in_group = InGroup(batch, in_cache.group);
  const Cached cached{in_group, in_cache, group, static_cast<int32_t>(index), heads.kv};
  const RowsIn x =
      BlockInput(context, layer, kAttentionNorm, own_rows, RowFormOf(context, layer, kQkv));
  LayerLinear(context, layer, kQkv, x, reinterpret_cast<std::byte*>(buffers.qkv), own_rows,
              kernels::LinearOutput::kF32);
  if (config.attention_gate) {
    LayerLinear(context, layer, kAttentionGate, x, reinterpret_cast<std::byte*>(buffers.gates),
                own_rows, kernels::LinearOutput::kF32);
  }
  if (config.qk_norm_of_rows) NormRows(context, w, own_rows, buffers.qkv);
  std::optional<UlyssesPlan> plan;
  if (kv_layer != layer) {
    RopeQueries(context, w, cached, buffers);
  } else if (sequence == nullptr) {
    RopeAndStore(context, w, cached, sums, buffers);
  } else {
    plan.emplace(shard, heads.kv, heads.head_dim, context.dtype, batch.num_rows,
                 sequence->my_index());
    RopeMeetAndStore(context, w, cached, *plan, buffers);
  }
  // Rows of other ranks, and those that meet gates, come one after the other.
  const bool for_output = sequence == nullptr && !config.attention_gate;
  const kernels::RowForm form =
      for_output ? RowFormOf(context, layer, kOutput) : kernels::RowForm::kRows;
  kernels::Attention(
      *context.stream, *context.kernels,
      {.batch = in_group,
       .layout = group.layout,
       .layer = LayerKv(context, kv_layer).bases(),
       .q = buffers.q,
       .out = sequence == nullptr ? buffers.attention : sequence->mine(),
       .out_form = form,
       .heads = static_cast<int32_t>(shard.own_heads.size()),
       .scale = config.score_factor != 0
                    ? config.score_factor
                    : static_cast<float>(1.0 / std::sqrt(static_cast<double>(heads.head_dim))),
       .score_cap = config.score_cap,
       .sinks = config.sinks ? w.vector(kSinks) + shard.own_heads.begin : nullptr,
       .reach = config.ReachOf(index),
       .as_before = AsBefore(context, layer),
       .context = sums});
  if (sequence != nullptr) {
    fabric::AllToAll(
        *context.stream, *sequence, "all_to_all_attention", plan->back(), buffers.attention,
        tensor::BytesOf(context.dtype, static_cast<uint64_t>(shard.heads.size() * heads.head_dim)));
    CountMeeting(context, &ExchangeCounters::bytes_all_to_all,
                 fabric::BytesFromOthers(*sequence, plan->back()));
  }
  if (config.attention_gate) {
    kernels::GateRows(*context.stream, *context.kernels, "gate_attention",
                      {.dtype = context.dtype,
                       .y = buffers.attention,
                       .gates = buffers.gates,
                       .rows = own_rows,
                       .columns = static_cast<int32_t>(shard.heads.size() * heads.head_dim)});
  }
  AddLinear(context, layer, kOutput, kAttentionPostNorm, {buffers.attention, form}, own_rows);
}

}  // namespace

extern const AttentionKind kGqa;
const AttentionKind kGqa{"gqa", &HasGqa, &PlanGqa, &GqaWorkspace, &RunGqa};

}  // namespace forebay::model

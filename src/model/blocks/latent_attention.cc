// Multi-head latent attention (arXiv 2405.04434, section 2.1) in its absorbed form: queries go
// through the projection of keys, so that all heads attend to the cached latents as they are, and
// what they take of them goes through the projection of values.
#include "model/blocks/kinds.h"

namespace forebay::model {
namespace {

constexpr Role kQDown{"q_down"}, kQLatentNorm{"q_latent_norm"}, kQUp{"q_up"}, kKvDown{"kv_down"},
    kKvLatentNorm{"kv_latent_norm"}, kAbsorbKeys{"absorb_keys"}, kValueUp{"value_up"};

// Of the norms of the latents, whatever rms_norm_eps says.
constexpr float kLatentEps = 1e-6f;

bool Has(const ModelConfig& config, int64_t) { return config.mla.has_value(); }

// Queries from the normed residual, or from their latent where they have one. Rope's elements of a
// head are its last ones.
void PlanQueries(const LayerSite& site, LayerPlan* layer) {
  const MlaConfig& mla = *site.config.mla;
  const LatentNames& names = site.names.latent;
  const int64_t hidden = site.config.hidden_size, rank = mla.q_lora_rank;
  if (rank > 0) {
    layer->vectors.push_back({kQLatentNorm, names.q_norm, rank});
    layer->matrices.push_back(
        {kQDown, Block::kAttention, LeafRule::kEven,
         weights::PlanMatrix(site.Label(kQDown), site.dtype, names.q_down, "", rank, hidden,
                             kernels::LeafBorders::Single(hidden))});
  }
  layer->matrices.push_back(
      {kQUp, Block::kAttention, LeafRule::kEven,
       weights::PlanHeads(site.Label(kQUp), site.dtype, rank > 0 ? names.q_up : site.names.q,
                          {.heads = site.config.num_heads,
                           .head_rows = mla.qk_head_dim(),
                           .rows = mla.qk_head_dim(),
                           .interleaved = site.config.rope_interleaved ? mla.qk_rope_head_dim : 0},
                          rank > 0 ? rank : hidden)});
}

void Plan(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  FB_CHECK(shard.cut.tp == 1, "latent attention over {} ranks was not refused", shard.cut.tp);
  const MlaConfig& mla = *config.mla;
  layer->vectors.push_back({kAttentionNorm, names.attention_norm, config.hidden_size});
  layer->vectors.push_back({kKvLatentNorm, names.latent.kv_norm, mla.kv_lora_rank});
  PlanQueries(site, layer);
  layer->matrices.push_back(
      {kKvDown, Block::kAttention, LeafRule::kEven,
       weights::PlanHeads(site.Label(kKvDown), dtype, names.latent.kv_down,
                          {.head_rows = mla.latent_dim(),
                           .rows = mla.latent_dim(),
                           .interleaved = config.rope_interleaved ? mla.qk_rope_head_dim : 0},
                          config.hidden_size)});
  // A head's rows of the projection of latents: those of its key, then those of its value.
  const int64_t keys = mla.qk_nope_head_dim, values = mla.v_head_dim;
  layer->matrices.push_back(
      {kAbsorbKeys, Block::kAttention, LeafRule::kEven,
       weights::PlanTransposedHeads(
           site.Label(kAbsorbKeys), dtype, names.latent.kv_up,
           {.heads = config.num_heads, .head_rows = keys + values, .rows = keys},
           mla.kv_lora_rank)});
  layer->matrices.push_back(
      {kValueUp, Block::kAttention, LeafRule::kEven,
       weights::PlanHeads(
           site.Label(kValueUp), dtype, names.latent.kv_up,
           {.heads = config.num_heads, .head_rows = keys + values, .first = keys, .rows = values},
           mla.kv_lora_rank)});
  layer->matrices.push_back(
      {kOutput, Block::kAttention, LeafRule::kEven,
       weights::PlanMatrix(site.Label(kOutput), dtype, names.o, "", config.hidden_size,
                           config.num_heads * values,
                           kernels::LeafBorders::ForOutput(config.num_heads, values))});
}

// What a step makes of Activations::attention.
struct Buffers {
  float* q_down = nullptr;         // [rows, q_lora_rank]
  std::byte* q_latent = nullptr;   // the same of T
  float* queries = nullptr;        // [rows, heads, qk_head_dim]
  float* kv = nullptr;             // [rows, latent_dim]
  std::byte* q = nullptr;          // [rows, heads, qk_head_dim] T
  std::byte* absorbed = nullptr;   // [rows, heads, latent_dim] T
  std::byte* latents = nullptr;    // [rows, heads, kv_lora_rank] T: what heads take of the latents
  std::byte* attention = nullptr;  // [rows, heads, v_head_dim] T
};

// Cuts them from `at` on; returns their bytes.
uint64_t CutBuffers(const ModelConfig& config, tensor::DType dtype, int64_t step_rows,
                    std::byte* at, Buffers* buffers) {
  const MlaConfig& mla = *config.mla;
  const auto rows = static_cast<uint64_t>(step_rows), t = uint64_t{tensor::SizeOf(dtype)};
  const auto head_rows = rows * static_cast<uint64_t>(config.num_heads);
  const auto rank = static_cast<uint64_t>(mla.q_lora_rank),
             query = static_cast<uint64_t>(mla.qk_head_dim()),
             latent = static_cast<uint64_t>(mla.latent_dim());
  BufferCutter cutter(at);
  cutter.Cut(&buffers->q_down, rows * rank * sizeof(float));
  cutter.Cut(&buffers->q_latent, rows * rank * t);
  cutter.Cut(&buffers->queries, head_rows * query * sizeof(float));
  cutter.Cut(&buffers->kv, rows * latent * sizeof(float));
  cutter.Cut(&buffers->q, head_rows * query * t);
  cutter.Cut(&buffers->absorbed, head_rows * latent * t);
  cutter.Cut(&buffers->latents, head_rows * static_cast<uint64_t>(mla.kv_lora_rank) * t);
  cutter.Cut(&buffers->attention, head_rows * static_cast<uint64_t>(mla.v_head_dim) * t);
  return cutter.bytes();
}

BlockWorkspace Workspace(const ModelConfig& config, const Shard&, tensor::DType dtype,
                         int64_t rows) {
  Buffers none;
  return {CutBuffers(config, dtype, rows, nullptr, &none),
          std::max(config.mla->q_lora_rank, config.num_heads * config.mla->v_head_dim)};
}

// Queries [rows, heads, qk_head_dim], fp32.
void ProjectQueries(const BlockContext& context, int64_t layer, int32_t rows,
                    const Buffers& buffers) {
  const std::byte* x = context.activations.normed;
  if (const int64_t rank = context.config->mla->q_lora_rank; rank > 0) {
    auto* const down = reinterpret_cast<std::byte*>(buffers.q_down);
    LayerLinear(context, layer, kQDown, x, down, rows, kernels::LinearOutput::kF32);
    kernels::RmsNorm(*context.stream, *context.kernels, kQLatentNorm.name,
                     {.dtype = context.dtype,
                      .x_f32 = true,
                      .x = down,
                      .out = buffers.q_latent,
                      .weight = context.weights.layers[layer].vector(kQLatentNorm),
                      .num_rows = rows,
                      .columns = static_cast<int32_t>(rank),
                      .eps = kLatentEps});
    x = buffers.q_latent;
  }
  LayerLinear(context, layer, kQUp, x, reinterpret_cast<std::byte*>(buffers.queries), rows,
              kernels::LinearOutput::kF32);
}

// Rows of each head with a width, and how far the next head's are.
struct HeadRows {
  std::byte* data;
  int64_t width;
};

// y of each head = its matrix of the role times its x.
void ProjectHeads(const BlockContext& context, int64_t layer, const Role& role, int32_t rows,
                  const HeadRows& x, const HeadRows& y) {
  const int64_t heads = context.config->num_heads;
  const LayerWeight placed(context, layer, role);
  kernels::PackedWeight weight = placed.placed().weight;
  weight.n /= static_cast<int32_t>(heads);
  weight.num_panels /= static_cast<int32_t>(heads);
  kernels::Heads(*context.stream, *context.kernels, role.name,
                 {.weight = weight,
                  .num_experts = static_cast<int32_t>(heads),
                  .max_rows = rows,
                  .x = x.data,
                  .y = y.data,
                  .x_stride = heads * x.width,
                  .y_stride = heads * y.width,
                  .x_step = x.width,
                  .y_step = y.width});
}

// The latent and the turned key of every row are in the cache afterwards.
void Run(const BlockContext& context, const kernels::StepBatch& batch,
         const kernels::ContextSums& sums, int64_t layer) {
  const ModelConfig& config = *context.config;
  const MlaConfig& mla = *config.mla;
  const int32_t rows = batch.num_rows, heads = static_cast<int32_t>(config.num_heads);
  const kv::CacheView::Layer& cached = context.kv.layers[layer];
  const kv::CacheView::Group& group = context.kv.groups[cached.group];
  const kernels::StepBatch in_group = InGroup(batch, cached.group);
  Buffers buffers;
  CutBuffers(config, context.dtype, rows, context.activations.attention, &buffers);
  LayerNorm(context, layer, kAttentionNorm, rows, context.activations.normed);
  ProjectQueries(context, layer, rows, buffers);
  LayerLinear(context, layer, kKvDown, context.activations.normed,
              reinterpret_cast<std::byte*>(buffers.kv), rows, kernels::LinearOutput::kF32);
  kernels::LatentKv(
      *context.stream, *context.kernels,
      {.batch = in_group,
       .layout = group.layout,
       .layer = cached.bases,
       .kv = buffers.kv,
       .kv_norm = context.weights.layers[layer].vector(kKvLatentNorm),
       .norm_eps = kLatentEps,
       .queries = buffers.queries,
       .q = buffers.q,
       .absorbed = buffers.absorbed,
       .heads = heads,
       .plain = static_cast<int32_t>(mla.qk_nope_head_dim),
       .rope_cos = context.weights.rope_cos,
       .rope_sin = context.weights.rope_sin,
       .digests = group.digests,
       .layer_index = static_cast<int32_t>(context.weights.shard.layers.begin + layer),
       .first_layer = cached.first});
  ProjectHeads(context, layer, kAbsorbKeys, rows, {buffers.q, mla.qk_head_dim()},
               {buffers.absorbed, mla.latent_dim()});
  kernels::Attention(*context.stream, *context.kernels,
                     {.batch = in_group,
                      .layout = group.layout,
                      .layer = LayerKv(context, layer).bases(),
                      .q = buffers.absorbed,
                      .out = buffers.latents,
                      .heads = heads,
                      .scale = mla.softmax_scale,
                      .context = sums});
  ProjectHeads(context, layer, kValueUp, rows, {buffers.latents, mla.kv_lora_rank},
               {buffers.attention, mla.v_head_dim});
  AddLinear(context, layer, kOutput, buffers.attention, rows);
}

}  // namespace

extern const AttentionKind kLatentAttention;
const AttentionKind kLatentAttention{"latent", &Has, &Plan, &Workspace, &Run};

}  // namespace forebay::model

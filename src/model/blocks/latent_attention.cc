// Multi-head latent attention (arXiv 2405.04434, section 2.1) in two forms, which round elsewhere.
// Absorbed: queries go through the projection of keys, so that all heads attend to the cached
// latents as they are, and what they take of them goes through the projection of values. Expanded:
// K and V are made of the latents in workspace, of all heads or of some after others, for rows of
// prompts, which are many beside the positions that they see.
#include <algorithm>
#include <span>

#include "model/blocks/kinds.h"
#include "model/blocks/latent_forms.h"
#include "model/kv_groups.h"

namespace forebay::model {
namespace {

constexpr Role kQDown{"q_down"}, kQLatentNorm{"q_latent_norm"}, kQUp{"q_up"}, kKvDown{"kv_down"},
    kKvLatentNorm{"kv_latent_norm"}, kAbsorbKeys{"absorb_keys"}, kKeyUp{"key_up"},
    kValueUp{"value_up"};

// The norms of the latents take this eps, whatever rms_norm_eps says.
constexpr float kLatentEps = 1e-6f;

bool HasLatentAttention(const ModelConfig& config, int64_t) { return config.mla.has_value(); }

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
                          {.heads = {site.config.num_heads, site.shard.heads},
                           .head_rows = mla.qk_head_dim(),
                           .rows = mla.qk_head_dim(),
                           .interleaved = site.config.rope_interleaved ? mla.qk_rope_head_dim : 0},
                          rank > 0 ? rank : hidden)});
}

void PlanLatentAttention(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  FB_CHECK(shard.cut.sp == 1, "latent attention over sp={} was not refused", shard.cut.sp);
  const MlaConfig& mla = *config.mla;
  site.AddNorm(kAttentionNorm, names.attention_norm, config.hidden_size, layer);
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
  const weights::TensorRows packed{config.num_heads, shard.heads};
  const weights::HeadRows key_rows{.heads = packed, .head_rows = keys + values, .rows = keys},
      value_rows{.heads = packed, .head_rows = keys + values, .first = keys, .rows = values};
  const bool expands = config.expands_prompts();
  layer->matrices.push_back(
      {kAbsorbKeys, Block::kAttention, LeafRule::kEven,
       weights::Expanded(weights::PlanTransposedHeads(
           site.Label(kAbsorbKeys), dtype, names.latent.kv_up, key_rows, mla.kv_lora_rank)),
       expands});
  if (expands) {
    layer->matrices.push_back(
        {kKeyUp, Block::kAttention, LeafRule::kEven,
         weights::Expanded(weights::PlanHeads(site.Label(kKeyUp), dtype, names.latent.kv_up,
                                              key_rows, mla.kv_lora_rank)),
         expands});
  }
  layer->matrices.push_back(
      {kValueUp, Block::kAttention, LeafRule::kEven,
       weights::Expanded(weights::PlanHeads(site.Label(kValueUp), dtype, names.latent.kv_up,
                                            value_rows, mla.kv_lora_rank)),
       expands});
  weights::MatrixPlan output = weights::PlanMatrix(
      site.Label(kOutput), dtype, names.o, "", config.hidden_size, config.num_heads * values,
      kernels::LeafBorders::ForOutput(config.num_heads, values));
  output.KeepLeaves(shard.output_leaves);
  layer->matrices.push_back({kOutput, Block::kAttention, LeafRule::kEven, std::move(output)});
}

// What a step makes of Activations::attention; heads are the rank's.
struct LatentBuffers {
  float* q_down = nullptr;         // [rows, q_lora_rank]
  std::byte* q_latent = nullptr;   // the same of T
  float* queries = nullptr;        // [rows, heads, qk_head_dim]
  float* kv = nullptr;             // [rows, latent_dim]
  std::byte* q = nullptr;          // [rows, heads, qk_head_dim] T
  std::byte* absorbed = nullptr;   // [rows, heads, latent_dim] T
  std::byte* latents = nullptr;    // [rows, heads, kv_lora_rank] T: what heads take of the latents
  std::byte* attention = nullptr;  // [rows, heads, v_head_dim] T
  // Where contexts are expanded, piece by piece, of a round's blocks:
  std::byte* gathered = nullptr;  // [a piece's positions, latent_dim] T
  std::byte* packed = nullptr;    // the same as linear layers take it
  std::byte* pass = nullptr;      // K and V of a pass's heads, see Pass
};

// Cuts them from `at` on, for rounds of so many blocks; returns their bytes.
uint64_t CutLatentBuffers(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                          int64_t step_rows, int64_t blocks, uint64_t pass_bytes, std::byte* at,
                          LatentBuffers* buffers) {
  const MlaConfig& mla = *config.mla;
  const int64_t heads = shard.heads.size();
  const auto rows = static_cast<uint64_t>(step_rows), t = uint64_t{tensor::SizeOf(dtype)};
  const auto head_rows = rows * static_cast<uint64_t>(heads);
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
  if (blocks == 0) return cutter.bytes();
  const int64_t positions = std::min(blocks, kPieceBlocks) * kernels::kBlockTokens;
  cutter.Cut(&buffers->gathered, static_cast<uint64_t>(positions) * latent * t);
  cutter.Cut(&buffers->packed, kernels::LinearWorkspaceBytes(dtype, positions, mla.kv_lora_rank));
  cutter.Cut(&buffers->pass, PassBytes(config, heads, dtype, blocks, pass_bytes));
  return cutter.bytes();
}

BlockWorkspace LatentAttentionWorkspace(const ModelConfig& config, const Shard& shard,
                                        tensor::DType dtype, int64_t rows,
                                        const StepCapacity& capacity) {
  LatentBuffers none;
  const int64_t blocks = ExpandedBlocks(config, rows, capacity.max_model_len);
  return {
      CutLatentBuffers(config, shard, dtype, rows, blocks, capacity.expanded_bytes, nullptr, &none),
      std::max(config.mla->q_lora_rank, shard.heads.size() * config.mla->v_head_dim)};
}

// Queries [rows, heads, qk_head_dim], fp32.
void ProjectQueries(const BlockContext& context, int64_t layer, int32_t rows,
                    const LatentBuffers& buffers) {
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
  const int64_t heads = context.weights.shard.heads.size();
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

// One layer of a step.
struct Site {
  const BlockContext& context;
  const kernels::StepBatch& batch;  // with the group's tables
  const kernels::KvLayout& layout;
  const kernels::KvLayer& cached;
  const LatentBuffers& buffers;
  int64_t layer;
};

// The rows of `answers` attend in the absorbed form; of the batch these rows are in `ranges`.
void AttendAbsorbed(const Site& site, std::span<kernels::SequenceRows> answers,
                    std::span<const kernels::LatentForms::Rows> ranges,
                    const kernels::ContextSums& sums) {
  const BlockContext& context = site.context;
  const MlaConfig& mla = *context.config->mla;
  const int64_t heads = context.weights.shard.heads.size();
  const auto project = [&](const Role& role, const HeadRows& x, const HeadRows& y) {
    for (const kernels::LatentForms::Rows& rows : ranges) {
      const auto first = [&](const HeadRows& all) {
        const auto values = static_cast<uint64_t>(rows.begin * heads * all.width);
        return HeadRows{all.data + tensor::BytesOf(context.dtype, values), all.width};
      };
      ProjectHeads(context, site.layer, role, rows.end - rows.begin, first(x), first(y));
    }
  };
  project(kAbsorbKeys, {site.buffers.q, mla.qk_head_dim()},
          {site.buffers.absorbed, mla.latent_dim()});
  kernels::StepBatch batch = site.batch;
  batch.sequences = answers.data();
  batch.num_sequences = static_cast<int32_t>(answers.size());
  kernels::Attention(*context.stream, *context.kernels,
                     {.batch = batch,
                      .layout = site.layout,
                      .layer = site.cached,
                      .q = site.buffers.absorbed,
                      .out = site.buffers.latents,
                      .heads = static_cast<int32_t>(heads),
                      .scale = mla.softmax_scale,
                      .context = sums});
  project(kValueUp, {site.buffers.latents, mla.kv_lora_rank},
          {site.buffers.attention, mla.v_head_dim});
}

// Heads of which K and V are there at once.
struct Pass {
  int64_t first, heads;
  kernels::KvLayout layout;
  std::byte* keys;      // [a piece's positions, heads, qk_nope_head_dim] T
  std::byte* values;    // [a piece's positions, heads, v_head_dim] T
  std::byte* expanded;  // [blocks] in the layout
};

Pass CutPass(const Site& site, int64_t first, int64_t heads, int32_t num_blocks) {
  const ModelConfig& config = *site.context.config;
  const tensor::DType dtype = site.context.dtype;
  const int64_t rows = std::min<int64_t>(num_blocks, kPieceBlocks) * kernels::kBlockTokens;
  Pass pass{.first = first, .heads = heads, .layout = ExpandedLayoutOf(config, dtype, heads)};
  BufferCutter cutter(site.buffers.pass);
  const auto cut = [&](std::byte** buffer, int64_t width) {
    cutter.Cut(buffer, tensor::BytesOf(dtype, static_cast<uint64_t>(rows * heads * width)));
  };
  cut(&pass.keys, config.mla->qk_nope_head_dim);
  cut(&pass.values, config.mla->v_head_dim);
  cutter.Cut(&pass.expanded, static_cast<uint64_t>(num_blocks * pass.layout.LayerBytes()));
  return pass;
}

// y [rows, the pass's heads' rows of the matrix] = the gathered latents through the matrix,
// rounded.
void ProjectLatents(const Site& site, const Role& role, const Pass& pass, int32_t rows,
                    std::byte* y) {
  const LayerWeight placed(site.context, site.layer, role);
  kernels::PackedWeight weight = placed.placed().weight;
  const int64_t all = site.context.weights.shard.heads.size(), panels = weight.num_panels / all;
  weight.tiles += pass.first * panels;
  weight.num_panels = static_cast<int32_t>(pass.heads * panels);
  weight.n = static_cast<int32_t>(weight.n / all * pass.heads);
  kernels::Linear(*site.context.stream, *site.context.kernels, role.name,
                  {.weight = weight,
                   .x = site.buffers.gathered,
                   .y = y,
                   .x_stride = site.layout.key_dim,
                   .y_stride = weight.n,
                   .rows = rows,
                   .output = kernels::LinearOutput::kRounded,
                   .leaf_begin = 0,
                   .leaf_end = weight.leaves.num_leaves,
                   .workspace = site.buffers.packed});
}

// K and V of the pass's heads of these blocks, in order.
void Expand(const Site& site, const Pass& pass, const uint32_t* blocks, int32_t num_blocks) {
  const BlockContext& context = site.context;
  for (int32_t at = 0; at < num_blocks; at += kPieceBlocks) {
    const int32_t count = std::min<int32_t>(num_blocks - at, kPieceBlocks);
    kernels::GatherLatents(*context.stream, *context.kernels,
                           {.layout = site.layout,
                            .layer = site.cached,
                            .blocks = blocks + at,
                            .num_blocks = count,
                            .out = site.buffers.gathered});
    ProjectLatents(site, kKeyUp, pass, count * kernels::kBlockTokens, pass.keys);
    ProjectLatents(site, kValueUp, pass, count * kernels::kBlockTokens, pass.values);
    kernels::StoreExpanded(*context.stream, *context.kernels,
                           {.layout = pass.layout,
                            .blocks = pass.expanded + at * pass.layout.LayerBytes(),
                            .num_blocks = count,
                            .keys = pass.keys,
                            .latents = site.buffers.gathered,
                            .values = pass.values,
                            .latent_dim = site.layout.key_dim,
                            .plain = static_cast<int32_t>(context.config->mla->qk_nope_head_dim)});
  }
}

// The rows of prompts attend in the expanded form, round by round, pass by pass.
void AttendExpanded(const Site& site, const kernels::LatentForms& forms) {
  const BlockContext& context = site.context;
  const MlaConfig& mla = *context.config->mla;
  const int64_t all = context.weights.shard.heads.size();
  const auto at = [&](std::byte* rows, int64_t head, int64_t width) {
    return rows + tensor::BytesOf(context.dtype, static_cast<uint64_t>(head * width));
  };
  const uint32_t* blocks = forms.blocks;
  kernels::StepBatch batch = site.batch;
  batch.sequences = forms.prompts;
  batch.block_tables = forms.places;
  for (const auto& round : std::span(forms.rounds, static_cast<size_t>(forms.num_rounds))) {
    batch.num_sequences = round.num_sequences;
    const int64_t most = HeadsOfPass(*context.config, all, context.dtype, round.num_blocks,
                                     context.capacity.expanded_bytes);
    for (int64_t first = 0; first < all; first += most) {
      const Pass pass = CutPass(site, first, std::min(most, all - first), round.num_blocks);
      Expand(site, pass, blocks, round.num_blocks);
      kernels::Attention(*context.stream, *context.kernels,
                         {.batch = batch,
                          .layout = pass.layout,
                          .layer = {.resident = pass.expanded},
                          .q = at(site.buffers.q, first, mla.qk_head_dim()),
                          .out = at(site.buffers.attention, first, mla.v_head_dim),
                          .heads = static_cast<int32_t>(pass.heads),
                          .row_heads = static_cast<int32_t>(all),
                          .scale = mla.softmax_scale,
                          .context = round.context});
    }
    blocks += round.num_blocks;
    batch.sequences += round.num_sequences;
  }
}

// The rows of the step, each in its form.
void Attend(const Site& site, const kernels::ContextSums& sums) {
  const kernels::LatentForms* const forms = site.batch.forms;
  const bool expands = site.context.config->expands_prompts();
  FB_CHECK(expands == (forms != nullptr),
           "a step {} forms, of a model whose prompts are {}expanded", forms ? "with" : "without",
           expands ? "" : "not ");
  const kernels::LatentForms::Rows all{0, site.batch.num_rows};
  if (forms == nullptr) {
    return AttendAbsorbed(site,
                          {site.batch.sequences, static_cast<size_t>(site.batch.num_sequences)},
                          {&all, 1}, sums);
  }
  if (forms->num_answers > 0) {
    AttendAbsorbed(site, {forms->answers, static_cast<size_t>(forms->num_answers)},
                   {forms->answer_rows, static_cast<size_t>(forms->num_answer_rows)},
                   forms->answer_context);
  }
  AttendExpanded(site, *forms);
}

// The most blocks that a round of the step expands.
int64_t MostBlocks(const kernels::LatentForms* forms) {
  int64_t most = 0;
  for (int32_t i = 0; forms != nullptr && i < forms->num_rounds; ++i)
    most = std::max<int64_t>(most, forms->rounds[i].num_blocks);
  return most;
}

// The latent and the turned key of every row are in the cache afterwards.
void RunLatentAttention(const BlockContext& context, const kernels::StepBatch& batch,
                        const kernels::ContextSums& sums, int64_t layer) {
  const ModelConfig& config = *context.config;
  const Shard& shard = context.weights.shard;
  const int32_t rows = batch.num_rows;
  const kv::CacheView::Layer& cached = context.kv.layers[layer];
  const kv::CacheView::KvGroupView& group = context.kv.groups[cached.group];
  const kernels::StepBatch in_group = InGroup(batch, cached.group);
  LatentBuffers buffers;
  CutLatentBuffers(config, shard, context.dtype, rows, MostBlocks(batch.forms),
                   context.capacity.expanded_bytes, context.activations.attention, &buffers);
  LayerNorm(context, layer, kAttentionNorm, rows, context.activations.normed);
  ProjectQueries(context, layer, rows, buffers);
  LayerLinear(context, layer, kKvDown, context.activations.normed,
              reinterpret_cast<std::byte*>(buffers.kv), rows, kernels::LinearOutput::kF32);
  kernels::LatentKv(*context.stream, *context.kernels,
                    {.batch = in_group,
                     .layout = group.layout,
                     .layer = cached.bases,
                     .kv = buffers.kv,
                     .kv_norm = context.weights.layers[layer].vector(kKvLatentNorm),
                     .norm_eps = kLatentEps,
                     .queries = buffers.queries,
                     .q = buffers.q,
                     .absorbed = buffers.absorbed,
                     .heads = static_cast<int32_t>(shard.heads.size()),
                     .plain = static_cast<int32_t>(config.mla->qk_nope_head_dim),
                     .rope_cos = context.weights.rope_cos,
                     .rope_sin = context.weights.rope_sin,
                     .digests = group.digests,
                     .digested_elsewhere = shard.kv_copies,
                     .layer_index = static_cast<int32_t>(shard.layers.begin + layer),
                     .first_layer = cached.first});
  const LayerKv kv(context, layer);
  Attend({context, in_group, group.layout, kv.bases(), buffers, layer}, sums);
  AddLinear(context, layer, kOutput, kAttentionPostNorm, buffers.attention, rows);
}

}  // namespace

extern const AttentionKind kLatentAttention;
const AttentionKind kLatentAttention{"latent", &HasLatentAttention, &PlanLatentAttention,
                                     &LatentAttentionWorkspace, &RunLatentAttention};

}  // namespace forebay::model

#include "model/decoder.h"

#include <algorithm>
#include <cmath>

#include "model/repeat_layers.h"

namespace forebay::model {
namespace {

int64_t QkvColumns(const ModelConfig& config) { return (config.num_heads + 2 * config.num_kv_heads) * config.head_dim; }

uint64_t LinearBytes(const ModelConfig& config, tensor::DType dtype, const StepCapacity& capacity) {
  const int64_t largest_k = std::max({config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim});
  return kernels::LinearWorkspaceBytes(dtype, capacity.rows, largest_k);
}

// The buffers in order: pairs of (member, bytes), so that the plan and the cut cannot disagree.
template <typename Visit>
void ForEachBuffer(const ModelConfig& config, tensor::DType dtype, const StepCapacity& capacity, Activations* a,
                   Visit visit) {
  const uint64_t t = tensor::SizeOf(dtype);
  const auto rows = static_cast<uint64_t>(capacity.rows), logit_rows = static_cast<uint64_t>(capacity.logit_rows);
  const auto hidden = static_cast<uint64_t>(config.hidden_size);
  const auto heads = static_cast<uint64_t>(config.num_heads * config.head_dim);
  visit(&a->residual, rows * hidden * t);
  visit(&a->normed, rows * hidden * t);
  visit(&a->qkv, rows * static_cast<uint64_t>(QkvColumns(config)) * sizeof(float));
  visit(&a->q, rows * heads * t);
  visit(&a->attention, rows * heads * t);
  visit(&a->gated, rows * static_cast<uint64_t>(config.intermediate_size) * t);
  visit(&a->linear, LinearBytes(config, dtype, capacity));
  visit(&a->head_input, logit_rows * hidden * t);
  visit(&a->logits, logit_rows * static_cast<uint64_t>(config.vocab_size) * sizeof(float));
}

}  // namespace

uint64_t ActivationBytes(const ModelConfig& config, tensor::DType dtype, const StepCapacity& capacity) {
  Activations none;
  uint64_t sum = 0;
  ForEachBuffer(config, dtype, capacity, &none, [&](auto*, uint64_t bytes) { sum += base::RoundUp(bytes, 64); });
  return sum;
}

Activations CutActivations(const ModelConfig& config, tensor::DType dtype, const StepCapacity& capacity,
                           device::RegionCutter* cutter) {
  Activations activations;
  ForEachBuffer(config, dtype, capacity, &activations, [&](auto* member, uint64_t bytes) {
    *member = reinterpret_cast<std::remove_reference_t<decltype(*member)>>(cutter->Cut(base::RoundUp(bytes, 64)));
  });
  return activations;
}

void Decoder::Forward(const kernels::StepBatch& batch, const kernels::ContextSums& context) const {
  kernels::EmbedArgs embed{.dtype = dtype, .batch = batch, .table = weights.embedding, .packed = weights.head,
                           .out = activations.residual, .columns = static_cast<int32_t>(config->hidden_size)};
  kernels::Embed(*stream, *kernels, embed);
  if (pool) pool->BeginStep();
  StepKey key{.row_bucket = batch.num_rows};
  for (int64_t begin = 0, end = 0; begin < config->num_layers; begin = end) {
    key.layer_kind = KindOf(begin);
    while (end < config->num_layers && KindOf(end) == key.layer_kind) ++end;
    RepeatLayers(*stream, key, {begin, end}, [&](int64_t layer) {
      AttentionBlock(batch, layer, context);
      FeedForwardBlock(batch, layer);
    });
  }
  if (pool) pool->EndStep();
}

uint16_t Decoder::KindOf(int64_t layer) const {
  const auto first = std::ranges::find(config->sliding_window, config->sliding_window[layer]);
  const auto kind = static_cast<uint16_t>(first - config->sliding_window.begin());
  return static_cast<uint16_t>(2 * kind + (pool && pool->Lacks(layer) ? 1 : 0));
}

void Decoder::AttentionBlock(const kernels::StepBatch& batch, int64_t layer, const kernels::ContextSums& context) const {
  const LayerWeights& w = weights.layers[layer];
  Norm("attention_norm", activations.residual, w.attention_norm, nullptr, batch.num_rows, activations.normed);
  LayerLinear("qkv", layer, LayerMatrix::kQkv, activations.normed, reinterpret_cast<std::byte*>(activations.qkv),
              batch.num_rows, kernels::LinearOutput::kF32);
  kernels::RopeKv(*stream, *kernels,
                  {.batch = batch, .layout = kv.layout, .layer = kv.layers[layer], .qkv = activations.qkv,
                   .q = activations.q, .q_norm = w.q_norm, .k_norm = w.k_norm,
                   .norm_eps = static_cast<float>(config->rms_norm_eps), .rope_cos = weights.rope_cos,
                   .rope_sin = weights.rope_sin, .heads = static_cast<int32_t>(config->num_heads), .digests = kv.digests,
                   .layer_index = static_cast<int32_t>(layer), .first_layer = layer == 0});
  kernels::Attention(*stream, *kernels,
                     {.batch = batch, .layout = kv.layout, .layer = kv.layers[layer], .q = activations.q,
                      .out = activations.attention, .heads = static_cast<int32_t>(config->num_heads),
                      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config->head_dim))),
                      .sliding_window = config->sliding_window[layer], .context = context});
  LayerLinear("output", layer, LayerMatrix::kOutput, activations.attention, activations.residual, batch.num_rows,
              kernels::LinearOutput::kResidual);
}

void Decoder::FeedForwardBlock(const kernels::StepBatch& batch, int64_t layer) const {
  const LayerWeights& w = weights.layers[layer];
  Norm("ffn_norm", activations.residual, w.ffn_norm, nullptr, batch.num_rows, activations.normed);
  LayerLinear("gate_up", layer, LayerMatrix::kGateUp, activations.normed, activations.gated, batch.num_rows,
              kernels::LinearOutput::kSiluMul);
  LayerLinear("down", layer, LayerMatrix::kDown, activations.gated, activations.residual, batch.num_rows,
              kernels::LinearOutput::kResidual);
}

void Decoder::Logits(const kernels::StepBatch& batch, int32_t first, int32_t count) const {
  Norm("final_norm", activations.residual, weights.final_norm, batch.logit_rows + first, count, activations.head_input);
  Linear("head", weights.head, activations.head_input, reinterpret_cast<std::byte*>(activations.logits), count,
         kernels::LinearOutput::kF32);
}

void Decoder::Norm(const char* label, const std::byte* x, const float* weight, const int32_t* rows, int32_t num_rows,
                   std::byte* out) const {
  kernels::RmsNorm(*stream, *kernels, label,
                   {.dtype = dtype, .x = x, .out = out, .weight = weight, .rows = rows, .num_rows = num_rows,
                    .columns = static_cast<int32_t>(config->hidden_size), .eps = static_cast<float>(config->rms_norm_eps)});
}

void Decoder::LayerLinear(const char* label, int64_t layer, LayerMatrix matrix, const std::byte* x, std::byte* y,
                          int32_t rows, kernels::LinearOutput output) const {
  const bool pooled = pool != nullptr && pool->Pools(layer, matrix);
  Linear(label, pooled ? pool->Acquire(layer, matrix) : weights.layers[layer].matrix(matrix), x, y, rows, output);
  if (pooled) pool->Release(layer, matrix);
}

void Decoder::Linear(const char* label, const kernels::PackedWeight& weight, const std::byte* x, std::byte* y, int32_t rows,
                     kernels::LinearOutput output) const {
  kernels::Linear(*stream, *kernels, label,
                  {.weight = weight, .x = x, .y = y, .x_stride = weight.k, .y_stride = weight.n, .rows = rows,
                   .output = output, .leaf_begin = 0, .leaf_end = weight.leaves.num_leaves,
                   .workspace = activations.linear});
}

}  // namespace forebay::model

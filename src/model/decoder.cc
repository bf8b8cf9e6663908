#include "model/decoder.h"

#include <algorithm>
#include <cmath>

#include "kernels/reduce.h"
#include "model/repeat_layers.h"
#include "model/ship.h"

namespace forebay::model {
namespace {

uint64_t LinearBytes(const ModelConfig& config, tensor::DType dtype, const StepCapacity& capacity, const Shard& shard) {
  const int64_t largest_k = std::max({config.hidden_size, shard.intermediate.size(), shard.heads.size() * config.head_dim});
  return kernels::LinearWorkspaceBytes(dtype, std::max(capacity.rows, capacity.gathered_rows), largest_k);
}

// The buffers in order: pairs of (member, bytes), so that the plan and the cut cannot disagree.
template <typename Visit>
void ForEachBuffer(const ModelConfig& config, tensor::DType dtype, const StepCapacity& capacity, const ReplicaCut& cut,
                   Activations* a, Visit visit) {
  const Shard shard = ShardOf(config, cut);
  const uint64_t t = tensor::SizeOf(dtype);
  const auto rows = static_cast<uint64_t>(capacity.rows);
  const auto logit_rows = static_cast<uint64_t>(cut.last_stage() ? capacity.logit_rows : 0);
  const auto hidden = static_cast<uint64_t>(config.hidden_size);
  const auto heads = static_cast<uint64_t>(shard.heads.size() * config.head_dim);
  const auto kv_heads = static_cast<uint64_t>(shard.kv_heads.size() * config.head_dim);
  visit(&a->residual, rows * hidden * t);
  visit(&a->normed, rows * hidden * t);
  visit(&a->qkv, rows * (heads + 2 * kv_heads) * sizeof(float));
  visit(&a->q, rows * heads * t);
  visit(&a->attention, rows * heads * t);
  const uint64_t ffn_rows = std::max(rows, static_cast<uint64_t>(capacity.gathered_rows));
  visit(&a->gated, ffn_rows * static_cast<uint64_t>(shard.intermediate.size()) * t);
  visit(&a->linear, LinearBytes(config, dtype, capacity, shard));
  visit(&a->head_input, logit_rows * hidden * t);
  visit(&a->logits, logit_rows * static_cast<uint64_t>(config.vocab_size) * sizeof(float));
  visit(&a->gathered, static_cast<uint64_t>(capacity.gathered_rows) * hidden * t);
  visit(&a->returned, static_cast<uint64_t>(capacity.returned_rows) * hidden * sizeof(float));
}

}  // namespace

uint64_t ActivationBytes(const ModelConfig& config, tensor::DType dtype, const StepCapacity& capacity, const ReplicaCut& cut) {
  Activations none;
  uint64_t sum = 0;
  ForEachBuffer(config, dtype, capacity, cut, &none, [&](auto*, uint64_t bytes) { sum += base::RoundUp(bytes, 64); });
  return sum;
}

Activations CutActivations(const ModelConfig& config, tensor::DType dtype, const StepCapacity& capacity,
                           device::RegionCutter* cutter, const ReplicaCut& cut) {
  Activations activations;
  ForEachBuffer(config, dtype, capacity, cut, &activations, [&](auto* member, uint64_t bytes) {
    *member = reinterpret_cast<std::remove_reference_t<decltype(*member)>>(cutter->Cut(base::RoundUp(bytes, 64)));
  });
  return activations;
}

uint64_t TensorStagingBytes(const ModelConfig& config, const StepCapacity& capacity, const ReplicaCut& cut) {
  if (cut.tp == 1) return 0;
  const Shard shard = ShardOf(config, cut);
  const auto planes = [&](const kernels::LeafBorders& borders, const Part& leaves) {
    return kernels::NumPlanes(borders.num_leaves, static_cast<int>(leaves.begin), static_cast<int>(leaves.end));
  };
  const int64_t most = std::max(planes(kernels::LeafBorders::ForOutput(config.num_heads, 1), shard.output_leaves),
                                planes(kernels::LeafBorders::ForDown(config.intermediate_size), shard.down_leaves));
  const int64_t logits = cut.last_stage() ? capacity.logit_rows * shard.vocab.size() : 0;
  const int64_t elements = std::max(most * capacity.rows * config.hidden_size, logits);
  return fabric::Exchange::StagingBytes(static_cast<uint64_t>(elements) * sizeof(float));
}

uint64_t StageStagingBytes(const ModelConfig& config, tensor::DType dtype, const StepCapacity& capacity, const ReplicaCut& cut) {
  if (cut.last_stage()) return 0;
  return fabric::Handover::StagingBytes(tensor::BytesOf(dtype, static_cast<uint64_t>(capacity.rows * config.hidden_size)));
}

void Decoder::Forward(const kernels::StepBatch& batch, const kernels::ContextSums& context, StepMode mode) const {
  const uint64_t residual_bytes = tensor::BytesOf(dtype, static_cast<uint64_t>(batch.num_rows * config->hidden_size));
  if (links.last_stage != nullptr) {
    links.last_stage->Receive(*stream, activations.residual, residual_bytes);
  } else {
    kernels::EmbedArgs embed{.dtype = dtype, .batch = batch, .table = weights.embedding, .packed = weights.head,
                             .out = activations.residual, .columns = static_cast<int32_t>(config->hidden_size)};
    kernels::Embed(*stream, *kernels, embed);
  }
  const bool pulls = pool != nullptr && (mode == StepMode::kLocal || ship->gathers());
  if (pulls) pool->BeginStep();
  StepKey key{.mode = mode, .row_bucket = batch.num_rows};
  const int64_t layers = weights.shard.layers.size();
  for (int64_t begin = 0, end = 0; begin < layers; begin = end) {
    key.layer_kind = KindOf(begin, mode);
    while (end < layers && KindOf(end, mode) == key.layer_kind) ++end;
    RepeatLayers(*stream, key, {begin, end}, [&](int64_t layer) {
      AttentionBlock(batch, layer, context);
      FeedForwardBlock(batch, layer, mode);
    });
  }
  if (pulls) pool->EndStep();
  if (links.next_stage != nullptr) links.next_stage->Send(*stream, activations.residual, residual_bytes);
}

void Decoder::Serve() const {
  for (int64_t layer = 0; layer < weights.shard.layers.size(); ++layer) {
    if (ship->gathers() && pool->Pools(layer, LayerMatrix::kGateUp)) ship->Meet(*stream);
    if (ship->Ships(layer)) ship->Run(*this, layer, weights.layers[layer], 0);
  }
}

int32_t Decoder::WindowOf(int64_t layer) const { return config->sliding_window[weights.shard.layers.begin + layer]; }

uint16_t Decoder::KindOf(int64_t layer, StepMode mode) const {
  const auto first = std::ranges::find(config->sliding_window, WindowOf(layer));
  const auto kind = static_cast<uint16_t>(first - config->sliding_window.begin());
  const bool remote = pool && (mode == StepMode::kShip ? pool->Pools(layer, LayerMatrix::kGateUp) : pool->Lacks(layer));
  return static_cast<uint16_t>(2 * kind + (remote ? 1 : 0));
}

void Decoder::AttentionBlock(const kernels::StepBatch& batch, int64_t layer, const kernels::ContextSums& context) const {
  const Shard& shard = weights.shard;
  const LayerWeights& w = weights.layers[layer];
  const auto heads = static_cast<int32_t>(shard.heads.size());
  const KvCache::Layer& cached = kv.layers[layer];
  const KvCache::Group& group = kv.groups[cached.group];
  kernels::StepBatch in_group = batch;
  in_group.block_tables = batch.group_tables[cached.group];
  Norm("attention_norm", activations.residual, w.attention_norm, nullptr, batch.num_rows, activations.normed);
  LayerLinear("qkv", layer, LayerMatrix::kQkv, activations.normed, reinterpret_cast<std::byte*>(activations.qkv),
              batch.num_rows, kernels::LinearOutput::kF32);
  kernels::RopeKv(*stream, *kernels,
                  {.batch = in_group, .layout = group.layout, .layer = cached.bases, .qkv = activations.qkv,
                   .q = activations.q, .q_norm = w.q_norm, .k_norm = w.k_norm,
                   .norm_eps = static_cast<float>(config->rms_norm_eps), .rope_cos = weights.rope_cos,
                   .rope_sin = weights.rope_sin, .heads = heads, .prefill_rows = context.prefill_rows,
                   .digests = group.digests, .layer_index = static_cast<int32_t>(shard.layers.begin + layer),
                   .first_kv_head = static_cast<int32_t>(shard.kv_heads.begin), .digested_elsewhere = shard.kv_copies,
                   .first_layer = cached.first});
  kernels::Attention(*stream, *kernels,
                     {.batch = in_group, .layout = group.layout, .layer = cached.bases, .q = activations.q,
                      .out = activations.attention, .heads = heads,
                      .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(config->head_dim))),
                      .sliding_window = WindowOf(layer), .context = context});
  AddLinear("output", layer, LayerMatrix::kOutput, activations.attention, batch.num_rows);
}

void Decoder::FeedForwardBlock(const kernels::StepBatch& batch, int64_t layer, StepMode mode) const {
  const LayerWeights& w = weights.layers[layer];
  if (mode == StepMode::kShip && ship->Ships(layer)) {
    Norm("ffn_norm", activations.residual, w.ffn_norm, nullptr, batch.num_rows, ship->input());
    ship->Run(*this, layer, w, batch.num_rows);
    return;
  }
  if (mode == StepMode::kShip && ship->gathers() && pool->Pools(layer, LayerMatrix::kGateUp)) ship->Meet(*stream);
  Norm("ffn_norm", activations.residual, w.ffn_norm, nullptr, batch.num_rows, activations.normed);
  LayerLinear("gate_up", layer, LayerMatrix::kGateUp, activations.normed, activations.gated, batch.num_rows,
              kernels::LinearOutput::kSiluMul);
  AddLinear("down", layer, LayerMatrix::kDown, activations.gated, batch.num_rows);
}

void Decoder::Logits(const kernels::StepBatch& batch, int32_t first, int32_t count) const {
  Norm("final_norm", activations.residual, weights.final_norm, batch.logit_rows + first, count, activations.head_input);
  RunHead(count);
}

// Each rank has whole chunks of the vocabulary, and gets the others' logits.
void Decoder::RunHead(int32_t count) const {
  fabric::Exchange* const exchange = links.tensor;
  auto* const all = reinterpret_cast<std::byte*>(activations.logits);
  if (weights.head.n > 0) {
    Linear("head", weights.head, activations.head_input, exchange == nullptr ? all : exchange->mine(), count,
           kernels::LinearOutput::kF32);
  }
  if (exchange == nullptr) return;
  fabric::GatherBlock blocks[fabric::Exchange::kMaxRanks];
  for (int rank = 0; rank < exchange->num_ranks(); ++rank) {
    const Part vocab = VocabOf(*config, exchange->num_ranks(), rank);
    blocks[rank] = {.rows = count, .offset = vocab.begin * sizeof(float), .bytes = vocab.size() * sizeof(float)};
  }
  fabric::AllGather(*stream, *exchange, "logits_gather", std::span(blocks, exchange->num_ranks()), all,
                    static_cast<uint64_t>(config->vocab_size) * sizeof(float));
}

void Decoder::AddLinear(const char* label, int64_t layer, LayerMatrix matrix, const std::byte* x, int32_t rows) const {
  fabric::Exchange* const exchange = links.tensor;
  if (exchange == nullptr) {
    LayerLinear(label, layer, matrix, x, activations.residual, rows, kernels::LinearOutput::kResidual);
    return;
  }
  LayerLinear(label, layer, matrix, x, exchange->mine(), rows, kernels::LinearOutput::kPartial);
  exchange->Meet(*stream);
  const kernels::PackedWeight& weight = weights.layers[layer].matrix(matrix);
  kernels::ReduceArgs reduce{.dtype = dtype, .num_leaves = weight.leaves.tree_leaves(), .bias = weight.bias,
                             .y = activations.residual, .stride = weight.n, .y_stride = weight.n, .rows = rows, .n = weight.n,
                             .ranks = exchange->num_ranks(), .wire_bytes = wire_bytes};
  for (int rank = 0; rank < exchange->num_ranks(); ++rank) {
    const Part leaves = base::EvenPart(reduce.num_leaves, exchange->num_ranks(), rank);
    kernels::AddPlanes(static_cast<int>(leaves.begin), static_cast<int>(leaves.end),
                       reinterpret_cast<const float*>(exchange->part(rank)), &reduce);
  }
  kernels::ReducePlanes(*stream, "all_reduce", reduce);
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

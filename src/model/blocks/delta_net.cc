// Gated delta-net layers (arXiv 2412.06464): a short convolution over q, k and v, the recurrence,
// and a gated norm of its output, with a state of the choice in place of a KV cache.
#include <cmath>

#include "model/blocks/kinds.h"

namespace forebay::model {
namespace {

constexpr Role kInputs{"state_inputs"}, kConv{"conv"}, kALog{"a_log"}, kDtBias{"dt_bias"},
    kStateNorm{"state_norm"};

bool HasDeltaNet(const ModelConfig& config, int64_t layer) { return config.HasState(layer); }

// Rows of the inputs' tensors in the order of the packed weight: heads of q, of k, of v, of z, then
// a value a value head of b and of a.
std::vector<weights::PlannedRows> InputRows(const DeltaNetConfig& net, const StateNames& names) {
  const int64_t k = net.key_dim, v = net.value_dim, each = net.value_heads / net.key_heads;
  std::vector<weights::PlannedRows> rows;
  if (names.qkv != names.z) {
    for (int64_t head = 0; head < 2 * net.key_heads; ++head) rows.push_back({0, head * k, k});
    for (int64_t head = 0; head < net.value_heads; ++head)
      rows.push_back({0, 2 * net.key_heads * k + head * v, v});
    for (int64_t head = 0; head < net.value_heads; ++head) rows.push_back({1, head * v, v});
    rows.push_back({2, 0, net.value_heads});
    rows.push_back({3, 0, net.value_heads});
    return rows;
  }
  // By key head: q, k, its value heads' v, their z; their b, their a.
  const int64_t group = 2 * k + 2 * each * v;
  for (int64_t part = 0; part < 2; ++part) {
    for (int64_t head = 0; head < net.key_heads; ++head)
      rows.push_back({0, head * group + part * k, k});
  }
  for (int64_t part = 0; part < 2; ++part) {
    for (int64_t head = 0; head < net.value_heads; ++head) {
      rows.push_back({0, head / each * group + 2 * k + (part * each + head % each) * v, v});
    }
  }
  for (int64_t part = 0; part < 2; ++part) {
    for (int64_t head = 0; head < net.key_heads; ++head)
      rows.push_back({1, (2 * head + part) * each, each});
  }
  return rows;
}

void PlanDeltaNet(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  const DeltaNetConfig& net = *config.delta_net;
  const StateNames& state = names.state;
  site.AddNorms(kAttentionNorm, names.attention_norm, kAttentionPostNorm, names.attention_post_norm,
                layer);
  const int64_t channels = net.channels(), values = net.value_heads * net.value_dim;
  layer->vectors.push_back({.role = kConv,
                            .tensor = state.conv,
                            .size = channels * kernels::kConvTaps,
                            .taps = kernels::kConvTaps});
  layer->vectors.push_back(
      {.role = kALog, .tensor = state.a_log, .size = net.value_heads, .exact = true});
  layer->vectors.push_back(
      {.role = kDtBias, .tensor = state.dt_bias, .size = net.value_heads, .exact = true});
  layer->vectors.push_back({.role = kStateNorm, .tensor = state.norm, .size = net.value_dim});
  const bool fused = state.qkv == state.z;
  layer->matrices.push_back(
      {kInputs, Block::kAttention, LeafRule::kEven,
       weights::PlanRows(site.Label(kInputs), dtype,
                         fused ? std::vector{state.qkv, state.b}
                               : std::vector{state.qkv, state.z, state.b, state.a},
                         fused ? std::vector{channels + values, 2 * net.value_heads}
                               : std::vector{channels, values, net.value_heads, net.value_heads},
                         InputRows(net, state), config.hidden_size)});
  layer->matrices.push_back(
      {kOutput, Block::kAttention, LeafRule::kEven,
       weights::PlanMatrix(site.Label(kOutput), dtype, state.out, "", config.hidden_size, values,
                           kernels::LeafBorders::ForOutput(net.value_heads, net.value_dim))});
}

struct DeltaNetBuffers {
  float* inputs = nullptr;       // [rows, DeltaNetConfig::inputs()]
  std::byte* outputs = nullptr;  // [rows, value_heads * value_dim] T
};
uint64_t CutDeltaNetBuffers(const DeltaNetConfig& net, tensor::DType dtype, int64_t step_rows,
                            std::byte* at, DeltaNetBuffers* buffers) {
  const auto rows = static_cast<uint64_t>(step_rows);
  BufferCutter cutter(at);
  cutter.Cut(&buffers->inputs, rows * static_cast<uint64_t>(net.inputs()) * sizeof(float));
  cutter.Cut(&buffers->outputs,
             rows * static_cast<uint64_t>(net.value_heads * net.value_dim) * tensor::SizeOf(dtype));
  return cutter.bytes();
}

BlockWorkspace DeltaNetWorkspace(const ModelConfig& config, const Shard&, tensor::DType dtype,
                                 int64_t rows, const StepCapacity&) {
  DeltaNetBuffers none;
  const DeltaNetConfig& net = *config.delta_net;
  return {CutDeltaNetBuffers(net, dtype, rows, nullptr, &none), net.value_heads * net.value_dim};
}

void RunDeltaNet(const BlockContext& context, const kernels::StepBatch& batch,
                 const kernels::ContextSums&, int64_t layer) {
  const ModelConfig& config = *context.config;
  const DeltaNetConfig& net = *config.delta_net;
  const LayerWeights& w = context.weights.layers[layer];
  const kv::StateView::Layer& state = context.states.layers[static_cast<size_t>(layer)];
  const int32_t rows = batch.num_rows;
  DeltaNetBuffers b;
  CutDeltaNetBuffers(net, context.dtype, rows, context.activations.attention, &b);
  const std::byte* const x = BlockInput(context, layer, kAttentionNorm, rows);
  LayerLinear(context, layer, kInputs, x, reinterpret_cast<std::byte*>(b.inputs), rows,
              kernels::LinearOutput::kF32);
  const int64_t channels = net.channels(), values = net.value_heads * net.value_dim,
                keys = 2 * net.key_heads * net.key_dim;
  kernels::ShortConv(*context.stream, *context.kernels,
                     {.batch = batch,
                      .x = b.inputs,
                      .stride = net.inputs(),
                      .channels = static_cast<int32_t>(channels),
                      .weight = w.vector(kConv),
                      .tails = state.tails});
  kernels::DeltaNet(*context.stream, *context.kernels,
                    {.batch = batch,
                     .x = b.inputs,
                     .stride = net.inputs(),
                     .b_at = static_cast<int32_t>(channels + values),
                     .a_at = static_cast<int32_t>(channels + values + net.value_heads),
                     .key_heads = static_cast<int32_t>(net.key_heads),
                     .value_heads = static_cast<int32_t>(net.value_heads),
                     .key_dim = static_cast<int32_t>(net.key_dim),
                     .value_dim = static_cast<int32_t>(net.value_dim),
                     .a_log = w.vector(kALog),
                     .dt_bias = w.vector(kDtBias),
                     .matrices = state.matrices});
  // Digests lie beside the blocks of the first KV group.
  const int64_t index = context.weights.shard.layers.begin + layer;
  kernels::GatedNorm(*context.stream, *context.kernels,
                     {.batch = InGroup(batch, 0),
                      .dtype = context.dtype,
                      .x = b.inputs + keys,
                      .z = b.inputs + channels,
                      .stride = net.inputs(),
                      .heads = static_cast<int32_t>(net.value_heads),
                      .dim = static_cast<int32_t>(net.value_dim),
                      .weight = w.vector(kStateNorm),
                      .eps = static_cast<float>(config.rms_norm_eps),
                      .out = b.outputs,
                      .digests = context.kv.groups[0].digests,
                      .layer_index = static_cast<int32_t>(index),
                      .first_layer = layer == 0});
  AddLinear(context, layer, kOutput, kAttentionPostNorm, b.outputs, rows);
}

}  // namespace

extern const AttentionKind kDeltaNet;
const AttentionKind kDeltaNet{"delta_net", &HasDeltaNet, &PlanDeltaNet, &DeltaNetWorkspace,
                              &RunDeltaNet};

}  // namespace forebay::model

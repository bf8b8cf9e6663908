// Gated delta-net layers (arXiv 2412.06464): a short convolution over q, k and v, the recurrence,
// and a gated norm of its output, with a state of the choice in place of a KV cache.
#include <algorithm>

#include "model/blocks/kinds.h"

namespace forebay::model {
namespace {

constexpr Role kInputs{"state_inputs"}, kConv{"conv"}, kALog{"a_log"}, kDtBias{"dt_bias"},
    kStateNorm{"state_norm"};

bool HasDeltaNet(const ModelConfig& config, int64_t layer) { return config.HasState(layer); }

// Rows of the inputs' tensors for a block's heads, in the order of the packed weight: heads of q,
// of k, of v, of z, then a value a value head of b and of a.
void AddInputRows(const DeltaNetConfig& net, const StateNames& names, const BlockHeads& block,
                  std::vector<weights::PlannedRows>* rows) {
  const int64_t k = net.key_dim, v = net.value_dim, each = net.value_heads / net.key_heads;
  const auto& [values, keys] = block;
  if (names.qkv != names.z) {
    for (int64_t part = 0; part < 2; ++part) {
      for (int64_t head = keys.begin; head < keys.end; ++head)
        rows->push_back({0, (part * net.key_heads + head) * k, k});
    }
    for (int64_t head = values.begin; head < values.end; ++head)
      rows->push_back({0, 2 * net.key_heads * k + head * v, v});
    for (int64_t head = values.begin; head < values.end; ++head) rows->push_back({1, head * v, v});
  } else {  // by key head: q, k, its value heads' v, their z
    const int64_t group = 2 * k + 2 * each * v;
    for (int64_t part = 0; part < 2; ++part) {
      for (int64_t head = keys.begin; head < keys.end; ++head)
        rows->push_back({0, head * group + part * k, k});
    }
    for (int64_t part = 0; part < 2; ++part) {
      for (int64_t head = values.begin; head < values.end; ++head)
        rows->push_back({0, head / each * group + 2 * k + (part * each + head % each) * v, v});
    }
  }
  const int32_t next_tensor = names.qkv != names.z ? 2 : 1;
  if (names.b != names.a) {
    rows->push_back({next_tensor, values.begin, values.size()});
    rows->push_back({next_tensor + 1, values.begin, values.size()});
    return;
  }
  // By key head: its value heads' b, their a.
  for (int64_t part = 0; part < 2; ++part) {
    for (int64_t head = values.begin, next = 0; head < values.end; head = next) {
      next = std::min(values.end, (head / each + 1) * each);
      rows->push_back({next_tensor, (2 * (head / each) + part) * each + head % each, next - head});
    }
  }
}

// The channels of the convolution that a block's heads have, of q, k and v.
std::vector<Part> ChannelsOf(const DeltaNetConfig& net, const BlockHeads& block) {
  const int64_t keys = net.key_heads * net.key_dim;
  const Part q{block.kv_heads.begin * net.key_dim, block.kv_heads.end * net.key_dim};
  return {
      q,
      {keys + q.begin, keys + q.end},
      {2 * keys + block.heads.begin * net.value_dim, 2 * keys + block.heads.end * net.value_dim}};
}

void PlanDeltaNet(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  const DeltaNetConfig& net = *config.delta_net;
  const StateNames& state = names.state;
  site.AddNorms(kAttentionNorm, names.attention_norm, kAttentionPostNorm, names.attention_post_norm,
                layer);
  const int64_t channels = net.channels(), values = net.value_heads * net.value_dim;
  layer->vectors.push_back(
      {.role = kConv,
       .tensor = state.conv,
       .size = StateShapeOf(config, shard.own_state_heads).channels() * kernels::kConvTaps,
       .taps = kernels::kConvTaps,
       .kept = ChannelsOf(net, shard.own_state_heads),
       .stored = channels});
  layer->vectors.push_back(
      {.role = kALog, .tensor = state.a_log, .size = net.value_heads, .exact = true});
  layer->vectors.push_back(
      {.role = kDtBias, .tensor = state.dt_bias, .size = net.value_heads, .exact = true});
  layer->vectors.push_back({.role = kStateNorm, .tensor = state.norm, .size = net.value_dim});
  // Where rows are cut, the inputs of each block that takes some lie together.
  std::vector<weights::PlannedRows> rows;
  for (const BlockHeads& block : shard.run_state_heads) AddInputRows(net, state, block, &rows);
  std::vector<std::string> tensors = {state.qkv};
  std::vector<int64_t> tensor_rows = {channels};
  const auto add = [&](const std::string& name, const std::string& before, int64_t count) {
    if (name != before) {
      tensors.push_back(name);
      tensor_rows.push_back(0);
    }
    tensor_rows.back() += count;
  };
  add(state.z, state.qkv, values);
  add(state.b, "", net.value_heads);
  add(state.a, state.b, net.value_heads);
  layer->matrices.push_back({kInputs, Block::kAttention, LeafRule::kEven,
                             weights::PlanRows(site.Label(kInputs), dtype, tensors, tensor_rows,
                                               rows, config.hidden_size)});
  weights::MatrixPlan output =
      weights::PlanMatrix(site.Label(kOutput), dtype, state.out, "", config.hidden_size, values,
                          kernels::LeafBorders::ForOutput(net.value_heads, net.value_dim));
  output.KeepLeaves(shard.state_leaves);
  layer->matrices.push_back({kOutput, Block::kAttention, LeafRule::kEven, std::move(output)});
}

// The value heads of all blocks whose part the linear layers have.
int64_t RunValueHeads(const Shard& shard) {
  int64_t sum = 0;
  for (const BlockHeads& block : shard.run_state_heads) sum += block.heads.size();
  return sum;
}

struct DeltaNetBuffers {
  float* inputs = nullptr;       // [rows, DeltaNetShape::inputs()] of the block's heads
  std::byte* outputs = nullptr;  // [own rows, value heads of the run * value_dim] T
};
uint64_t CutDeltaNetBuffers(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                            int64_t step_rows, std::byte* at, DeltaNetBuffers* buffers) {
  const DeltaNetShape net = StateShapeOf(config, shard.own_state_heads);
  BufferCutter cutter(at);
  cutter.Cut(&buffers->inputs, static_cast<uint64_t>(step_rows * net.inputs()) * sizeof(float));
  cutter.Cut(&buffers->outputs,
             tensor::BytesOf(dtype, static_cast<uint64_t>(MostOwnRows(step_rows, shard.mode) *
                                                          RunValueHeads(shard) * net.value_dim)));
  return cutter.bytes();
}

BlockWorkspace DeltaNetWorkspace(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                                 int64_t rows, const StepCapacity&) {
  DeltaNetBuffers none;
  BlockWorkspace workspace{CutDeltaNetBuffers(config, shard, dtype, rows, nullptr, &none),
                           RunValueHeads(shard) * config.delta_net->value_dim};
  if (shard.mode.sp == 1) return workspace;
  int64_t inputs = 0;
  for (const BlockHeads& block : shard.run_state_heads)
    inputs += StateShapeOf(config, block).inputs();
  const DeltaNetShape own = StateShapeOf(config, shard.own_state_heads);
  workspace.meeting_bytes = std::max(
      static_cast<uint64_t>(MostOwnRows(rows, shard.mode) * inputs) * sizeof(float),
      tensor::BytesOf(dtype, static_cast<uint64_t>(rows * own.value_heads * own.value_dim)));
  return workspace;
}

// Where rows are cut over ranks: each has projected its own rows for all blocks of the run, and
// takes those of its own block's heads of all rows. REQUIRES: they are this rank's part of the
// meeting.
void TakeInputs(const BlockContext& context, int64_t rows, const DeltaNetShape& net,
                float* inputs) {
  fabric::Exchange& exchange = *context.links.sequence;
  const Shard& shard = context.weights.shard;
  int64_t run = 0, before = 0;  // columns
  for (int i = 0; i < shard.mode.sp; ++i) {
    if (i == exchange.my_index()) before = run;
    run += StateShapeOf(*context.config, shard.run_state_heads[static_cast<size_t>(i)]).inputs();
  }
  const auto bytes = [](int64_t floats) { return static_cast<uint64_t>(floats) * sizeof(float); };
  fabric::GatherBlock blocks[fabric::Exchange::kMaxRanks];
  for (int i = 0; i < shard.mode.sp; ++i) {
    const Part theirs = RowsOf(rows, shard.mode, i);
    blocks[i] = {.row = theirs.begin,
                 .rows = theirs.size(),
                 .bytes = bytes(net.inputs()),
                 .from = bytes(before),
                 .stride = bytes(run)};
  }
  const std::span all(blocks, static_cast<size_t>(shard.mode.sp));
  fabric::AllToAll(*context.stream, exchange, "all_to_all_state_inputs", all,
                   reinterpret_cast<std::byte*>(inputs), bytes(net.inputs()));
  CountMeeting(context, &ExchangeCounters::bytes_all_to_all,
               fabric::BytesFromOthers(exchange, all));
}

// And back: what all heads of the run give of the rank's own rows.
void TakeOutputs(const BlockContext& context, int64_t rows, std::byte* outputs) {
  fabric::Exchange& exchange = *context.links.sequence;
  const Shard& shard = context.weights.shard;
  const Part own = RowsOf(rows, shard.mode, exchange.my_index());
  const auto bytes = [&](int64_t heads) {
    return tensor::BytesOf(context.dtype,
                           static_cast<uint64_t>(heads * context.config->delta_net->value_dim));
  };
  fabric::GatherBlock blocks[fabric::Exchange::kMaxRanks];
  int64_t before = 0;
  for (int i = 0; i < shard.mode.sp; ++i) {
    const int64_t heads = shard.run_state_heads[static_cast<size_t>(i)].heads.size();
    blocks[i] = {.rows = own.size(),
                 .offset = bytes(before),
                 .bytes = bytes(heads),
                 .from = static_cast<uint64_t>(own.begin) * bytes(heads)};
    before += heads;
  }
  const std::span all(blocks, static_cast<size_t>(shard.mode.sp));
  fabric::AllToAll(*context.stream, exchange, "all_to_all_state_outputs", all, outputs,
                   bytes(before));
  CountMeeting(context, &ExchangeCounters::bytes_all_to_all,
               fabric::BytesFromOthers(exchange, all));
}

void RunDeltaNet(const BlockContext& context, const kernels::StepBatch& batch,
                 const kernels::ContextSums&, int64_t layer) {
  const Shard& shard = context.weights.shard;
  const BlockHeads& heads = shard.own_state_heads;
  const DeltaNetShape net = StateShapeOf(*context.config, heads);
  const LayerWeights& w = context.weights.layers[layer];
  const kv::StateView::Layer& state = context.states.layers[static_cast<size_t>(layer)];
  const bool cut = context.links.sequence != nullptr;
  const int32_t rows = batch.num_rows, own_rows = batch.own_end - batch.own_begin;
  DeltaNetBuffers b;
  CutDeltaNetBuffers(*context.config, shard, context.dtype, rows, context.activations.attention,
                     &b);
  const RowsIn x = BlockInput(context, layer, kAttentionNorm, own_rows);
  LayerLinear(context, layer, kInputs, x,
              cut ? context.links.sequence->mine() : reinterpret_cast<std::byte*>(b.inputs),
              own_rows, kernels::LinearOutput::kF32);
  if (cut) TakeInputs(context, rows, net, b.inputs);
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
                     .a_log = w.vector(kALog) + heads.heads.begin,
                     .dt_bias = w.vector(kDtBias) + heads.heads.begin,
                     .matrices = state.matrices});
  // Digests lie beside the blocks of the first KV group.
  const int64_t index = shard.layers.begin + layer;
  kernels::GatedNorm(*context.stream, *context.kernels,
                     {.batch = InGroup(batch, 0),
                      .dtype = context.dtype,
                      .x = b.inputs + keys,
                      .z = b.inputs + channels,
                      .stride = net.inputs(),
                      .heads = static_cast<int32_t>(net.value_heads),
                      .dim = static_cast<int32_t>(net.value_dim),
                      .first_head = static_cast<int32_t>(heads.heads.begin),
                      .weight = w.vector(kStateNorm),
                      .eps = static_cast<float>(context.config->rms_norm_eps),
                      .out = cut ? context.links.sequence->mine() : b.outputs,
                      .digests = context.kv.groups[0].digests,
                      .layer_index = static_cast<int32_t>(index),
                      .first_layer = layer == 0});
  if (cut) TakeOutputs(context, rows, b.outputs);
  AddLinear(context, layer, kOutput, kAttentionPostNorm, b.outputs, own_rows);
}

}  // namespace

extern const AttentionKind kDeltaNet;
const AttentionKind kDeltaNet{"delta_net", &HasDeltaNet, &PlanDeltaNet, &DeltaNetWorkspace,
                              &RunDeltaNet};

}  // namespace forebay::model

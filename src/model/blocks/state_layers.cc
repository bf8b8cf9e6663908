// Layers that keep a state of the choice in place of a KV cache: projections, what the kind makes
// of them (model/blocks/state_rules.h), and the output's projection.
#include <algorithm>

#include "model/blocks/state_rules.h"

namespace forebay::model {
namespace {

constexpr Role kInputs{"state_inputs"};

bool KeepsState(const ModelConfig& config, int64_t layer) { return config.HasState(layer); }

void PlanState(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  const StateConfig& net = *config.states;
  const StateRule& rule = RuleOf(net.kind);
  site.AddNorms(kAttentionNorm, names.attention_norm, kAttentionPostNorm, names.attention_post_norm,
                layer);
  const int64_t own_channels = StateShapeOf(config, shard.own_state_heads).channels();
  layer->vectors.push_back({.role = kStateConv,
                            .tensor = names.state.conv,
                            .size = own_channels * net.taps,
                            .taps = net.taps,
                            .kept = rule.channels(net, shard.own_state_heads),
                            .stored = net.channels()});
  if (net.conv_bias) {
    layer->vectors.push_back({.role = kStateConvBias,
                              .tensor = names.state.conv_bias,
                              .size = own_channels,
                              .kept = rule.channels(net, shard.own_state_heads),
                              .stored = net.channels()});
  }
  rule.add_vectors(site, layer);
  // Where rows are cut, the inputs of each block that takes some lie together.
  std::vector<weights::PlannedRows> rows;
  for (const BlockHeads& block : shard.run_state_heads)
    rule.add_rows(net, names.state, block, &rows);
  std::vector<std::string> tensors;
  std::vector<int64_t> tensor_rows;
  for (const auto& [name, count] : rule.tensors(net, names.state)) {
    if (tensors.empty() || tensors.back() != name) {
      tensors.push_back(name);
      tensor_rows.push_back(0);
    }
    tensor_rows.back() += count;
  }
  layer->matrices.push_back({kInputs, Block::kAttention, LeafRule::kEven,
                             weights::PlanRows(site.Label(kInputs), dtype, tensors, tensor_rows,
                                               rows, config.hidden_size)});
  weights::MatrixPlan output = weights::PlanMatrix(
      site.Label(kOutput), dtype, names.state.out, "", config.hidden_size, net.values(),
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

struct StateBuffers {
  float* inputs = nullptr;       // [rows, StateShape::inputs()] of the block's heads
  std::byte* outputs = nullptr;  // [own rows, value heads of the run * value_dim] T
};
uint64_t CutStateBuffers(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                         int64_t step_rows, std::byte* at, StateBuffers* buffers) {
  const StateShape net = StateShapeOf(config, shard.own_state_heads);
  BufferCutter cutter(at);
  cutter.Cut(&buffers->inputs, static_cast<uint64_t>(step_rows * net.inputs()) * sizeof(float));
  cutter.Cut(&buffers->outputs,
             tensor::BytesOf(dtype, static_cast<uint64_t>(MostOwnRows(step_rows, shard.mode) *
                                                          RunValueHeads(shard) * net.value_dim)));
  return cutter.bytes();
}

BlockWorkspace StateWorkspace(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                              int64_t rows, const StepCapacity&) {
  StateBuffers none;
  BlockWorkspace workspace{CutStateBuffers(config, shard, dtype, rows, nullptr, &none),
                           RunValueHeads(shard) * config.states->value_dim};
  if (shard.mode.sp == 1) return workspace;
  int64_t inputs = 0;
  for (const BlockHeads& block : shard.run_state_heads)
    inputs += StateShapeOf(config, block).inputs();
  const StateShape own = StateShapeOf(config, shard.own_state_heads);
  workspace.meeting_bytes = std::max(
      static_cast<uint64_t>(MostOwnRows(rows, shard.mode) * inputs) * sizeof(float),
      tensor::BytesOf(dtype, static_cast<uint64_t>(rows * own.value_heads * own.value_dim)));
  return workspace;
}

// Where rows are cut over ranks: each has projected its own rows for all blocks of the run, and
// takes those of its own block's heads of all rows. REQUIRES: they are this rank's part of the
// meeting.
void TakeInputs(const BlockContext& context, int64_t rows, const StateShape& net, float* inputs) {
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
                           static_cast<uint64_t>(heads * context.config->states->value_dim));
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

void RunState(const BlockContext& context, const kernels::StepBatch& batch,
              const kernels::ContextSums&, int64_t layer) {
  const Shard& shard = context.weights.shard;
  const BlockHeads& heads = shard.own_state_heads;
  const StateShape net = StateShapeOf(*context.config, heads);
  const bool cut = context.links.sequence != nullptr;
  const int32_t rows = batch.num_rows, own_rows = batch.own_end - batch.own_begin;
  StateBuffers b;
  CutStateBuffers(*context.config, shard, context.dtype, rows, context.activations.attention, &b);
  const RowsIn x = BlockInput(context, layer, kAttentionNorm, own_rows);
  LayerLinear(context, layer, kInputs, x,
              cut ? context.links.sequence->mine() : reinterpret_cast<std::byte*>(b.inputs),
              own_rows, kernels::LinearOutput::kF32);
  if (cut) TakeInputs(context, rows, net, b.inputs);
  // Digests lie beside the blocks of the first KV group.
  RuleOf(net.kind).pass({.context = context,
                         .batch = batch,
                         .weights = context.weights.layers[layer],
                         .config = *context.config->states,
                         .shape = net,
                         .heads = heads,
                         .state = context.states.layers[static_cast<size_t>(layer)],
                         .inputs = b.inputs,
                         .norm = {.batch = InGroup(batch, 0),
                                  .dtype = context.dtype,
                                  .stride = net.inputs(),
                                  .heads = static_cast<int32_t>(net.value_heads),
                                  .dim = static_cast<int32_t>(net.value_dim),
                                  .first_head = static_cast<int32_t>(heads.heads.begin),
                                  .eps = static_cast<float>(context.config->rms_norm_eps),
                                  .out = cut ? context.links.sequence->mine() : b.outputs,
                                  .digests = context.kv.groups[0].digests,
                                  .layer_index = static_cast<int32_t>(shard.layers.begin + layer),
                                  .first_layer = layer == context.first_attention}});
  if (cut) TakeOutputs(context, rows, b.outputs);
  AddLinear(context, layer, kOutput, kAttentionPostNorm, b.outputs, own_rows);
}

}  // namespace

kernels::ShortConvArgs StatePass::Conv() const {
  return {.batch = batch,
          .x = inputs,
          .stride = shape.inputs(),
          .channels = static_cast<int32_t>(shape.channels()),
          .taps = static_cast<int32_t>(shape.taps),
          .weight = weights.vector(kStateConv),
          .bias = weights.vector(kStateConvBias),
          .tails = state.tails};
}

void AddHeadNumbers(const LayerSite& site, const Role& role, const std::string& name,
                    LayerPlan* layer) {
  layer->vectors.push_back(
      {.role = role, .tensor = name, .size = site.config.states->value_heads, .exact = true});
}

void AddHeadRows(int32_t tensor, int64_t first, const Part& heads, int64_t dim,
                 std::vector<weights::PlannedRows>* rows) {
  for (int64_t head = heads.begin; head < heads.end; ++head)
    rows->push_back({tensor, first + head * dim, dim});
}

const StateRule& RuleOf(StateKind kind) {
  switch (kind) {
    case StateKind::kDeltaNet: break;
    case StateKind::kMamba2: return kMamba2Rule;
    case StateKind::kShortConv: return kShortConvRule;
  }
  return kDeltaNetRule;
}

extern const AttentionKind kStateLayer;
const AttentionKind kStateLayer{"state", &KeepsState, &PlanState, &StateWorkspace, &RunState};

}  // namespace forebay::model

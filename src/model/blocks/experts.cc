// A mixture of experts: each row goes through the few experts that its router chooses, and through
// the shared one where the model has it.
#include "model/blocks/experts.h"

#include <cmath>
#include <optional>

#include "base/units.h"
#include "device/cuda/launch_context.h"
#include "kernels/cuda/pair/params.h"
#include "model/blocks/dense_ffn.h"
#include "model/blocks/kinds.h"

namespace forebay::model {
namespace {

constexpr Role kRouter{"router"}, kSelectionBias{"selection_bias"}, kSharedGateUp{"shared_gate_up"},
    kSharedDown{"shared_down"}, kSharedGate{"shared_gate"}, kRouterNorm{"router_norm"},
    kExpertScales{"expert_scales"}, kExpertsNorm{"experts_norm"},
    kExpertsPostNorm{"experts_post_norm"}, kDensePostNorm{"dense_post_norm"};

bool HasExperts(const ModelConfig& config, int64_t layer) {
  return config.HasExperts(layer) && !config.moe->beside_dense;
}
bool HasExpertsBesideDense(const ModelConfig& config, int64_t layer) {
  return config.HasExperts(layer) && config.moe->beside_dense;
}

// A matrix and its bias.
struct MatrixNames {
  std::string weight, bias;
};
// gate and up, or where blocks have no gate up alone.
weights::MatrixPlan PlanUp(const LayerSite& site, const Role& role, const MatrixNames& gate,
                           const MatrixNames& up, int64_t width) {
  const int64_t hidden = site.config.hidden_size;
  if (site.config.gated) {
    return weights::PlanGateUp(site.Label(role), site.dtype, gate.weight, up.weight, gate.bias,
                               up.bias, width, hidden);
  }
  return weights::PlanMatrix(site.Label(role), site.dtype, up.weight, up.bias, width, hidden,
                             kernels::LeafBorders::Single(hidden));
}

// Each matrix of an expert is one run of tiles, and K of it one leaf.
void PlanExpertMatrices(const LayerSite& site, LayerPlan* layer) {
  const MoeConfig& moe = *site.config.moe;
  const ExpertNames& names = site.names.experts;
  const int64_t hidden = site.config.hidden_size;
  const std::string prefix = names.prefix + "{}.";
  const auto add = [&](const Role& role, weights::MatrixPlan plan) {
    plan.first_expert = static_cast<int32_t>(site.shard.experts.begin);
    plan.num_experts = static_cast<int32_t>(site.shard.experts.size());
    layer->matrices.push_back({role, Block::kFfn, LeafRule::kOwn, std::move(plan)});
  };
  const auto bias = [&](const std::string& name) { return name.empty() ? "" : prefix + name; };
  add(kExpertsGateUp, PlanUp(site, kExpertsGateUp, {prefix + names.gate, bias(names.gate_bias)},
                             {prefix + names.up, bias(names.up_bias)}, moe.intermediate_size));
  add(kExpertsDown, weights::PlanMatrix(site.Label(kExpertsDown), site.dtype, prefix + names.down,
                                        bias(names.down_bias), hidden, moe.intermediate_size,
                                        kernels::LeafBorders::Single(moe.intermediate_size)));
}

void AddRouter(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  layer->matrices.push_back(
      {kRouter, Block::kFfn, LeafRule::kEven,
       weights::Expanded(weights::PlanMatrix(site.Label(kRouter), dtype, names.experts.router,
                                             names.experts.router_bias, config.moe->num_experts,
                                             config.hidden_size,
                                             kernels::LeafBorders::Single(config.hidden_size)))});
}

void PlanExperts(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  const MoeConfig& moe = *config.moe;
  site.AddNorm(kFfnNorm, names.ffn_norm, config.hidden_size, layer);
  if (moe.selection_bias) {
    layer->vectors.push_back({kSelectionBias, names.experts.selection_bias, moe.num_experts, true});
  }
  AddRouter(site, layer);
  if (const int64_t width = moe.SharedWidth(); width > 0) {
    layer->matrices.push_back({kSharedGateUp, Block::kFfn, LeafRule::kReader,
                               PlanUp(site, kSharedGateUp, {names.experts.shared_gate, ""},
                                      {names.experts.shared_up, ""}, width)});
    layer->matrices.push_back(
        {kSharedDown, Block::kFfn, LeafRule::kOwn,
         weights::PlanMatrix(site.Label(kSharedDown), dtype, names.experts.shared_down, "",
                             config.hidden_size, width, kernels::LeafBorders::ForDown(width))});
  }
  if (moe.shared_gate) {
    layer->matrices.push_back(
        {kSharedGate, Block::kFfn, LeafRule::kEven,
         weights::Expanded(weights::PlanMatrix(
             site.Label(kSharedGate), dtype, names.experts.shared_sigmoid, "", 1,
             config.hidden_size, kernels::LeafBorders::Single(config.hidden_size)))});
  }
  PlanExpertMatrices(site, layer);
}

void PlanExpertsBesideDense(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  const int64_t hidden = config.hidden_size;
  site.AddNorms(kFfnNorm, names.ffn_norm, kFfnPostNorm, names.ffn_post_norm, layer);
  site.AddNorm(kExpertsNorm, names.experts.norm, hidden, layer);
  site.AddNorm(kExpertsPostNorm, names.experts.post_norm, hidden, layer);
  site.AddNorm(kDensePostNorm, names.experts.dense_post_norm, hidden, layer);
  // A norm without weight, times a vector / sqrt(hidden).
  layer->vectors.push_back({.role = kRouterNorm,
                            .tensor = names.experts.router_norm,
                            .size = hidden,
                            .exact = true,
                            .factor = 1 / std::sqrt(static_cast<float>(hidden))});
  layer->vectors.push_back({.role = kExpertScales,
                            .tensor = names.experts.expert_scales,
                            .size = config.moe->num_experts,
                            .exact = true});
  AddRouter(site, layer);
  PlanExpertMatrices(site, layer);
  AddDenseMatrices(site, layer);
}

BlockWorkspace ExpertsWorkspace(const ModelConfig& config, const Shard&, tensor::DType dtype,
                                int64_t rows) {
  ExpertBuffers none;
  return {CutExpertBuffers(config, dtype, rows, nullptr, &none),
          std::max(config.hidden_size, config.moe->SharedWidth())};
}

// What experts give is added to the residual as it comes: its factor is one of their weights.
kernels::Router RouterOf(const ModelConfig& config, const LayerWeights& w) {
  const MoeConfig& moe = *config.moe;
  return {.num_experts = static_cast<int32_t>(moe.num_experts),
          .experts_per_token = static_cast<int32_t>(moe.experts_per_token),
          .num_groups = static_cast<int32_t>(moe.num_groups),
          .chosen_groups = static_cast<int32_t>(moe.chosen_groups),
          .scores = moe.scores,
          .group_score = moe.group_score,
          .renormalize = moe.renormalize,
          .epsilon = moe.epsilon,
          .scale = moe.beside_dense ? moe.scale : moe.scale * config.residual_factor,
          .expert_scales = w.vector(kExpertScales),
          .bias = w.vector(kSelectionBias)};
}

// What RouteRows has chosen, kept beside.
struct KeepArgs {
  const int32_t* experts;
  uint16_t* to;
  int64_t slots;
};

void Keep(const KeepArgs& args, const device::WorkerContext& context) {
  const device::Range part = device::StaticPart(context, args.slots);
  for (int64_t slot = part.begin; slot < part.end; ++slot)
    args.to[slot] = static_cast<uint16_t>(args.experts[slot]);
}

void LaunchKeep(const void* raw, const device::LaunchContext& context) {
  const KeepArgs& args = *static_cast<const KeepArgs*>(raw);
  using kernels::cuda::kRowThreads;
  context.Launch(
      "pair_keep_chosen",
      {.blocks = {static_cast<int>(base::CeilDiv(args.slots, int64_t{kRowThreads})), 1, 1},
       .threads = kRowThreads},
      kernels::cuda::KeepChosenParams{args.experts, context.OnDevice(args.to), args.slots});
  context.FetchControl(args.to, static_cast<uint64_t>(args.slots) * sizeof(*args.to));
}

void KeepChosen(const BlockContext& context, const KeepArgs& args) {
  if (args.slots == 0) return;
  const auto read = static_cast<uint64_t>(args.slots) * sizeof(*args.experts);
  device::Operation operation =
      device::MakeOperation<&Keep>({.kind = cost::OpKind::kCopy,
                                    .label = "keep_chosen",
                                    .read_bytes = static_cast<double>(read),
                                    .write_bytes = static_cast<double>(read) / 2},
                                   args);
  operation.launch = LaunchKeep;
  operation.Reads(args.experts, read).Writes(args.to, read / 2);
  context.stream->Enqueue(operation);
}

// Where the rows of the rank's experts begin in the grouped order, by number among the rank's.
const int32_t* OwnOffsets(const BlockContext& context) {
  return context.weights.expert_offsets + context.weights.shard.experts.begin;
}

// Whether the experts share the codes of their inputs: where a row is expected to go through more
// than one of those that the rank has.
bool SharesCodes(const MoeConfig& moe, const weights::PlacedWeight& placed,
                 const GroupedRows& rows) {
  return placed.weight.is_int8() && rows.codes != nullptr &&
         moe.experts_per_token * placed.num_experts > moe.num_experts;
}

// One of the matrices of these experts of the rank, for all of their rows. `coded`: the codes of
// their inputs are there.
void RunMatrix(const BlockContext& context, const Role& role, const weights::PlacedWeight& placed,
               const ExpertPart& experts, const GroupedRows& rows, bool coded) {
  const bool first = role == kExpertsGateUp;
  const bool shares = first && SharesCodes(*context.config->moe, placed, rows);
  kernels::PackedWeight weight = placed.weight;
  if (weight.bias != nullptr)
    weight.bias += int64_t{experts.begin} * weight.num_panels * kernels::kPanelColumns;
  kernels::Experts(*context.stream, *context.kernels, role.name,
                   {.weight = weight,
                    .runs = placed.runs + experts.begin,
                    .offsets = OwnOffsets(context) + experts.begin,
                    .num_experts = experts.end - experts.begin,
                    .max_rows = rows.max_rows,
                    .x = first ? rows.x : rows.gated,
                    .x_rows = first ? rows.source : nullptr,
                    .x_count = first ? rows.x_count : 0,
                    .y = first ? rows.gated : rows.outputs,
                    .x_stride = placed.weight.k,
                    .y_stride = placed.weight.n,
                    .output = first ? FfnOutput(*context.config) : kernels::LinearOutput::kRounded,
                    .codes = shares ? rows.codes : nullptr,
                    .coded = shares && coded});
}

// Both matrices of each part, once it is there.
void RunParts(const BlockContext& context, int64_t layer, std::span<const ExpertPart> parts,
              const GroupedRows& rows) {
  const LayerWeight gate_up(context, layer, kExpertsGateUp), down(context, layer, kExpertsDown);
  for (size_t part = 0; part < parts.size(); ++part) {
    if (part > 0) context.shared->AcquirePart(layer, part);
    RunMatrix(context, kExpertsGateUp, gate_up.placed(), parts[part], rows, part > 0);
    RunMatrix(context, kExpertsDown, down.placed(), parts[part], rows, false);
  }
}

// The rows that the experts of all ranks with these rows have made, into `outputs`.
void GatherOutputs(const BlockContext& context, int64_t slots, std::byte* outputs) {
  fabric::Exchange& exchange = *context.links.tensor;
  const Shard& shard = context.weights.shard;
  fabric::RowsByOffset rows{.offsets = context.weights.expert_offsets,
                            .most_rows = slots,
                            .row_bytes = tensor::BytesOf(
                                context.dtype, static_cast<uint64_t>(context.config->hidden_size))};
  for (int rank = 0; rank < exchange.num_ranks(); ++rank) {
    rows.borders[rank + 1] =
        static_cast<int32_t>(ExpertsOf(*context.config, shard.cut.degrees(), shard.mode, rank).end);
  }
  fabric::AllGather(*context.stream, exchange, "gather_experts", rows, outputs);
  // Each row is read by all ranks but the one that made it; one of them counts for all.
  const auto readers =
      static_cast<uint64_t>(exchange.my_index() == 0 ? exchange.num_ranks() - 1 : 0);
  CountMeeting(context, &ExchangeCounters::bytes_expert_rows,
               readers * static_cast<uint64_t>(slots) * rows.row_bytes);
}

// What the experts that rows were routed to make of them, and the shared one: b.outputs, b.shared.
void RunRouted(const BlockContext& context, int64_t layer, const std::byte* normed, int32_t rows,
               const ExpertBuffers& b) {
  const MoeConfig& moe = *context.config->moe;
  const auto chosen = static_cast<int32_t>(moe.experts_per_token);
  const fabric::Exchange* const sequence = context.links.sequence;
  fabric::Exchange* const tensor = context.links.tensor;
  const bool shared = context.shared != nullptr && context.shared->Shares(layer, kExpertsGateUp);
  kernels::GroupRows(
      *context.stream, *context.kernels,
      {.experts = b.experts,
       .rows = rows,
       .experts_per_token = chosen,
       .num_experts = static_cast<int32_t>(moe.num_experts),
       .offsets = context.weights.expert_offsets,
       .source = b.source,
       .positions = b.positions,
       .counters = tensor == nullptr || tensor->my_index() == 0 ? context.routed : nullptr,
       .lacked = shared ? context.shared->Lacked(layer) : kernels::LackedExperts{},
       .routing = context.routing,
       .draw = {.rank = context.replica,
                .step = context.step,
                .layer = context.weights.shard.layers.begin + layer,
                .rows = rows,
                .experts_per_token = chosen,
                .first_row = sequence == nullptr ? 0 : sequence->my_index()}});
  const bool routed = shared && context.shared->PullWanted(layer, OwnOffsets(context));
  if (routed) RunSharedExpert(context, layer, normed, rows, b);  // while they come
  RunExperts(context, layer, ExpertsFrom::kEverywhere,
             {.x = moe.weighs_input ? b.weighed : normed,
              .x_count = rows,
              .source = b.source,
              .max_rows = rows * chosen,
              .gated = b.gated,
              .outputs = tensor == nullptr ? b.outputs : tensor->mine(),
              .codes = b.codes});
  if (!routed) RunSharedExpert(context, layer, normed, rows, b);
  if (tensor != nullptr && rows > 0) GatherOutputs(context, int64_t{rows} * chosen, b.outputs);
}

void RunExpertsLayer(const BlockContext& context, int64_t layer, int32_t rows) {
  ExpertBuffers b;
  CutExpertBuffers(*context.config, context.dtype, rows, context.activations.ffn, &b);
  const std::byte* const normed = BlockInput(context, layer, kFfnNorm, rows).at;
  RouteRows(context, layer, normed, 0, rows, b);
  RunRouted(context, layer, normed, rows, b);
  CombineExperts(context, rows, b, b.positions, context.activations.residual);
}

// Buffers of the dense block and of the sum of both, behind the experts'.
struct BesideBuffers {
  std::byte* gated = nullptr;  // [rows, the rank's columns] T
  float* sums = nullptr;       // [rows, hidden]: of the experts
};
uint64_t CutBesideBuffers(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                          int64_t rows, std::byte* at, ExpertBuffers* experts,
                          BesideBuffers* buffers) {
  const uint64_t before = base::RoundUp(CutExpertBuffers(config, dtype, rows, at, experts), 64);
  BufferCutter cutter(at == nullptr ? nullptr : at + before);
  cutter.Cut(&buffers->gated,
             tensor::BytesOf(dtype, static_cast<uint64_t>(rows * shard.intermediate.size())));
  cutter.Cut(&buffers->sums, static_cast<uint64_t>(rows * config.hidden_size) * sizeof(float));
  return before + cutter.bytes();
}

BlockWorkspace BesideWorkspace(const ModelConfig& config, const Shard& shard, tensor::DType dtype,
                               int64_t rows) {
  ExpertBuffers experts;
  BesideBuffers none;
  return {CutBesideBuffers(config, shard, dtype, rows, nullptr, &experts, &none),
          std::max(config.hidden_size, shard.intermediate.size())};
}

// residual += norm(norm(dense block) + norm(experts)), each with a norm of its own before it.
void RunExpertsBesideDense(const BlockContext& context, int64_t layer, int32_t rows) {
  const ModelConfig& config = *context.config;
  std::byte* const normed = context.activations.normed;
  ExpertBuffers b;
  BesideBuffers beside;
  CutBesideBuffers(config, context.weights.shard, context.dtype, rows, context.activations.ffn, &b,
                   &beside);
  LayerNorm(context, layer, kRouterNorm, rows, normed);
  RouteRows(context, layer, normed, 0, rows, b);
  LayerNorm(context, layer, kExpertsNorm, rows, normed);
  RunRouted(context, layer, normed, rows, b);
  kernels::CombineRows(*context.stream, *context.kernels,
                       {.dtype = context.dtype,
                        .expert_rows = b.outputs,
                        .positions = b.positions,
                        .weights = b.weights,
                        .sums = beside.sums,
                        .rows = rows,
                        .experts_per_token = static_cast<int32_t>(config.moe->experts_per_token),
                        .columns = static_cast<int32_t>(config.hidden_size)});
  NormSums(context, layer, kExpertsPostNorm, beside.sums, rows);
  LayerNorm(context, layer, kFfnNorm, rows, normed);
  LayerLinear(context, layer, kGateUp, normed, beside.gated, rows, FfnOutput(config));
  AddLinear(context, layer, kDown, kFfnPostNorm, beside.gated, rows,
            {.norm = &kDensePostNorm, .sums = beside.sums});
}

}  // namespace

uint64_t CutExpertBuffers(const ModelConfig& config, tensor::DType dtype, int64_t step_rows,
                          std::byte* at, ExpertBuffers* buffers) {
  const MoeConfig& moe = *config.moe;
  const uint64_t t = tensor::SizeOf(dtype);
  const auto rows = static_cast<uint64_t>(step_rows),
             slots = rows * static_cast<uint64_t>(moe.experts_per_token),
             hidden = static_cast<uint64_t>(config.hidden_size);
  const auto shared = static_cast<uint64_t>(moe.SharedWidth());
  BufferCutter cutter(at);
  cutter.Cut(&buffers->logits, rows * static_cast<uint64_t>(moe.num_experts) * sizeof(float));
  cutter.Cut(&buffers->experts, slots * sizeof(int32_t));
  cutter.Cut(&buffers->weights, slots * sizeof(float));
  cutter.Cut(&buffers->source, slots * sizeof(int32_t));
  cutter.Cut(&buffers->positions, slots * sizeof(int32_t));
  cutter.Cut(&buffers->weighed, moe.weighs_input ? rows * hidden * t : 0);
  cutter.Cut(&buffers->codes,
             moe.experts_per_token > 1 && config.int8 != Int8::kNone
                 ? rows * static_cast<uint64_t>(kernels::CodedRowBytes(config.hidden_size))
                 : 0);
  cutter.Cut(&buffers->gated, slots * static_cast<uint64_t>(moe.intermediate_size) * t);
  cutter.Cut(&buffers->outputs, slots * hidden * t);
  cutter.Cut(&buffers->shared_gated, rows * shared * t);
  cutter.Cut(&buffers->shared, shared > 0 ? rows * hidden * sizeof(float) : 0);
  cutter.Cut(&buffers->shared_gates, moe.shared_gate ? rows * sizeof(float) : 0);
  return cutter.bytes();
}

void RouteRows(const BlockContext& context, int64_t layer, const std::byte* normed,
               int64_t first_row, int32_t rows, const ExpertBuffers& b) {
  const MoeConfig& moe = *context.config->moe;
  LayerLinear(context, layer, kRouter, normed, reinterpret_cast<std::byte*>(b.logits), rows,
              kernels::LinearOutput::kF32);
  kernels::Route(*context.stream, *context.kernels,
                 {.router = RouterOf(*context.config, context.weights.layers[layer]),
                  .logits = b.logits,
                  .stride = moe.num_experts,
                  .rows = rows,
                  .experts = b.experts,
                  .weights = b.weights});
  if (context.chosen != nullptr) {
    const int64_t k = moe.experts_per_token;
    KeepChosen(context, {.experts = b.experts,
                         .to = context.chosen + (layer * context.chosen_rows + first_row) * k,
                         .slots = rows * k});
  }
  if (!moe.weighs_input) return;
  kernels::WeighRows(*context.stream, *context.kernels,
                     {.dtype = context.dtype,
                      .x = normed,
                      .weights = b.weights,
                      .out = b.weighed,
                      .rows = rows,
                      .columns = static_cast<int32_t>(context.config->hidden_size)});
}

void RunExperts(const BlockContext& context, int64_t layer, ExpertsFrom from,
                const GroupedRows& rows) {
  const bool everywhere = from == ExpertsFrom::kEverywhere;
  if (everywhere && context.shared != nullptr) {
    if (const auto parts = context.shared->Parts(layer); !parts.empty())
      return RunParts(context, layer, parts, rows);
  }
  for (const Role& role : {kExpertsGateUp, kExpertsDown}) {
    std::optional<LayerWeight> shared;
    if (everywhere) shared.emplace(context, layer, role);
    const weights::PlacedWeight& placed =
        everywhere ? shared->placed() : context.weights.layers[layer].placed(role);
    RunMatrix(context, role, placed, {0, placed.num_experts}, rows, false);
  }
}

void RunSharedExpert(const BlockContext& context, int64_t layer, const std::byte* normed,
                     int32_t rows, const ExpertBuffers& b) {
  if (context.config->moe->SharedWidth() == 0) return;
  LayerLinear(context, layer, kSharedGateUp, normed, b.shared_gated, rows,
              FfnOutput(*context.config));
  LayerLinear(context, layer, kSharedDown, b.shared_gated, reinterpret_cast<std::byte*>(b.shared),
              rows, kernels::LinearOutput::kF32);
  if (context.config->residual_factor != 1) {
    kernels::FinishLogits(*context.stream, *context.kernels,
                          {.values = b.shared,
                           .count = rows * context.config->hidden_size,
                           .factor = context.config->residual_factor});
  }
  if (!context.config->moe->shared_gate) return;
  LayerLinear(context, layer, kSharedGate, normed, reinterpret_cast<std::byte*>(b.shared_gates),
              rows, kernels::LinearOutput::kF32);
  kernels::GateRows(*context.stream, *context.kernels, "gate_shared",
                    {.dtype = tensor::DType::kF32,
                     .y = reinterpret_cast<std::byte*>(b.shared),
                     .gates = b.shared_gates,
                     .rows = rows,
                     .columns = static_cast<int32_t>(context.config->hidden_size),
                     .one_a_row = true});
}

void CombineExperts(const BlockContext& context, int32_t rows, const ExpertBuffers& b,
                    const int32_t* positions, std::byte* residual) {
  const MoeConfig& moe = *context.config->moe;
  kernels::CombineRows(*context.stream, *context.kernels,
                       {.dtype = context.dtype,
                        .expert_rows = b.outputs,
                        .positions = positions,
                        .weights = moe.weighs_input ? nullptr : b.weights,
                        .shared = moe.SharedWidth() > 0 ? b.shared : nullptr,
                        .y = residual,
                        .rows = rows,
                        .experts_per_token = static_cast<int32_t>(moe.experts_per_token),
                        .columns = static_cast<int32_t>(context.config->hidden_size)});
}

extern const FfnKind kExperts;
const FfnKind kExperts{"experts", &HasExperts, &PlanExperts, &ExpertsWorkspace, &RunExpertsLayer};

extern const FfnKind kExpertsBesideDense;
const FfnKind kExpertsBesideDense{"experts_beside_dense", &HasExpertsBesideDense,
                                  &PlanExpertsBesideDense, &BesideWorkspace,
                                  &RunExpertsBesideDense};

}  // namespace forebay::model

#include "model/blocks/block.h"

#include "kernels/norm.h"
#include "kernels/reduce.h"

namespace forebay::model {

LayerWeight::LayerWeight(const BlockContext& context, int64_t layer, const Role& role)
    : shared_(context.shared != nullptr && context.shared->Shares(layer, role) ? context.shared
                                                                               : nullptr),
      layer_(layer),
      role_(role),
      placed_(shared_ != nullptr ? &shared_->Acquire(layer, role)
                                 : &context.weights.layers[layer].placed(role)) {}

void Norm(const BlockContext& context, const char* label, const std::byte* x, const float* weight,
          const NormedRows& rows, RowsOut out, const float* bias) {
  kernels::RmsNorm(*context.stream, *context.kernels, label,
                   {.dtype = context.dtype,
                    .x = x,
                    .out = out.at,
                    .weight = weight,
                    .bias = bias,
                    .centered = context.config->centered_norms,
                    .rows = rows.rows,
                    .first_row = rows.first_row,
                    .num_rows = rows.count,
                    .columns = static_cast<int32_t>(context.config->hidden_size),
                    .eps = static_cast<float>(context.config->rms_norm_eps),
                    .out_form = out.form});
}

const Role* BiasOfNorm(const Role& norm) {
  if (norm == kAttentionPostNorm) return &kAttentionPostNormBias;
  return norm == kFfnPostNorm ? &kFfnPostNormBias : nullptr;
}

void LayerNorm(const BlockContext& context, int64_t layer, const Role& role, int32_t rows,
               RowsOut out) {
  const LayerWeights& w = context.weights.layers[layer];
  const Role* const bias = BiasOfNorm(role);
  Norm(context, role.name, context.activations.residual, w.vector(role), {.count = rows}, out,
       bias == nullptr ? nullptr : w.vector(*bias));
}

void NormSums(const BlockContext& context, int64_t layer, const Role& role, float* sums,
              int32_t rows) {
  auto* const values = reinterpret_cast<std::byte*>(sums);
  kernels::RmsNorm(*context.stream, *context.kernels, role.name,
                   {.dtype = tensor::DType::kF32,
                    .x = values,
                    .out = values,
                    .weight = context.weights.layers[layer].vector(role),
                    .num_rows = rows,
                    .columns = static_cast<int32_t>(context.config->hidden_size),
                    .eps = static_cast<float>(context.config->rms_norm_eps)});
}

RowsIn BlockInput(const BlockContext& context, int64_t layer, const Role& role, int32_t rows,
                  kernels::RowForm form) {
  const Activations& activations = context.activations;
  if (context.weights.layers[layer].vector(role) == nullptr) return activations.residual;
  LayerNorm(context, layer, role, rows, {activations.normed, form});
  return {activations.normed, form};
}

kernels::RowForm RowFormOf(const BlockContext& context, int64_t layer, const Role& role) {
  return kernels::RowFormOf(context.weights.layers[layer].matrix(role));
}

kernels::LinearOutput FfnOutput(const ModelConfig& config) {
  switch (config.activation) {
    case Activation::kSilu: break;
    case Activation::kGelu: return kernels::LinearOutput::kGeluMul;
    case Activation::kErfGelu:
      return config.gated ? kernels::LinearOutput::kErfGeluMul : kernels::LinearOutput::kErfGelu;
    case Activation::kClampedSilu: return kernels::LinearOutput::kClampedSiluMul;
    case Activation::kReluSquared: return kernels::LinearOutput::kReluSquared;
  }
  return kernels::LinearOutput::kSiluMul;
}

void Linear(const BlockContext& context, const char* label, const kernels::PackedWeight& weight,
            RowsIn x, RowsOut y, int32_t rows, kernels::LinearOutput output) {
  kernels::Linear(*context.stream, *context.kernels, label,
                  {.weight = weight,
                   .x = x.at,
                   .y = y.at,
                   .x_stride = weight.k,
                   .y_stride = weight.n,
                   .x_form = x.form,
                   .y_form = y.form,
                   .rows = rows,
                   .output = output,
                   .leaf_begin = 0,
                   .leaf_end = weight.leaves.num_leaves,
                   .workspace = context.activations.linear});
}

kernels::StepBatch InGroup(const kernels::StepBatch& batch, int32_t group) {
  kernels::StepBatch in_group = batch;
  in_group.block_tables = batch.group_tables[group];
  return in_group;
}

void LayerLinear(const BlockContext& context, int64_t layer, const Role& role, RowsIn x, RowsOut y,
                 int32_t rows, kernels::LinearOutput output) {
  const LayerWeight weight(context, layer, role);
  Linear(context, role.name, weight.placed().weight, x, y, rows, output);
}

void CountMeeting(const BlockContext& context, std::atomic<int64_t> ExchangeCounters::*kind,
                  uint64_t bytes) {
  if (context.exchanged == nullptr) return;
  ++context.exchanged->meetings;
  context.exchanged->*kind += static_cast<int64_t>(bytes);
  if (context.links.pace.runtime != nullptr)
    fabric::Pace(*context.stream, bytes, context.links.pace);
}

namespace {

// Adds the planes that all ranks brought to the last meeting; returns how many are other ranks'.
int TakePlanes(const BlockContext& context, kernels::ReduceArgs* reduce) {
  const fabric::Exchange& exchange = *context.links.tensor;
  const Shard& shard = context.weights.shard;
  int planes_of_others = 0;
  for (int rank = 0; rank < exchange.num_ranks(); ++rank) {
    const Part leaves =
        PartOfBlocks(reduce->num_leaves, shard.cut.degrees(), BlocksOf(shard.mode, rank));
    const int before = reduce->num_planes;
    kernels::AddPlanes(static_cast<int>(leaves.begin), static_cast<int>(leaves.end),
                       reinterpret_cast<const float*>(exchange.part(rank)), reduce);
    if (rank != exchange.my_index()) planes_of_others += reduce->num_planes - before;
  }
  return planes_of_others;
}

// The second meeting: all copy the new rows of the residual from who added them.
void GatherResidual(const BlockContext& context, int64_t rows, uint64_t row_bytes) {
  fabric::Exchange& exchange = *context.links.tensor;
  fabric::GatherBlock blocks[fabric::Exchange::kMaxRanks];
  for (int rank = 0; rank < exchange.num_ranks(); ++rank) {
    const Part part = base::EvenPart(rows, exchange.num_ranks(), rank);
    blocks[rank] = {.row = part.begin, .rows = part.size(), .bytes = row_bytes};
  }
  const std::span all(blocks, static_cast<size_t>(exchange.num_ranks()));
  fabric::AllGather(*context.stream, exchange, "gather_sums", all, context.activations.residual,
                    row_bytes);
  CountMeeting(context, &ExchangeCounters::bytes_all_reduce,
               fabric::BytesFromOthers(exchange, all));
}

void AddSums(const BlockContext& context, int64_t layer, const Role& role, const Role& norm,
             RowsIn x, int32_t rows, const BesideBlock& beside) {
  fabric::Exchange* const exchange = context.links.tensor;
  std::byte* const residual = context.activations.residual;
  float* const sums = context.activations.sums;
  const bool plain = context.config->AddsPlainly();
  if (exchange == nullptr && plain) {
    LayerLinear(context, layer, role, x, residual, rows, kernels::LinearOutput::kResidual);
    return;
  }
  const LayerWeights& w = context.weights.layers[layer];
  const bool last = norm == kFfnPostNorm && context.config->layer_input_size == 0;
  const kernels::AddNormedArgs add{.dtype = context.dtype,
                                   .x = sums,
                                   .beside = beside.sums,
                                   .weight = w.vector(norm),
                                   .residual = residual,
                                   .out = residual,
                                   .rows = rows,
                                   .columns = static_cast<int32_t>(context.config->hidden_size),
                                   .eps = static_cast<float>(context.config->rms_norm_eps),
                                   .factor = context.config->residual_factor,
                                   .scale = last ? w.vector(kLayerScale) : nullptr};
  if (exchange == nullptr) {
    LayerLinear(context, layer, role, x, reinterpret_cast<std::byte*>(sums), rows,
                kernels::LinearOutput::kF32);
    if (beside.norm != nullptr) NormSums(context, layer, *beside.norm, sums, rows);
    kernels::AddNormed(*context.stream, *context.kernels, norm.name, add);
    return;
  }
  LayerLinear(context, layer, role, x, exchange->mine(), rows, kernels::LinearOutput::kPartial);
  exchange->Meet(*context.stream);
  const bool twice = rows > context.links.all_reduce.one_meeting_rows;
  const kernels::PackedWeight& weight = w.matrix(role);
  const uint64_t row_bytes = tensor::BytesOf(context.dtype, static_cast<uint64_t>(weight.n));
  const Part added =
      twice ? base::EvenPart(rows, exchange->num_ranks(), exchange->my_index()) : Part{0, rows};
  std::byte* const out = twice ? exchange->mine() : residual;
  const std::byte* const before = residual + static_cast<uint64_t>(added.begin) * row_bytes;
  kernels::ReduceArgs reduce{
      .dtype = context.dtype,
      .output = plain ? kernels::LinearOutput::kResidual : kernels::LinearOutput::kF32,
      .num_leaves = weight.leaves.tree_leaves(),
      .bias = weight.bias,
      .y = plain ? out : reinterpret_cast<std::byte*>(sums),
      .residual = plain ? before : nullptr,
      .stride = weight.n,
      .y_stride = weight.n,
      .rows = rows,
      .n = weight.n,
      .ranks = exchange->num_ranks(),
      .wire_bytes = context.links.all_reduce.wire_bytes};
  const int planes_of_others = TakePlanes(context, &reduce);
  if (twice) kernels::KeepRows(added.begin, static_cast<int32_t>(added.size()), &reduce);
  CountMeeting(context, &ExchangeCounters::bytes_all_reduce,
               static_cast<uint64_t>(planes_of_others * added.size() * weight.n) * sizeof(float));
  kernels::ReducePlanes(*context.stream, *context.kernels, "all_reduce", reduce);
  if (!plain) {
    kernels::AddNormedArgs added_rows = add;
    added_rows.residual = before;
    added_rows.out = out;
    added_rows.rows = static_cast<int32_t>(added.size());
    if (beside.sums != nullptr) added_rows.beside += added.begin * context.config->hidden_size;
    if (beside.norm != nullptr) NormSums(context, layer, *beside.norm, sums, added_rows.rows);
    kernels::AddNormed(*context.stream, *context.kernels, norm.name, added_rows);
  }
  if (twice) GatherResidual(context, rows, row_bytes);
}

}  // namespace

void AddLinear(const BlockContext& context, int64_t layer, const Role& role, const Role& norm,
               RowsIn x, int32_t rows, const BesideBlock& beside) {
  AddSums(context, layer, role, norm, x, rows, beside);
  if (context.config->norm_of_sum && context.weights.layers[layer].vector(norm) != nullptr)
    LayerNorm(context, layer, norm, rows, context.activations.residual);
}

}  // namespace forebay::model

#include "model/blocks/layer_inputs.h"

#include <cmath>

#include "kernels/norm.h"
#include "model/blocks/kinds.h"

namespace forebay::model {
namespace {

constexpr Role kInputsProjection{"inputs_projection"}, kInputsNorm{"inputs_norm"},
    kInputsGate{"inputs_gate"}, kInputsOut{"inputs_out"};

struct InputBuffers {
  float* projected = nullptr;   // [rows, width]
  float* gates = nullptr;       // [rows, width]
  std::byte* inputs = nullptr;  // [rows, width] T
};

// Cuts them from `at` on; returns their bytes.
uint64_t CutInputBuffers(const ModelConfig& config, tensor::DType dtype, int64_t rows,
                         std::byte* at, InputBuffers* buffers) {
  const auto elements = static_cast<uint64_t>(rows * config.layer_input_size);
  BufferCutter cutter(at);
  cutter.Cut(&buffers->projected, elements * sizeof(float));
  cutter.Cut(&buffers->gates, elements * sizeof(float));
  cutter.Cut(&buffers->inputs, tensor::BytesOf(dtype, elements));
  return cutter.bytes();
}

}  // namespace

void PlanLayerInputs(const LayerSite& site, LayerPlan* layer) {
  const auto& [config, names, shard, heads, dtype, index] = site;
  const int64_t hidden = config.hidden_size, width = config.layer_input_size;
  const auto add = [&](const Role& role, weights::MatrixPlan plan) {
    layer->matrices.push_back(
        {role, Block::kInputs, LeafRule::kEven, std::move(plan), /*kept=*/true});
  };
  site.AddNorm(kInputsNorm, names.inputs.norm, width, layer);
  site.AddNorm(kInputsPostNorm, names.inputs.post_norm, hidden, layer);
  add(kInputsProjection,
      weights::PlanMatrix(site.Label(kInputsProjection), dtype, names.inputs.projection, "",
                          {config.num_layers * width, {index * width, (index + 1) * width}}, hidden,
                          kernels::LeafBorders::Single(hidden)));
  add(kInputsGate, weights::PlanMatrix(site.Label(kInputsGate), dtype, names.inputs.gate, "", width,
                                       hidden, kernels::LeafBorders::Single(hidden)));
  add(kInputsOut, weights::PlanMatrix(site.Label(kInputsOut), dtype, names.inputs.out, "", hidden,
                                      width, kernels::LeafBorders::Single(width)));
}

BlockWorkspace LayerInputsWorkspace(const ModelConfig& config, tensor::DType dtype, int64_t rows) {
  InputBuffers none;
  return {CutInputBuffers(config, dtype, rows, nullptr, &none), config.layer_input_size};
}

void RunLayerInputs(const BlockContext& context, const kernels::StepBatch& own, int64_t layer) {
  const ModelConfig& config = *context.config;
  const Activations& activations = context.activations;
  const LayerWeights& w = context.weights.layers[layer];
  const int64_t index = context.weights.shard.layers.begin + layer;
  const auto width = static_cast<int32_t>(config.layer_input_size);
  const auto hidden = static_cast<float>(config.hidden_size);
  const auto eps = static_cast<float>(config.rms_norm_eps);
  const int32_t rows = own.num_rows;
  InputBuffers buffers;
  CutInputBuffers(config, context.dtype, rows, activations.ffn, &buffers);
  LayerLinear(context, layer, kInputsProjection, activations.embedded,
              reinterpret_cast<std::byte*>(buffers.projected), rows, kernels::LinearOutput::kF32);
  LayerLinear(context, layer, kInputsGate, activations.residual,
              reinterpret_cast<std::byte*>(buffers.gates), rows, kernels::LinearOutput::kF32);
  const auto offset = static_cast<uint64_t>(index * width);
  kernels::LayerInputs(
      *context.stream, *context.kernels,
      {.dtype = context.dtype,
       .batch = own,
       .projected = buffers.projected,
       .weight = w.vector(kInputsNorm),
       .gates = buffers.gates,
       .table = context.weights.layer_inputs + tensor::BytesOf(context.dtype, offset),
       .table_stride = config.num_layers * width,
       .out = buffers.inputs,
       .columns = width,
       .eps = eps * hidden,  // the norm of a projection that is divided by sqrt(hidden)
       .table_factor = std::sqrt(static_cast<float>(width)),
       .factor = std::sqrt(0.5f)});
  float* const sums = activations.sums;
  LayerLinear(context, layer, kInputsOut, buffers.inputs, reinterpret_cast<std::byte*>(sums), rows,
              kernels::LinearOutput::kF32);
  kernels::AddNormed(*context.stream, *context.kernels, kInputsPostNorm.name,
                     {.dtype = context.dtype,
                      .x = sums,
                      .weight = w.vector(kInputsPostNorm),
                      .residual = activations.residual,
                      .out = activations.residual,
                      .rows = rows,
                      .columns = static_cast<int32_t>(config.hidden_size),
                      .eps = eps,
                      .scale = w.vector(kLayerScale)});
}

}  // namespace forebay::model

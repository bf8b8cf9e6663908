// What a layer takes of a row's token beside the residual, behind its feed-forward block
// (ModelConfig::layer_input_size):
//
//   input = (norm(P e / sqrt(hidden)) + table[token] sqrt(width)) / sqrt(2)
//   residual = (residual + norm(O (gelu(G residual) * input))) * scale
//
// with e the embedded row. All ranks that have a row compute all of it: its matrices are small.
#pragma once

#include "model/blocks/block.h"

namespace forebay::model {

struct BlockWorkspace;
struct LayerSite;

inline constexpr Role kInputsPostNorm{"inputs_post_norm"};

void PlanLayerInputs(const LayerSite& site, LayerPlan* layer);
// Of Activations::ffn; nothing where the model has no such inputs.
BlockWorkspace LayerInputsWorkspace(const ModelConfig& config, tensor::DType dtype, int64_t rows);
// `own`: the tokens of the rank's rows.
void RunLayerInputs(const BlockContext& context, const kernels::StepBatch& own, int64_t layer);

}  // namespace forebay::model

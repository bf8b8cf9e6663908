// What follows from a configuration alone: how many weights, how large a cache, how much work.
// Pure.
#pragma once

#include <cstdint>

#include "model/config.h"

namespace forebay::model {

// Counts of elements. The conventions are those under which the published figures of the built-in
// models come out:
struct DerivedFigures {
  // Every weight once: matrices, norms, biases, both embedding tables (one where they are tied). A
  // layer that predicts further tokens is not counted.
  int64_t params = 0;
  // params without the experts that a token does not go to; both embedding tables count whole.
  int64_t active_params = 0;
  // The part of params in feed-forward blocks: dense ones, all experts, shared ones, routers.
  int64_t ffn_params = 0;
  // Matrix elements that one token is multiplied with: active matrices and the head, no gathered
  // row, norm or bias.
  int64_t token_weights = 0;
  // Values that one token has in the KV cache, over all layers.
  int64_t kv_values = 0;

  double ffn_share() const { return static_cast<double>(ffn_params) / static_cast<double>(params); }
  // 2 a matrix element (multiply and add). Scores and values of attention depend on the context and
  // are left out.
  double flops_per_token() const { return 2.0 * static_cast<double>(token_weights); }
};

DerivedFigures Derive(const ModelConfig& config);

// Weights of one routed expert.
int64_t ExpertParams(const ModelConfig& config);

}  // namespace forebay::model

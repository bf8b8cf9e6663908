// How likely a model finds a continuation of a prompt.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "forebay/request.h"

namespace forebay::job {

// As vLLM: JSON has no infinity.
inline constexpr float kLeastLogprob = -9999.0f;

struct Likelihood {
  double logprob = 0;     // the sum over its tokens
  bool is_greedy = true;  // no token of the vocabulary is likelier at any of its positions
  std::vector<TokenLogprob> tokens;
};

// Of a prompt's positions: those before the continuation are empty.
inline Likelihood LikelihoodOf(std::span<const PositionLogprobs> positions) {
  Likelihood likelihood;
  for (const PositionLogprobs& position : positions) {
    if (position.top.empty()) continue;
    TokenLogprob token = position.top[static_cast<size_t>(position.chosen)];
    token.logprob = std::max(token.logprob, kLeastLogprob);
    likelihood.logprob += token.logprob;
    likelihood.is_greedy = likelihood.is_greedy && token.rank == 1;
    likelihood.tokens.push_back(token);
  }
  return likelihood;
}

}  // namespace forebay::job

// How a router chooses experts from its logits. Pure; what it does is in kernels/route.h.
#pragma once

#include <cstdint>

namespace forebay::kernels {

// From logits to scores. Selection is by score + bias, but for the scores of chosen ones.
enum class RouterScores : uint8_t {
  // exp(logit - greatest logit) / sum; the sum has 16 lanes and the tree of kernels/norm.h
  kSoftmax,
  kSigmoid,          // 1 / (1 + exp(-logit))
  kSigmoidOfChosen,  // as kSigmoid; selection is by logit + bias
  // selection is by logit; scores are the softmax over the chosen ones, in slot order: exp(logit -
  // greatest) / sum, the sum one chain
  kSoftmaxOfChosen,
};

// The selection score of a group of experts: its greatest, or its greatest plus its second.
enum class GroupScore : uint8_t { kGreatest, kTwoGreatest };

struct Router {
  int32_t num_experts = 0, experts_per_token = 0;
  // Groups are of equally many consecutive experts; experts are chosen from the chosen groups
  // alone.
  int32_t num_groups = 1, chosen_groups = 1;
  RouterScores scores = RouterScores::kSoftmax;
  GroupScore group_score = GroupScore::kGreatest;
  bool renormalize = false;  // weight / (sum of the slots' weights in slot order + epsilon)
  float epsilon = 0;
  float scale = 1;                       // multiplies the weights, then `expert_scales`
  const float* expert_scales = nullptr;  // [num_experts]; null: 1 each
  const float* bias = nullptr;           // [num_experts], for choosing only; null: none

  bool renormalizes() const { return renormalize || scores == RouterScores::kSoftmaxOfChosen; }
};

}  // namespace forebay::kernels

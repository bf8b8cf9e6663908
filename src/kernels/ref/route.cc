#include "kernels/route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/exp.h"
#include "kernels/group_slots.h"
#include "kernels/ref/row.h"
#include "kernels/sets.h"
#include "tensor/bf16.h"

namespace forebay::kernels::ref {
namespace {

constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// Numbers of all values, the greatest first, of equal ones the lowest.
std::vector<int32_t> Falling(const std::vector<float>& values) {
  std::vector<int32_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return values[a] > values[b]; });
  return order;
}

std::vector<float> Scores(const Router& router, const float* logits) {
  std::vector<float> scores(logits, logits + router.num_experts);
  if (router.scores == RouterScores::kSoftmaxOfChosen) return scores;
  if (router.scores != RouterScores::kSoftmax) {
    for (float& score : scores) score = Sigmoid(score);
    return scores;
  }
  float greatest = kExcluded;
  for (const float score : scores) greatest = Max(score, greatest);
  float lanes[kLanes] = {};
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = Exp(scores[i] - greatest);
    lanes[i % kLanes] += scores[i];
  }
  const float sum = SumTree(lanes);
  for (float& score : scores) score /= sum;
  return scores;
}

// What experts are chosen by: those of groups that are not chosen have -inf.
std::vector<float> Selection(const Router& router, const float* logits,
                             const std::vector<float>& scores) {
  std::vector<float> selection(scores);
  if (router.scores == RouterScores::kSigmoidOfChosen)
    selection.assign(logits, logits + router.num_experts);
  if (router.bias != nullptr) {
    for (size_t i = 0; i < selection.size(); ++i) selection[i] += router.bias[i];
  }
  const auto size = static_cast<size_t>(router.num_experts / router.num_groups);
  std::vector<float> groups;
  for (auto begin = selection.begin(); begin != selection.end();
       begin += static_cast<int64_t>(size)) {
    const std::vector<float> group(begin, begin + static_cast<int64_t>(size));
    const std::vector<int32_t> order = Falling(group);
    groups.push_back(router.group_score == GroupScore::kGreatest
                         ? group[order[0]]
                         : group[order[0]] + group[order[1]]);
  }
  const std::vector<int32_t> order = Falling(groups);
  for (auto g = static_cast<size_t>(router.chosen_groups); g < groups.size(); ++g)
    std::fill_n(selection.begin() + static_cast<int64_t>(order[g] * size), size, kExcluded);
  return selection;
}

void RouteRow(const RouteArgs& args, int64_t row) {
  const Router& router = args.router;
  const int k = router.experts_per_token;
  const float* const logits = args.logits + row * args.stride;
  int32_t* const experts = args.experts + row * k;
  float* const weights = args.weights + row * k;
  const std::vector<float> scores = Scores(router, logits);
  if (std::ranges::any_of(scores, [](float score) { return std::isnan(score); })) {
    for (int slot = 0; slot < k; ++slot) experts[slot] = slot, weights[slot] = NAN;
    return;
  }
  const std::vector<int32_t> order = Falling(Selection(router, logits, scores));
  float sum = 0;
  for (int slot = 0; slot < k; ++slot) {
    experts[slot] = order[static_cast<size_t>(slot)];
    weights[slot] = scores[static_cast<size_t>(experts[slot])];
    if (router.scores == RouterScores::kSoftmaxOfChosen)
      weights[slot] = Exp(weights[slot] - scores[static_cast<size_t>(experts[0])]);
    sum += weights[slot];
  }
  for (int slot = 0; slot < k; ++slot) {
    if (router.renormalizes()) weights[slot] /= sum + router.epsilon;
    weights[slot] *= router.scale;
    if (router.expert_scales != nullptr) weights[slot] *= router.expert_scales[experts[slot]];
  }
}

template <typename T>
void WeighRow(const WeighRowsArgs& args, int64_t row) {
  for (int64_t i = row * args.columns; i < (row + 1) * args.columns; ++i) {
    reinterpret_cast<T*>(args.out)[i] = tensor::RoundTo<T>(
        args.weights[row] * tensor::ToFloat(reinterpret_cast<const T*>(args.x)[i]));
  }
}

template <typename T>
void CombineRow(const CombineRowsArgs& args, int64_t row) {
  const T* const from = reinterpret_cast<const T*>(args.expert_rows);
  T* const y = reinterpret_cast<T*>(args.y) + row * args.columns;
  for (int64_t j = 0; j < args.columns; ++j) {
    float sum = 0;
    for (int64_t slot = row * args.experts_per_token; slot < (row + 1) * args.experts_per_token;
         ++slot) {
      const int64_t position = args.positions == nullptr ? slot : args.positions[slot];
      const T value = from[position * args.columns + j];
      sum = std::fma(args.weights == nullptr ? 1.0f : args.weights[slot], tensor::ToFloat(value),
                     sum);
    }
    if (args.shared != nullptr) sum += args.shared[row * args.columns + j];
    if (args.sums != nullptr) {
      args.sums[row * args.columns + j] = sum;
    } else {
      y[j] = tensor::RoundTo<T>(sum + tensor::ToFloat(y[j]));
    }
  }
}

}  // namespace

void Route(const RouteArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) RouteRow(args, row);
}

void WeighRows(const WeighRowsArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    args.dtype == tensor::DType::kF32 ? WeighRow<float>(args, row)
                                      : WeighRow<tensor::BF16>(args, row);
  }
}

void CombineRows(const CombineRowsArgs& args, const device::WorkerContext& context) {
  const device::Range rows = StaticPart(context, args.rows);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    args.dtype == tensor::DType::kF32 ? CombineRow<float>(args, row)
                                      : CombineRow<tensor::BF16>(args, row);
  }
}

// One worker: the numbers of a whole step fit in its cache.
void GroupRows(const GroupRowsArgs& args, const device::WorkerContext& context) {
  if (context.worker != 0) return;
  const int64_t slots = int64_t{args.rows} * args.experts_per_token;
  GroupSlots({args.experts, args.experts_per_token, args.num_experts, args.offsets, args.source,
              args.positions, args.counters, args.lacked},
             [&](auto visit) {
               for (int64_t slot = 0; slot < slots; ++slot) visit(slot, true);
             });
}

}  // namespace forebay::kernels::ref

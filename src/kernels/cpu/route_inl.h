// Choosing experts, and the sum of what they give, with this file's instruction set; see
// kernels/route.h.
#pragma once

#include "kernels/cpu/simd.h"
#include "kernels/route.h"

namespace forebay::kernels {
namespace {

// The k greatest of values[n], the greatest first, of equal ones the lowest: their numbers. Taken
// values become -inf. REQUIRES: k values are above -inf.
FB_INLINE void TakeGreatest(float* values, int n, int k, int32_t* chosen) {
  for (int slot = 0; slot < k; ++slot) {
    int best = 0;
    float greatest = values[0];
    for (int i = 1; i < n; ++i) {
      if (values[i] > greatest) greatest = values[i], best = i;
    }
    chosen[slot] = best;
    values[best] = -__builtin_inff();
  }
}

// The worker's room for one row: arrays of num_experts, filled up to whole vectors.
struct RouteScratch {
  float* scores;
  float* selection;
  float* group;         // a copy of a group's selection scores
  float* group_scores;  // [num_groups]
  int32_t* chosen_groups;

  FB_INLINE RouteScratch(std::byte* scratch, int num_experts) {
    const int64_t stride = (num_experts + kLanes - 1) / kLanes * kLanes;
    scores = reinterpret_cast<float*>(scratch);
    selection = scores + stride;
    group = selection + stride;
    group_scores = group + stride;
    chosen_groups = reinterpret_cast<int32_t*>(group_scores + stride);
  }
};

// Logits to scores; false: one is NaN.
FB_INLINE bool ScoreRow(const Router& router, const float* logits, float* scores) {
  const int64_t n = router.num_experts;
  Vector nans = Vector::Zero();
  if (router.scores == RouterScores::kSoftmax) {
    float greatest = -__builtin_inff();
    for (int64_t i = 0; i < n; ++i) greatest = logits[i] > greatest ? logits[i] : greatest;
    Vector lanes = Vector::Zero();
    for (int64_t i = 0; i < n; i += kLanes) {
      const int part = n - i < kLanes ? static_cast<int>(n - i) : kLanes;
      const Vector e = Exp(LoadPart(logits + i, part) - Vector::Set(greatest));
      const Vector power = SelectRange(0, part, e, Vector::Zero());
      power.Store(scores + i);
      lanes = lanes + power;
    }
    const Vector sum = Vector::Set(ReduceAdd(lanes));
    for (int64_t i = 0; i < n; i += kLanes) {
      const Vector score = Vector::Load(scores + i) / sum;
      score.Store(scores + i);
      nans = nans + SelectLessEqual(score, score, Vector::Zero(), Vector::Set(1));
    }
  } else if (router.scores == RouterScores::kSoftmaxOfChosen) {
    for (int64_t i = 0; i < n; i += kLanes) {
      const Vector score = LoadPart(logits + i, n - i);
      score.Store(scores + i);
      nans = nans + SelectLessEqual(score, score, Vector::Zero(), Vector::Set(1));
    }
  } else {
    for (int64_t i = 0; i < n; i += kLanes) {
      const Vector score = Sigmoid(LoadPart(logits + i, n - i));
      score.Store(scores + i);
      nans = nans + SelectLessEqual(score, score, Vector::Zero(), Vector::Set(1));
    }
  }
  return ReduceAdd(nans) == 0;
}

FB_INLINE void SelectRow(const Router& router, const float* logits, const RouteScratch& scratch) {
  const float* const from =
      router.scores == RouterScores::kSigmoidOfChosen ? logits : scratch.scores;
  for (int i = 0; i < router.num_experts; ++i)
    scratch.selection[i] = router.bias == nullptr ? from[i] : from[i] + router.bias[i];
}

// Experts of groups that are not chosen get -inf.
FB_INLINE void KeepGroups(const Router& router, const RouteScratch& scratch) {
  const int groups = router.num_groups, size = router.num_experts / groups;
  const int best = router.group_score == GroupScore::kTwoGreatest ? 2 : 1;
  for (int g = 0; g < groups; ++g) {
    const float* const own = scratch.selection + g * size;
    __builtin_memcpy(scratch.group, own, static_cast<size_t>(size) * sizeof(float));
    int32_t first[2];
    TakeGreatest(scratch.group, size, best, first);
    scratch.group_scores[g] = best == 1 ? own[first[0]] : own[first[0]] + own[first[1]];
  }
  TakeGreatest(scratch.group_scores, groups, router.chosen_groups, scratch.chosen_groups);
  // What was taken is -inf now.
  for (int i = 0; i < router.num_experts; ++i) {
    if (scratch.group_scores[i / size] != -__builtin_inff())
      scratch.selection[i] = -__builtin_inff();
  }
}

FB_INLINE void RouteRow(const RouteArgs& args, int64_t row, const RouteScratch& scratch) {
  const Router& router = args.router;
  const int k = router.experts_per_token;
  const float* const logits = args.logits + row * args.stride;
  int32_t* const experts = args.experts + row * k;
  float* const weights = args.weights + row * k;
  if (!ScoreRow(router, logits, scratch.scores)) {
    for (int slot = 0; slot < k; ++slot) experts[slot] = slot, weights[slot] = __builtin_nanf("");
    return;
  }
  SelectRow(router, logits, scratch);
  if (router.chosen_groups < router.num_groups) KeepGroups(router, scratch);
  TakeGreatest(scratch.selection, router.num_experts, k, experts);
  const bool of_chosen = router.scores == RouterScores::kSoftmaxOfChosen;
  const float greatest = scratch.scores[experts[0]];
  float sum = 0;
  for (int slot = 0; slot < k; ++slot) {
    weights[slot] = scratch.scores[experts[slot]];
    if (of_chosen) weights[slot] = Exp(Vector::Set(weights[slot] - greatest)).First();
    sum += weights[slot];
  }
  for (int slot = 0; slot < k; ++slot) {
    if (router.renormalizes()) weights[slot] = weights[slot] / (sum + router.epsilon);
    weights[slot] *= router.scale;
    if (router.expert_scales != nullptr) weights[slot] *= router.expert_scales[experts[slot]];
  }
}

void RouteAllRows(const RouteArgs& args, const device::WorkerContext& context) {
  const RouteScratch scratch(context.scratch, args.router.num_experts);
  const int64_t rows = args.rows;
  for (int64_t row = rows * context.worker / context.num_workers;
       row < rows * (context.worker + 1) / context.num_workers; ++row)
    RouteRow(args, row, scratch);
}

template <typename T>
void WeighRowsOf(const WeighRowsArgs& args, int64_t begin, int64_t end) {
  const int64_t n = args.columns;
  for (int64_t row = begin; row < end; ++row) {
    const T* const x = reinterpret_cast<const T*>(args.x) + row * n;
    T* const out = reinterpret_cast<T*>(args.out) + row * n;
    const Vector weight = Vector::Set(args.weights[row]);
    for (int64_t j = 0; j < n; j += kLanes)
      StorePart(out + j, weight * LoadPart(x + j, n - j), n - j);
  }
}

void WeighAllRows(const WeighRowsArgs& args, const device::WorkerContext& context) {
  const int64_t rows = args.rows, begin = rows * context.worker / context.num_workers,
                end = rows * (context.worker + 1) / context.num_workers;
  args.dtype == tensor::DType::kF32 ? WeighRowsOf<float>(args, begin, end)
                                    : WeighRowsOf<BF16>(args, begin, end);
}

template <typename T>
void CombineRowsOf(const CombineRowsArgs& args, int64_t begin, int64_t end) {
  const int64_t n = args.columns;
  const int k = args.experts_per_token;
  for (int64_t row = begin; row < end; ++row) {
    T* const y = reinterpret_cast<T*>(args.y) + row * n;
    for (int64_t j = 0; j < n; j += kLanes) {
      Vector sum = Vector::Zero();
      for (int slot = 0; slot < k; ++slot) {
        const T* const from =
            reinterpret_cast<const T*>(args.expert_rows) +
            (args.positions == nullptr ? row * k + slot : args.positions[row * k + slot]) * n;
        const float weight = args.weights == nullptr ? 1.0f : args.weights[row * k + slot];
        sum = Fma(Vector::Set(weight), LoadPart(from + j, n - j), sum);
      }
      if (args.shared != nullptr) sum = sum + LoadPart(args.shared + row * n + j, n - j);
      if (args.sums != nullptr) {
        StorePart(args.sums + row * n + j, sum, n - j);
      } else {
        StorePart(y + j, sum + LoadPart(y + j, n - j), n - j);
      }
    }
  }
}

void CombineAllRows(const CombineRowsArgs& args, const device::WorkerContext& context) {
  const int64_t rows = args.rows, begin = rows * context.worker / context.num_workers,
                end = rows * (context.worker + 1) / context.num_workers;
  args.dtype == tensor::DType::kF32 ? CombineRowsOf<float>(args, begin, end)
                                    : CombineRowsOf<BF16>(args, begin, end);
}

}  // namespace
}  // namespace forebay::kernels

// Experts' routing: route, group_rows, weigh_rows, combine_rows (kernels/route.h).
//
// Bytes: each input and output once; group_rows reads all slots once an expert. Limit: latency.
#include "kernels/cuda/pair/arithmetic.h"

namespace forebay::kernels::cuda {
namespace {

// The values of RouterScores and GroupScore.
enum : int32_t { kSoftmaxScores, kSigmoidScores, kSigmoidOfChosenScores, kSoftmaxOfChosenScores };
enum : int32_t { kGreatestOfGroup, kTwoGreatestOfGroup };

FB_DEVICE bool IsNan(float x) { return x != x; }

// The greatest value that is not taken, of equal ones the first; all lanes get it. Marks it.
FB_DEVICE int TakeGreatest(const float* values, bool* taken, int count) {
  int best = -1;
  float greatest = 0;
  for (int i = gpu::Lane(); i < count; i += gpu::kWarpLanes) {
    if (taken[i] || (best >= 0 && !(values[i] > greatest))) continue;
    best = i;
    greatest = values[i];
  }
  for (int mask = 16; mask > 0; mask /= 2) {
    const int other = gpu::ShuffleXor(best, mask);
    const float value = gpu::ShuffleXor(greatest, mask);
    if (other < 0) continue;
    if (best < 0 || value > greatest || (value == greatest && other < best)) {
      best = other;
      greatest = value;
    }
  }
  gpu::SyncWarp();
  if (gpu::Lane() == 0) taken[best] = true;
  gpu::SyncWarp();
  return best;
}

// scores[i] from the row's logits; by one warp.
FB_DEVICE void Score(const RouteParams& args, const float* logits, float* scores) {
  if (args.scores == kSoftmaxOfChosenScores) {
    for (int i = gpu::Lane(); i < args.num_experts; i += gpu::kWarpLanes) scores[i] = logits[i];
    return gpu::SyncWarp();
  }
  if (args.scores != kSoftmaxScores) {
    for (int i = gpu::Lane(); i < args.num_experts; i += gpu::kWarpLanes)
      scores[i] = gpu::Div(1.0f, 1.0f + ExpOf(-logits[i]));
    return gpu::SyncWarp();
  }
  float greatest = -FB_INFINITY;
  for (int i = gpu::Lane(); i < args.num_experts; i += gpu::kWarpLanes)
    greatest = MaxOf(logits[i], greatest);
  for (int mask = 16; mask > 0; mask /= 2)
    greatest = MaxOf(gpu::ShuffleXor(greatest, mask), greatest);
  for (int i = gpu::Lane(); i < args.num_experts; i += gpu::kWarpLanes)
    scores[i] = ExpOf(logits[i] - greatest);
  gpu::SyncWarp();
  float sum = 0;
  for (int i = gpu::Lane(); i < args.num_experts && gpu::Lane() < kLanes16; i += kLanes16)
    sum = sum + scores[i];
  sum = SumTree16(sum);
  for (int i = gpu::Lane(); i < args.num_experts; i += gpu::kWarpLanes)
    scores[i] = gpu::Div(scores[i], sum);
  gpu::SyncWarp();
}

// Experts of groups that are not chosen get -infinity; by one warp.
FB_DEVICE void ChooseGroups(const RouteParams& args, float* selection, bool* taken, float* groups,
                            bool* groups_taken) {
  const int size = args.num_experts / args.num_groups;
  for (int g = 0; g < args.num_groups; ++g) {
    const float* const group = selection + g * size;
    for (int i = gpu::Lane(); i < size; i += gpu::kWarpLanes) taken[i] = false;
    gpu::SyncWarp();
    float score = group[TakeGreatest(group, taken, size)];
    if (args.group_score == kTwoGreatestOfGroup)
      score = score + group[TakeGreatest(group, taken, size)];
    if (gpu::Lane() == 0) {
      groups[g] = score;
      groups_taken[g] = false;
    }
  }
  gpu::SyncWarp();
  for (int chosen = 0; chosen < args.chosen_groups; ++chosen)
    TakeGreatest(groups, groups_taken, args.num_groups);
  for (int i = gpu::Lane(); i < args.num_experts; i += gpu::kWarpLanes) {
    if (!groups_taken[i / size]) selection[i] = -FB_INFINITY;
  }
  gpu::SyncWarp();
}

template <typename T>
FB_DEVICE void WeighRow(const WeighRowsParams& args) {
  const int64_t row = gpu::BlockX();
  for (int j = gpu::Tid(); j < args.columns; j += gpu::Threads()) {
    const int64_t at = row * args.columns + j;
    As<T>(args.out)[at] = RoundTo<T>(args.weights[row] * ToFloat(As<T>(args.x)[at]));
  }
}

template <typename T>
FB_DEVICE void CombineRow(const CombineRowsParams& args) {
  const int64_t row = gpu::BlockX();
  for (int j = gpu::Tid(); j < args.columns; j += gpu::Threads()) {
    float sum = 0;
    for (int k = 0; k < args.experts_per_token; ++k) {
      const int64_t slot = row * args.experts_per_token + k;
      const int64_t from = args.positions == nullptr ? slot : args.positions[slot];
      sum = gpu::Fma(args.weights == nullptr ? 1.0f : args.weights[slot],
                     ToFloat(As<T>(args.expert_rows)[from * args.columns + j]), sum);
    }
    const int64_t at = row * args.columns + j;
    if (args.shared != nullptr) sum = sum + args.shared[at];
    if (args.sums != nullptr) {
      args.sums[at] = sum;
      continue;
    }
    T* const y = As<T>(args.y) + at;
    *y = RoundTo<T>(sum + ToFloat(*y));
  }
}

}  // namespace

// A warp a row.
FB_KERNEL(pair_route, RouteParams, gpu::kWarpLanes) {
  // Floats scores, selection [num_experts], groups [num_groups]; then flags as many as experts and
  // groups.
  FB_SHARED(float, shared);
  const int64_t row = gpu::BlockX();
  float* const scores = shared;
  float* const selection = scores + args.num_experts;
  float* const groups = selection + args.num_experts;
  bool* const taken = reinterpret_cast<bool*>(groups + args.num_groups);
  const float* const logits = args.logits + row * args.stride;
  int32_t* const experts = args.experts + row * args.experts_per_token;
  float* const weights = args.weights + row * args.experts_per_token;
  Score(args, logits, scores);

  bool nan = false;
  for (int i = gpu::Lane(); i < args.num_experts; i += gpu::kWarpLanes) nan |= IsNan(scores[i]);
  if (gpu::Ballot(nan) != 0) {
    for (int slot = gpu::Lane(); slot < args.experts_per_token; slot += gpu::kWarpLanes) {
      experts[slot] = slot;
      weights[slot] = gpu::FromBits(0x7FC00000u);
    }
    return;
  }

  for (int i = gpu::Lane(); i < args.num_experts; i += gpu::kWarpLanes) {
    const float value = args.scores == kSigmoidOfChosenScores ? logits[i] : scores[i];
    selection[i] = args.bias != nullptr ? value + args.bias[i] : value;
  }
  gpu::SyncWarp();
  ChooseGroups(args, selection, taken, groups, taken + args.num_experts);
  for (int i = gpu::Lane(); i < args.num_experts; i += gpu::kWarpLanes) taken[i] = false;
  gpu::SyncWarp();
  float sum = 0, first = 0;
  for (int slot = 0; slot < args.experts_per_token; ++slot) {
    const int expert = TakeGreatest(selection, taken, args.num_experts);
    if (slot == 0) first = scores[expert];
    const float weight =
        args.scores == kSoftmaxOfChosenScores ? ExpOf(scores[expert] - first) : scores[expert];
    sum = sum + weight;
    if (gpu::Lane() == 0) {
      experts[slot] = expert;
      weights[slot] = weight;
    }
  }
  if (gpu::Lane() != 0) return;
  for (int slot = 0; slot < args.experts_per_token; ++slot) {
    float weight = weights[slot];
    if (args.renormalize) weight = gpu::Div(weight, sum + args.epsilon);
    weight = weight * args.scale;
    if (args.expert_scales != nullptr) weight = weight * args.expert_scales[experts[slot]];
    weights[slot] = weight;
  }
}

// A block an expert: counts the slots of the experts before its own, then gives its own their
// places in the order of the slots. One block more writes the last border.
FB_KERNEL(pair_group_rows, GroupRowsParams, kRowThreads) {
  FB_SHARED(int32_t, shared);  // a number a warp
  const int32_t expert = gpu::BlockX();
  int32_t before = 0;
  for (int32_t slot = gpu::Tid(); slot < args.slots; slot += gpu::Threads())
    before += args.experts[slot] < expert ? 1 : 0;
  for (int mask = 16; mask > 0; mask /= 2) before += gpu::ShuffleXor(before, mask);
  if (gpu::Lane() == 0) shared[gpu::Warp()] = before;
  gpu::Sync();
  int32_t place = 0;
  for (int warp = 0; warp < gpu::Warps(); ++warp) place += shared[warp];
  if (gpu::Tid() == 0) args.offsets[expert] = place;
  if (expert == args.num_experts) return;
  for (int32_t begin = 0; begin < args.slots; begin += gpu::Threads()) {
    const int32_t slot = begin + gpu::Tid();
    const bool mine = slot < args.slots && args.experts[slot] == expert;
    const uint32_t votes = gpu::Ballot(mine);
    gpu::Sync();
    if (gpu::Lane() == 0) shared[gpu::Warp()] = gpu::PopCount(votes);
    gpu::Sync();
    int32_t all = 0, ahead = gpu::PopCount(votes & ((1u << gpu::Lane()) - 1));
    for (int warp = 0; warp < gpu::Warps(); ++warp) {
      if (warp < gpu::Warp()) ahead += shared[warp];
      all += shared[warp];
    }
    if (mine) {
      args.positions[slot] = place + ahead;
      args.source[place + ahead] = slot / args.experts_per_token;
    }
    place += all;
  }
}

FB_KERNEL(pair_weigh_rows, WeighRowsParams, kRowThreads) {
  FB_FOR_ELEMENT(args.element, WeighRow, args);
}
FB_KERNEL(pair_combine_rows, CombineRowsParams, kRowThreads) {
  FB_FOR_ELEMENT(args.element, CombineRow, args);
}

}  // namespace forebay::kernels::cuda

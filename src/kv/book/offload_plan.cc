#include "kv/book/offload_plan.h"

#include <algorithm>

#include "base/check.h"

namespace forebay::kv {
namespace {

// Cycles that are walked before the one that is measured: by then the copies are as far ahead as
// the slots let them.
constexpr int kWarmCycles = 8, kMeasuredCycles = 8;

bool Hidden(const OffloadPlan& plan, double tolerance) {
  return plan.exposed_seconds <= tolerance * plan.step_seconds;
}

// Copies down and up of `layers` layers at once, with allocation, as lines 5 to 9 of both listings.
double OffloadSeconds(const PrintedCosts& costs, int64_t layers) {
  const double bytes = costs.layer_bytes * static_cast<double>(layers);
  return costs.down(bytes) + costs.up(bytes) +
         costs.alloc_seconds * static_cast<double>(costs.num_requests * layers);
}

bool Algorithm1Allows(const PrintedCosts& costs, int64_t layers) {
  return OffloadSeconds(costs, layers) <=
         costs.batch_seconds * static_cast<double>(costs.num_layers - 2 * layers);
}

bool Algorithm2Allows(const PrintedCosts& costs, int64_t layers) {
  return OffloadSeconds(costs, layers) <= costs.batch_seconds * static_cast<double>(layers);
}

PrintedLayers Clamp(int64_t raw) { return {raw, std::max<int64_t>(0, raw), raw < 0}; }

}  // namespace

double OffloadPlan::saved_bytes(const OffloadCosts& costs) const {
  return streamed_bytes * static_cast<double>(costs.num_layers - kept_layers - slots);
}

OffloadPlan JudgeOffload(const OffloadCosts& costs, OffloadPlan plan) {
  const int64_t streamed = plan.streamed_bytes > 0 ? costs.num_layers - plan.kept_layers : 0;
  const double compute = costs.layer_seconds * static_cast<double>(costs.num_layers);
  plan.copy_seconds = plan.exposed_seconds = 0;
  plan.step_seconds = compute;
  if (streamed == 0) return plan;
  FB_CHECK(plan.slots >= 1, "{} layers are streamed through {} slots", streamed, plan.slots);
  const double copy = costs.up(plan.streamed_bytes);
  plan.copy_seconds = copy * static_cast<double>(streamed);
  // When a slot's last kernels ended, in the order of their use; slots are taken in turns.
  std::vector<double> consumed(static_cast<size_t>(plan.slots), 0);
  double copied = 0, computed = 0, begin = 0;
  size_t slot = 0;
  for (int cycle = 0; cycle < kWarmCycles + kMeasuredCycles; ++cycle) {
    if (cycle == kWarmCycles) begin = computed;
    for (int64_t layer = 0; layer < costs.num_layers; ++layer) {
      if (layer < streamed) {
        copied = std::max(copied, consumed[slot]) + copy;
        computed = std::max(computed, copied);
      }
      computed += costs.layer_seconds;
      if (layer < streamed) {
        consumed[slot] = computed;
        slot = (slot + 1) % consumed.size();
      }
    }
  }
  plan.step_seconds = (computed - begin) / kMeasuredCycles;
  plan.exposed_seconds = std::max(0.0, plan.step_seconds - compute);
  return plan;
}

OffloadPlan PlanUniform(const OffloadCosts& costs, int64_t slots, double tolerance,
                        int64_t grains) {
  const auto with = [&](int64_t parts) {
    return JudgeOffload(costs, {.slots = slots,
                                .streamed_bytes = costs.layer_bytes * static_cast<double>(parts) /
                                                  static_cast<double>(grains)});
  };
  // More bytes never take less time: the last hidden one is found by halving.
  int64_t hidden = 0, exposed = grains + 1;
  while (exposed - hidden > 1) {
    const int64_t middle = (hidden + exposed) / 2;
    (Hidden(with(middle), tolerance) ? hidden : exposed) = middle;
  }
  return with(hidden);
}

OffloadPlan PlanKeepSome(const OffloadCosts& costs, int64_t slots, double tolerance) {
  const auto with = [&](int64_t kept) {
    return JudgeOffload(costs, {.kept_layers = kept,
                                .slots = slots,
                                .streamed_bytes = kept < costs.num_layers ? costs.layer_bytes : 0});
  };
  int64_t kept = 0;
  while (kept < costs.num_layers && !Hidden(with(kept), tolerance)) ++kept;
  return with(kept);
}

OffloadPlan PlanStreamAll(const OffloadCosts& costs, int64_t slots, double tolerance) {
  const OffloadPlan all =
      JudgeOffload(costs, {.slots = slots, .streamed_bytes = costs.layer_bytes});
  return Hidden(all, tolerance) ? all : JudgeOffload(costs, {.slots = slots});
}

PrintedLayers PrintedAlgorithm1(const PrintedCosts& costs) {
  int64_t l = 0, r = costs.num_layers / 2;
  while (l < r) {
    const int64_t mid = (l + r) / 2;
    if (Algorithm1Allows(costs, mid)) {
      l = mid + 1;
    } else {
      r = mid - 1;
    }
  }
  return Clamp(l - 1);
}

PrintedLayers PrintedAlgorithm2(const PrintedCosts& costs) {
  int64_t l = 0, r = costs.num_layers / 2;
  while (l < r) {
    const int64_t mid = (l + r) / 2;
    if (Algorithm2Allows(costs, mid)) {
      r = mid - 1;
    } else {
      l = mid + 1;
    }
  }
  return Clamp(costs.num_layers - 2 * (l + 1));
}

int64_t ExactAlgorithm1(const PrintedCosts& costs) {
  int64_t most = 0;
  for (int64_t layers = 1; 2 * layers <= costs.num_layers; ++layers) {
    if (Algorithm1Allows(costs, layers)) most = layers;
  }
  return most;
}

int64_t ExactAlgorithm2(const PrintedCosts& costs) {
  for (int64_t layers = 1; 2 * layers <= costs.num_layers; ++layers) {
    if (Algorithm2Allows(costs, layers)) return costs.num_layers - 2 * layers;
  }
  return 0;
}

}  // namespace forebay::kv

#include "kv/book/offload_plan.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace forebay::kv {
namespace {

CopySeconds Link(double bytes_per_second, double latency = 0) {
  return [=](double bytes) { return bytes > 0 ? latency + bytes / bytes_per_second : 0; };
}

// A layer computes for 1 s and has 10 bytes.
OffloadCosts Layers(int64_t layers, double rate) {
  return {.num_layers = layers, .layer_seconds = 1, .layer_bytes = 10, .up = Link(rate)};
}

TEST(JudgeOffload, ASlowLinkSetsTheStep) {
  // 8 layers x 10 bytes at 5 bytes a second take 16 s beside 8 s of compute.
  const OffloadPlan slow = JudgeOffload(Layers(8, 5), {.slots = 3, .streamed_bytes = 10});
  EXPECT_DOUBLE_EQ(slow.copy_seconds, 16);
  EXPECT_DOUBLE_EQ(slow.step_seconds, 16);
  EXPECT_DOUBLE_EQ(slow.exposed_seconds, 8);
  const OffloadPlan fast = JudgeOffload(Layers(8, 20), {.slots = 3, .streamed_bytes = 10});
  EXPECT_DOUBLE_EQ(fast.exposed_seconds, 0);
}

TEST(JudgeOffload, WithOneSlotCopiesWaitForKernels) {
  // Copy and compute of each layer follow one another: 8 x (.5 + 1).
  const OffloadPlan one = JudgeOffload(Layers(8, 20), {.slots = 1, .streamed_bytes = 10});
  EXPECT_DOUBLE_EQ(one.step_seconds, 12);
  // The kept layers' time hides one copy, of the next step's first layer.
  const OffloadPlan kept =
      JudgeOffload(Layers(8, 20), {.kept_layers = 7, .slots = 1, .streamed_bytes = 10});
  EXPECT_DOUBLE_EQ(kept.exposed_seconds, 0);
}

TEST(JudgeOffload, NothingStreamedIsNothingCopied) {
  const OffloadPlan none = JudgeOffload(Layers(8, 20), {.slots = 2});
  EXPECT_EQ(none.copy_seconds, 0);
  EXPECT_EQ(none.step_seconds, 8);
  EXPECT_EQ(none.saved_bytes(Layers(8, 20)), 0);
}

TEST(JudgeOffload, TheWindowCountsAgainstWhatIsSaved) {
  const OffloadPlan plan{.slots = 3, .streamed_bytes = 4};
  EXPECT_EQ(plan.saved_bytes(Layers(8, 20)), 4 * (8 - 3));
  EXPECT_LT(
      (OffloadPlan{.kept_layers = 6, .slots = 3, .streamed_bytes = 4}).saved_bytes(Layers(8, 20)),
      0);
}

TEST(OffloadPlans, UniformStreamsWhatTheLinkBringsInALayersTime) {
  const OffloadPlan plan = PlanUniform(Layers(32, 4), 2, 0, 100);
  EXPECT_DOUBLE_EQ(plan.streamed_bytes, 4);
  EXPECT_DOUBLE_EQ(plan.exposed_seconds, 0);
}

TEST(OffloadPlans, WholeLayersNeedTheLinkToBringThemWhole) {
  EXPECT_EQ(PlanStreamAll(Layers(32, 4), 2, 0).streamed_bytes, 0);
  EXPECT_EQ(PlanStreamAll(Layers(32, 10), 2, 0).streamed_bytes, 10);
  // 2.5 s a layer: while one is brought 2.5 compute; of 32 layers 12 can be brought in 30.
  const OffloadPlan some = PlanKeepSome(Layers(32, 4), 12, 0);
  EXPECT_EQ(some.kept_layers, 32 - 12);
  EXPECT_DOUBLE_EQ(some.exposed_seconds, 0);
}

// Uniform keeps nothing, so where a layer's share saturates the link it frees at least what the
// others free.
TEST(OffloadPlans, UniformSavesAtLeastWhatTheOthersDo) {
  base::Rng rng(1);
  for (int table = 0; table < 10'000; ++table) {
    const double rate = .2 + 3 * rng.Uniform();
    const OffloadCosts costs{.num_layers = 8 + static_cast<int64_t>(rng.Below(73)),
                             .layer_seconds = .5 + rng.Uniform(),
                             .layer_bytes = 1 + 9 * rng.Uniform(),
                             .up = Link(rate)};
    const int64_t slots = 2;
    const double uniform = PlanUniform(costs, slots, 1e-9, 4096).saved_bytes(costs);
    // A grain of each layer is what rounding may cost.
    const double grain = costs.layer_bytes / 4096 * static_cast<double>(costs.num_layers);
    ASSERT_GE(uniform + grain, PlanStreamAll(costs, slots, 1e-9).saved_bytes(costs)) << table;
    ASSERT_GE(uniform + grain, PlanKeepSome(costs, slots, 1e-9).saved_bytes(costs)) << table;
  }
}

// Costs under which a listing's test allows just the candidates up to, or from, `threshold`.
PrintedCosts UpTo(int64_t num_layers, int64_t threshold) {
  return {.num_layers = num_layers,
          .batch_seconds = 1,
          .layer_bytes = 1,
          .down = Link(HUGE_VAL),
          .up = [=](double layers) { return layers <= static_cast<double>(threshold) ? 0 : 1e9; }};
}
PrintedCosts From(int64_t num_layers, int64_t threshold) {
  PrintedCosts costs = UpTo(num_layers, threshold);
  costs.up = [=](double layers) { return layers >= static_cast<double>(threshold) ? 0 : 1e9; };
  return costs;
}

TEST(PrintedAlgorithms, EndTheirSearchOneCandidateEarly) {
  int lost_one = 0, lost_two = 0;
  for (int64_t threshold = 1; threshold <= 15; ++threshold) {
    const PrintedCosts up_to = UpTo(32, threshold), from = From(32, threshold);
    EXPECT_EQ(ExactAlgorithm1(up_to), threshold);
    EXPECT_EQ(ExactAlgorithm2(from), 32 - 2 * threshold);
    lost_one += PrintedAlgorithm1(up_to).layers == threshold - 1;
    lost_two += PrintedAlgorithm2(from).layers == 32 - 2 * threshold - 2;
    EXPECT_LE(PrintedAlgorithm1(up_to).layers, threshold);
  }
  EXPECT_EQ(lost_one, 6);
  EXPECT_EQ(lost_two, 8);
}

// Sums over what the listings return for 1 to 80 layers and every threshold, worked out apart from
// this code: by a transcript of their lines in another language.
TEST(PrintedAlgorithms, ReturnWhatTheListingsDoForAnyNumberOfLayers) {
  int64_t one = 0, two = 0, clamped_one = 0, clamped_two = 0;
  for (int64_t layers = 1; layers <= 80; ++layers) {
    for (int64_t threshold = 0; threshold <= layers / 2 + 1; ++threshold) {
      const PrintedLayers first = PrintedAlgorithm1(UpTo(layers, threshold)),
                          second = PrintedAlgorithm2(From(layers, threshold));
      one += (first.raw + 3) * (threshold + 1) * layers;
      two += (second.raw + 3) * (threshold + 1) * layers;
      clamped_one += first.clamped;
      clamped_two += second.clamped;
    }
  }
  EXPECT_EQ(one, 36'762'534);
  EXPECT_EQ(two, 33'565'630);
  EXPECT_EQ(clamped_one, 51);
  EXPECT_EQ(clamped_two, 160);
}

TEST(PrintedAlgorithms, ReturnNoNumberWhereNothingIsFeasible) {
  const PrintedLayers one = PrintedAlgorithm1(UpTo(32, 0)), two = PrintedAlgorithm2(From(32, 99));
  EXPECT_EQ(one.raw, -1);
  EXPECT_EQ(two.raw, -2);
  EXPECT_TRUE(one.clamped && two.clamped);
  EXPECT_EQ(one.layers, 0);
  EXPECT_EQ(two.layers, 0);
}

// The paper's figure: 30 of 32 layers, where a layer may use the whole batch's time.
TEST(PrintedAlgorithms, OffloadThirtyOfThirtyTwo) {
  const PrintedCosts costs{.num_layers = 32,
                           .batch_seconds = .06,
                           .layer_bytes = .47e9,
                           .down = Link(25.6e9),
                           .up = Link(25.6e9)};
  EXPECT_EQ(ExactAlgorithm2(costs), 30);
  // In a layer's own time the same copies hide for none.
  const OffloadCosts physical{
      .num_layers = 32, .layer_seconds = .06 / 32, .layer_bytes = .47e9, .up = Link(25.6e9)};
  EXPECT_EQ(PlanStreamAll(physical, 2, .01).streamed_bytes, 0);
}

}  // namespace
}  // namespace forebay::kv

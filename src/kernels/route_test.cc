// Routing: every set against ref/ by memcmp, and ref/ against cases done by hand.
#include "kernels/route.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "kernels/kernel_set.h"
#include "kernels/testing/team.h"
#include "tensor/bf16.h"

namespace forebay::kernels {
namespace {

struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> weights;

  bool operator==(const Routed& other) const {
    return experts == other.experts &&
           std::memcmp(weights.data(), other.weights.data(), weights.size() * sizeof(float)) == 0;
  }
};

Routed RouteRows(const KernelSet& set, const Router& router, const std::vector<float>& logits,
                 int workers = 1) {
  RouteArgs args;
  args.router = router;
  args.logits = logits.data();
  args.stride = router.num_experts;
  args.rows = static_cast<int32_t>(logits.size()) / router.num_experts;
  const auto slots = static_cast<size_t>(args.rows * router.experts_per_token);
  Routed routed{std::vector<int32_t>(slots, -1), std::vector<float>(slots, -1)};
  args.experts = routed.experts.data();
  args.weights = routed.weights.data();
  testing::Team team(workers, 1 << 20);
  team.Run([&](const device::WorkerContext& context) { set.route(args, context); });
  return routed;
}

void ExpectAllSets(const Router& router, const std::vector<float>& logits) {
  const Routed expected = RouteRows(RefKernels(), router, logits);
  for (const KernelSet* set : AvailableKernels()) {
    for (const int workers : {1, 3})
      EXPECT_TRUE(RouteRows(*set, router, logits, workers) == expected) << set->name;
  }
}

TEST(RouteTest, SoftmaxChoosesThenRenormalizes) {
  const std::vector<float> logits = {std::log(1.0f), std::log(5.0f), std::log(2.0f),
                                     std::log(2.0f)};
  Router router{.num_experts = 4, .experts_per_token = 3};
  Routed routed = RouteRows(RefKernels(), router, logits);
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{1, 2, 3}));  // where equal, the lower
  EXPECT_NEAR(routed.weights[0], 0.5f, 1e-6f);
  EXPECT_NEAR(routed.weights[1], 0.2f, 1e-6f);
  router.renormalize = true;
  router.scale = 2.5f;
  routed = RouteRows(RefKernels(), router, logits);
  EXPECT_NEAR(routed.weights[0], 2.5f * 5 / 9, 1e-6f);
  EXPECT_NEAR(routed.weights[2], 2.5f * 2 / 9, 1e-6f);
}

TEST(RouteTest, ScalesOfExpertsComeLast) {
  const float scales[] = {1, 3, 0.5f, 7};
  const Router router{
      .num_experts = 4, .experts_per_token = 2, .renormalize = true, .expert_scales = scales};
  const Routed routed = RouteRows(RefKernels(), router, {0, std::log(3.0f), std::log(1.5f), -9});
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{1, 2}));
  EXPECT_NEAR(routed.weights[0], 3 * 2.0f / 3, 1e-6f);
  EXPECT_NEAR(routed.weights[1], 0.5f / 3, 1e-6f);
}

TEST(RouteTest, BiasChoosesOnly) {
  const float bias[] = {0, 0, 10, 0};
  const Router router{
      .num_experts = 4, .experts_per_token = 2, .scores = RouterScores::kSigmoid, .bias = bias};
  const Routed routed = RouteRows(RefKernels(), router, {3, 1, 0, 2});
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(routed.weights[0], 0.5f);
  EXPECT_NEAR(routed.weights[1], 1 / (1 + std::exp(-3.0f)), 1e-6f);
}

// Groups {0, 1}, {2, 3}, {4, 5}: by the greatest the last two tie with the first's second place.
TEST(RouteTest, Groups) {
  Router router{.num_experts = 6,
                .experts_per_token = 2,
                .num_groups = 3,
                .chosen_groups = 1,
                .scores = RouterScores::kSigmoidOfChosen};
  const std::vector<float> logits = {4, -9, 3, 3, 4, -9};
  EXPECT_EQ(RouteRows(RefKernels(), router, logits).experts, (std::vector<int32_t>{0, 1}));
  router.group_score = GroupScore::kTwoGreatest;
  EXPECT_EQ(RouteRows(RefKernels(), router, logits).experts, (std::vector<int32_t>{2, 3}));
  router.chosen_groups = 2;
  EXPECT_EQ(RouteRows(RefKernels(), router, logits).experts, (std::vector<int32_t>{0, 2}));
}

// Logits whose sigmoids are both 1 are told apart.
TEST(RouteTest, ChosenByLogit) {
  Router router{.num_experts = 2, .experts_per_token = 1, .scores = RouterScores::kSigmoid};
  EXPECT_EQ(RouteRows(RefKernels(), router, {30, 40}).experts[0], 0);
  router.scores = RouterScores::kSigmoidOfChosen;
  EXPECT_EQ(RouteRows(RefKernels(), router, {30, 40}).experts[0], 1);
  EXPECT_EQ(RouteRows(RefKernels(), router, {30, 40}).weights[0], 1.0f);
}

TEST(RouteTest, SoftmaxOfTheChosenAlone) {
  const Router router{
      .num_experts = 4, .experts_per_token = 2, .scores = RouterScores::kSoftmaxOfChosen};
  const std::vector<float> logits = {1, 3, 2, 3};
  const Routed routed = RouteRows(RefKernels(), router, logits);
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(routed.weights[0], 0.5f);
  const std::vector<float> apart = {0, 5, -1, 4};
  EXPECT_NEAR(RouteRows(RefKernels(), router, apart).weights[0], 1 / (1 + std::exp(-1.0f)), 1e-6f);
  ExpectAllSets(router, logits);
  ExpectAllSets(router, apart);
}

TEST(RouteTest, ANaNIsItsRowsAlone) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinity = std::numeric_limits<float>::infinity();
  for (const RouterScores scores :
       {RouterScores::kSoftmax, RouterScores::kSigmoid, RouterScores::kSigmoidOfChosen}) {
    const Router router{.num_experts = 3, .experts_per_token = 2, .scores = scores};
    const std::vector<float> logits = {1, 2, 3, 1, nan, 3, nan, nan, nan, infinity, 1, 2, 3, 2, 1};
    const Routed routed = RouteRows(RefKernels(), router, logits);
    const bool of_infinity = scores == RouterScores::kSoftmax;
    const bool expected[] = {false, true, true, of_infinity, false};
    for (size_t slot = 0; slot < routed.weights.size(); ++slot)
      EXPECT_EQ(std::isnan(routed.weights[slot]), expected[slot / 2]) << slot;
    EXPECT_EQ(routed.experts[2], 0);
    EXPECT_EQ(routed.experts[3], 1);
    EXPECT_EQ(routed.experts[8], 0);
    EXPECT_EQ(routed.experts[9], 1);
    ExpectAllSets(router, logits);
  }
}

TEST(RouteTest, AllSetsAgree) {
  std::mt19937_64 rng(7);
  struct Shape {
    int experts, k, groups, chosen;
  };
  const Shape shapes[] = {{8, 2, 1, 1},  {128, 8, 1, 1}, {256, 8, 8, 4},
                          {4, 4, 1, 1},  {16, 1, 1, 1},  {160, 6, 8, 3},
                          {33, 5, 3, 2}, {7, 7, 1, 1},   {1, 1, 1, 1}};
  for (const Shape& shape : shapes) {
    std::vector<float> bias(static_cast<size_t>(shape.experts));
    for (float& b : bias) b = static_cast<float>(rng() % 5) * 0.125f;
    // Few values, so that many tie.
    std::vector<float> logits(static_cast<size_t>(shape.experts) * 20);
    for (float& logit : logits) logit = static_cast<float>(rng() % 9) - 4;
    for (const RouterScores scores :
         {RouterScores::kSoftmax, RouterScores::kSigmoid, RouterScores::kSigmoidOfChosen,
          RouterScores::kSoftmaxOfChosen}) {
      for (const GroupScore group_score : {GroupScore::kGreatest, GroupScore::kTwoGreatest}) {
        if (group_score == GroupScore::kTwoGreatest && shape.experts == shape.groups) continue;
        Router router{shape.experts, shape.k, shape.groups, shape.chosen, scores, group_score};
        ExpectAllSets(router, logits);
        router.bias = bias.data();
        router.renormalize = true;
        router.epsilon = 1e-20f;
        router.scale = 2.5f;
        ExpectAllSets(router, logits);
        router.expert_scales = bias.data();
        ExpectAllSets(router, logits);
      }
    }
  }
}

TEST(GroupRowsTest, ConsecutiveAndAscending) {
  const std::vector<int32_t> experts = {3, 0, 0, 1, 3, 1, 1, 0};  // 4 rows of 2
  std::vector<int32_t> offsets(6, -1), source(8, -1), positions(8, -1);
  const GroupRowsArgs args{experts.data(),  4, 2, 5, offsets.data(), source.data(),
                           positions.data()};
  testing::Team team(2, 1 << 20);
  team.Run([&](const device::WorkerContext& context) { RefKernels().group_rows(args, context); });
  EXPECT_EQ(offsets, (std::vector<int32_t>{0, 3, 6, 6, 8, 8}));
  EXPECT_EQ(source, (std::vector<int32_t>{0, 1, 3, 1, 2, 3, 0, 2}));
  for (size_t slot = 0; slot < experts.size(); ++slot) {
    const auto position = static_cast<size_t>(positions[slot]);
    EXPECT_EQ(source[position], static_cast<int32_t>(slot / 2));
    EXPECT_LE(offsets[static_cast<size_t>(experts[slot])], positions[slot]);
    EXPECT_GT(offsets[static_cast<size_t>(experts[slot]) + 1], positions[slot]);
  }
}

template <typename T>
std::vector<T> Random(size_t n, std::mt19937_64& rng) {
  std::vector<T> values(n);
  for (T& value : values)
    value = tensor::RoundTo<T>(static_cast<float>(rng() % 2001) * 1e-3f - 1.0f);
  return values;
}

// Adds to rows of T, or keeps the sums (`Out` is float and `sums`).
template <typename T, typename Out = T>
void ExpectCombined(int rows, int slots, int columns, bool weighted, bool shared,
                    bool sums = false) {
  std::mt19937_64 rng(static_cast<uint64_t>(rows * 100 + slots));
  const auto n = static_cast<size_t>(rows) * columns;
  const std::vector<T> expert_rows = Random<T>(n * slots, rng);
  const std::vector<Out> residual = Random<Out>(n, rng);
  const std::vector<float> weights = Random<float>(static_cast<size_t>(rows) * slots, rng),
                           shared_rows = Random<float>(n, rng);
  std::vector<int32_t> positions;
  for (int i = 0; i < rows * slots; ++i) positions.push_back(i * 7 % (rows * slots));
  const auto run = [&](const KernelSet& set, int workers) {
    std::vector<Out> y = residual;
    CombineRowsArgs args;
    args.dtype = sizeof(T) == 4 ? tensor::DType::kF32 : tensor::DType::kBF16;
    args.expert_rows = reinterpret_cast<const std::byte*>(expert_rows.data());
    args.positions = positions.data();
    args.weights = weighted ? weights.data() : nullptr;
    args.shared = shared ? shared_rows.data() : nullptr;
    if (sums) {
      args.sums = reinterpret_cast<float*>(y.data());
    } else {
      args.y = reinterpret_cast<std::byte*>(y.data());
    }
    args.rows = rows;
    args.experts_per_token = slots;
    args.columns = columns;
    testing::Team team(workers, 1 << 20);
    team.Run([&](const device::WorkerContext& context) { set.combine_rows(args, context); });
    return y;
  };
  const std::vector<Out> expected = run(RefKernels(), 1);
  // The first value by hand, in double.
  double sum = shared ? shared_rows[0] : 0;
  for (int slot = 0; slot < slots; ++slot) {
    const auto from = static_cast<size_t>(positions[static_cast<size_t>(slot)] * columns);
    sum += static_cast<double>(weighted ? weights[static_cast<size_t>(slot)] : 1.0f) *
           static_cast<double>(tensor::ToFloat(expert_rows[from]));
  }
  if (!sums) sum += static_cast<double>(tensor::ToFloat(residual[0]));
  EXPECT_NEAR(tensor::ToFloat(expected[0]), sum, 0.02);
  for (const KernelSet* set : AvailableKernels()) {
    for (const int workers : {1, 3}) {
      EXPECT_EQ(std::memcmp(run(*set, workers).data(), expected.data(), n * sizeof(Out)), 0)
          << set->name;
    }
  }
}

TEST(CombineRowsTest, AllSetsAgree) {
  for (const int columns : {1, 16, 17, 64, 100}) {
    for (const bool weighted : {false, true}) {
      for (const bool shared : {false, true}) {
        ExpectCombined<tensor::BF16>(5, 3, columns, weighted, shared);
        ExpectCombined<float>(4, 8, columns, weighted, shared);
        ExpectCombined<tensor::BF16, float>(5, 3, columns, weighted, shared, true);
      }
    }
  }
}

TEST(WeighRowsTest, RoundsTheProduct) {
  std::mt19937_64 rng(3);
  const std::vector<tensor::BF16> x = Random<tensor::BF16>(3 * 21, rng);
  const std::vector<float> weights = {0.3f, 0.7f, 1.0f};
  for (const KernelSet* set : AvailableKernels()) {
    std::vector<tensor::BF16> out(x.size());
    const WeighRowsArgs args{tensor::DType::kBF16,
                             reinterpret_cast<const std::byte*>(x.data()),
                             weights.data(),
                             reinterpret_cast<std::byte*>(out.data()),
                             3,
                             21};
    testing::Team team(2, 1 << 20);
    team.Run([&](const device::WorkerContext& context) { set->weigh_rows(args, context); });
    for (size_t i = 0; i < x.size(); ++i)
      EXPECT_EQ(out[i].bits, tensor::ToBF16(weights[i / 21] * tensor::ToFloat(x[i])).bits);
  }
}

}  // namespace
}  // namespace forebay::kernels

#include "choose/least_steps.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "choose/foresee.h"

namespace forebay::choose {
namespace {

TEST(LeastSteps, Table) {
  struct Row {
    const char* rule;
    std::vector<layout::ChoiceShape> job;
    schedule::Limits limits;
    int64_t least;
  };
  const schedule::Limits wide{.max_num_seqs = 100, .max_num_batched_tokens = 1000};
  const Row rows[] = {
      {"nothing to do", {}, wide, 0},
      {"the longest has a step a token", {{10, 7}, {10, 5}}, wide, 7},
      {"and a chunk a step before", {{3000, 7}}, wide, 9},
      {"a prompt that ends with a chunk has no other", {{1000, 7}}, wide, 7},
      {"rows fill steps", std::vector<layout::ChoiceShape>(20, {500, 1}), wide, 10},
      {"answers take turns",
       std::vector<layout::ChoiceShape>(10, {1, 6}),
       {.max_num_seqs = 4, .max_num_batched_tokens = 1000},
       15},
      {"so do those that memory does not hold together",
       std::vector<layout::ChoiceShape>(10, {63, 3}),
       {.max_num_seqs = 100, .max_num_batched_tokens = 1000, .total_blocks = 2},
       30},
      {"a prompt that others have too is nobody's",
       std::vector<layout::ChoiceShape>(10, {.prompt = 63, .output = 3, .shared = 63}),
       {.max_num_seqs = 100, .max_num_batched_tokens = 1000, .total_blocks = 2},
       3},
      {"what is too long does not run", {{10, 7}, {10, 4087}}, wide, 7},
  };
  for (const Row& row : rows)
    EXPECT_EQ(LeastSteps(row.job, row.limits, 4096), row.least) << row.rule;
}

// No schedule takes fewer.
TEST(LeastSteps, NoPolicyTakesFewer) {
  base::Rng rng(9);
  int64_t near = 0;
  for (int round = 0; round < 100; ++round) {
    std::vector<layout::ChoiceShape> job(1 + rng.Below(30));
    for (layout::ChoiceShape& choice : job) {
      choice = {.prompt = static_cast<int64_t>(1 + rng.Below(300)),
                .output = static_cast<int64_t>(1 + rng.Below(60))};
      choice.bound = choice.output;
    }
    const schedule::Limits limits{
        .max_num_seqs = static_cast<int32_t>(1 + rng.Below(12)),
        .max_num_batched_tokens = static_cast<int32_t>(16 + rng.Below(99)),
        .total_blocks = static_cast<int32_t>(12 + rng.Below(40))};
    for (const char* name : {"continuous", "adaptive", "makespan", "vllm"}) {
      const auto policy = *schedule::CreatePolicy(name);
      const int replicas = static_cast<int>(1 + rng.Below(3));
      const JobForecast forecast =
          Foresee({.job = job,
                   .replicas = replicas,
                   .choices = {.limits = limits,
                               .prefix_caching = false,
                               .max_blocks_per_sequence = limits.total_blocks},
                   .max_model_len = 4096,
                   .policy = policy.get(),
                   .price = [](const PricedStep&, std::span<double> stages) { stages[0] = 1; }});
      const int64_t least = LeastSteps(job, limits, 4096);
      ASSERT_LE(least, forecast.steps) << round << ": " << name;
      near += replicas == 1 && 10 * forecast.steps < 15 * least;
    }
  }
  EXPECT_GT(near, 50) << "it says nothing";
}

}  // namespace
}  // namespace forebay::choose

#include "choose/job_forecast.h"

#include <gtest/gtest.h>

#include <vector>

namespace forebay::choose {
namespace {

// A step takes a second; one that is taken together half of it.
ForecastQuestion Question(std::span<const layout::ChoiceShape> job, const schedule::Policy& policy,
                          int32_t blocks) {
  return {.job = job,
          .limits = {.max_num_seqs = 8,
                     .max_num_batched_tokens = 64,
                     .block_tokens = 32,
                     .total_blocks = blocks},
          .policy = &policy,
          .alone = [](const price::StepLoad&) { return 1.0; },
          .together = [](const price::StepLoad&, const price::RowsOfAll&) { return 0.5; },
          .group = {}};
}

TEST(JobForecast, Table) {
  struct Case {
    const char* what;
    std::vector<layout::ChoiceShape> job;
    int replicas;
    int32_t blocks;
    layout::GroupOptions group;
    double seconds;
    int64_t steps_together, preemptions;
  };
  const layout::ChoiceShape small{32, 4, 100}, large{64, 65, 100};
  const layout::GroupOptions ships{.num_replicas = 2, .by_load = false, .most_rows = 4},
      by_load{.num_replicas = 2, .by_load = true, .threshold = 4, .most_rows = 4, .patience = 1};
  const std::vector<Case> cases = {
      {"a prompt and a token, then a token a step", {small}, 1, 100, {}, 4, 0, 0},
      {"a prompt of two steps", {{128, 4, 100}}, 1, 100, {}, 5, 0, 0},
      {"two prompts fill a step", {small, small}, 1, 100, {}, 4, 0, 0},
      {"a third waits for the next", {small, small, small}, 1, 100, {}, 5, 0, 0},
      {"two replicas have one each", {small, small}, 2, 100, {}, 4, 0, 0},
      {"no room for a second one", {small, small}, 1, 3, {}, 8, 0, 0},
      {"of two that grow beyond the blocks the later is computed again",
       {large, large},
       1,
       7,
       {},
       0,
       0,
       1},
      {"prompts of more rows than ship, then all steps together",
       {small, small},
       2,
       100,
       ships,
       1 + 3 * 0.5,
       6,
       0},
      {"a load that is low when the last prompt is read, at which the first has begun a step alone",
       {{32, 20, 100}, {32, 20, 100}},
       2,
       100,
       by_load,
       1 + 1 + 19 * 0.5,
       37,
       0},
  };
  const auto policy = *schedule::CreatePolicy("continuous");
  for (const Case& c : cases) {
    ForecastQuestion question = Question(c.job, *policy, c.blocks);
    question.replicas = c.replicas;
    question.group = c.group;
    const JobForecast forecast = ForecastJob(question);
    if (c.seconds > 0) {
      EXPECT_DOUBLE_EQ(forecast.seconds, c.seconds) << c.what;
    }
    EXPECT_EQ(forecast.steps_together, c.steps_together) << c.what;
    EXPECT_EQ(forecast.preemptions, c.preemptions) << c.what;
    EXPECT_EQ(forecast.recomputed_tokens > 0, c.preemptions > 0) << c.what;
    int64_t tokens = 0;
    for (const layout::ChoiceShape& choice : c.job) tokens += choice.output;
    EXPECT_EQ(forecast.output_tokens, tokens) << c.what;
  }
}

// Equal steps at once come to the same as one after another.
TEST(JobForecast, EqualStepsAreSummed) {
  const std::vector<layout::ChoiceShape> job = {{32, 200, 300}, {40, 90, 300}, {64, 120, 300}};
  const auto policy = *schedule::CreatePolicy("continuous");
  ForecastQuestion question = Question(job, *policy, 100);
  int64_t priced = 0;
  question.alone = [&](const price::StepLoad& load) {
    ++priced;
    return 1.0 + 0.01 * static_cast<double>(load.sums.decode_context);
  };
  const JobForecast forecast = ForecastJob(question);
  // Each token but a choice's first has a row, which sees what is known by then.
  double context = 0;
  for (const layout::ChoiceShape& choice : job) {
    for (int64_t generated = 1; generated < choice.output; ++generated)
      context += static_cast<double>(choice.prompt + generated);
  }
  EXPECT_NEAR(forecast.seconds, static_cast<double>(forecast.steps) + 0.01 * context, 1e-6);
  EXPECT_EQ(forecast.output_tokens, 410);
  EXPECT_LT(priced, 30);
}

// Who meets waits for the slowest: here for the longer context, and for more rows elsewhere.
TEST(JobForecast, TheSlowestDecidesWhereAllMeet) {
  const auto policy = *schedule::CreatePolicy("continuous");
  const auto seconds = [&](std::vector<layout::ChoiceShape> job) {
    ForecastQuestion question = Question(job, *policy, 1000);
    question.replicas = 2;
    question.group = {.num_replicas = 2, .by_load = false, .most_rows = 64};
    question.together = [](const price::StepLoad& load, const price::RowsOfAll&) {
      return 1.0 + static_cast<double>(load.rows()) +
             0.01 * static_cast<double>(load.sums.decode_context);
    };
    return ForecastJob(question).seconds;
  };
  // Both orders: whichever replica has which prompt.
  EXPECT_DOUBLE_EQ(seconds({{16, 2, 100}, {48, 2, 100}}), 1 + 48 + 2 + .49);
  EXPECT_DOUBLE_EQ(seconds({{48, 2, 100}, {16, 2, 100}}), 1 + 48 + 2 + .49);
  // Two short ones beside a long one: the same context in more rows.
  EXPECT_DOUBLE_EQ(seconds({{48, 2, 100}, {24, 2, 100}, {24, 2, 100}}), 1 + 48 + 3 + .5);
}

// Two stages: each has its step of prompts, of which the second comes to each stage behind the
// first; then steps of decoding follow each other without a gap.
TEST(JobForecast, LongerStepsFillThePipelineFirst) {
  const std::vector<layout::ChoiceShape> job = {{64, 4, 100}, {64, 4, 100}};
  const auto policy = *schedule::CreatePolicy("continuous");
  ForecastQuestion question = Question(job, *policy, 100);
  question.alone = [](const price::StepLoad& load) {
    return load.sums.prefill_rows > 0 ? 8.0 : 1.0;
  };
  // The second prompt's last row has no place beside the first choice's row in the second step.
  EXPECT_DOUBLE_EQ(ForecastJob(question).seconds, 8 + 8 + 4);
  question.stages = 2;
  question.limits.max_num_batched_tokens *= 2;
  EXPECT_DOUBLE_EQ(ForecastJob(question).seconds, 8 * 1.5 + 3);
  // A prompt alone waits for none.
  question.job = question.job.first(1);
  EXPECT_DOUBLE_EQ(ForecastJob(question).seconds, 8 + 3);
}

// A policy that packs by lengths learns them from the choices that have ended, as in the engine:
// a bound that none comes near costs only the first of them.
TEST(JobForecast, PoliciesLearnLengths) {
  const std::vector<layout::ChoiceShape> job(20, {32, 4, 100'000});
  const auto adaptive = *schedule::CreatePolicy("adaptive"),
             continuous = *schedule::CreatePolicy("continuous");
  const double learned = ForecastJob(Question(job, *adaptive, 40)).seconds,
               packed = ForecastJob(Question(job, *continuous, 40)).seconds;
  EXPECT_GT(learned, packed);
  EXPECT_LE(learned, packed + 8);
}

TEST(JobForecast, ASampleHasTheJobsLengths) {
  std::vector<layout::ChoiceShape> job;
  for (int64_t i = 0; i < 1000; ++i) job.push_back({.prompt = i + 1, .output = 7});
  EXPECT_EQ(SampleJob(job, 5000).job.size(), 1000u);
  const JobSample sample = SampleJob(job, 100);
  ASSERT_EQ(sample.job.size(), 100u);
  EXPECT_DOUBLE_EQ(sample.times, 10);
  EXPECT_EQ(sample.job.back().prompt, 991);
}

}  // namespace
}  // namespace forebay::choose

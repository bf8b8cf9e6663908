#include "choose/foresee.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <vector>

#include "base/rng.h"

namespace forebay::choose {
namespace {

using layout::ChoiceShape;
using layout::GroupOptions;

// Seconds of a step by its load, and of one that all take together.
using Seconds = std::function<double(const price::StepLoad&)>;
std::function<void(const PricedStep&, std::span<double>)> Price(Seconds alone, Seconds together) {
  return [=](const PricedStep& step, std::span<double> stages) {
    const double seconds = (step.mode.meets() ? together : alone)(step.load);
    for (double& stage : stages) stage = seconds / static_cast<double>(stages.size());
  };
}
double OneSecond(const price::StepLoad&) { return 1; }
double HalfASecond(const price::StepLoad&) { return 0.5; }

// A step takes a second; one that is taken together half of it.
ForeseeQuestion Question(std::span<const ChoiceShape> job, const schedule::Policy& policy,
                         int32_t blocks) {
  return {.job = job,
          .choices = {.limits = {.max_num_seqs = 8,
                                 .max_num_batched_tokens = 64,
                                 .block_tokens = 32,
                                 .total_blocks = blocks},
                      .prefix_caching = false,
                      .max_blocks_per_sequence = blocks},
          .max_model_len = blocks * 32,
          .policy = &policy,
          .price = Price(OneSecond, HalfASecond)};
}

TEST(Foresee, Table) {
  struct Case {
    const char* what;
    std::vector<ChoiceShape> job;
    int replicas;
    int32_t blocks;
    std::optional<GroupOptions> group;
    double seconds;
    int64_t steps_together, preemptions;
  };
  const ChoiceShape small{32, 4, 100}, large{64, 65, 100};
  const GroupOptions ships{.num_replicas = 2, .by_load = false, .most_rows = 4},
      by_load{.num_replicas = 2,
              .by_load = true,
              .load = {.threshold = 4, .patience = 1},
              .most_rows = 4};
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
    ForeseeQuestion question = Question(c.job, *policy, c.blocks);
    question.replicas = c.replicas;
    question.agreement = c.group;
    const JobForecast forecast = Foresee(question);
    if (c.seconds > 0) {
      EXPECT_DOUBLE_EQ(forecast.seconds, c.seconds) << c.what;
    }
    EXPECT_EQ(forecast.steps_together, c.steps_together) << c.what;
    EXPECT_EQ(forecast.preemptions, c.preemptions) << c.what;
    EXPECT_EQ(forecast.recomputed_tokens > 0, c.preemptions > 0) << c.what;
    int64_t tokens = 0;
    for (const ChoiceShape& choice : c.job) tokens += choice.output;
    EXPECT_EQ(forecast.output_tokens, tokens) << c.what;
  }
}

// Equal steps at once come to the same as one after another.
TEST(Foresee, EqualStepsAreSummed) {
  const std::vector<ChoiceShape> job = {{32, 200, 300}, {40, 90, 300}, {64, 120, 300}};
  const auto policy = *schedule::CreatePolicy("continuous");
  ForeseeQuestion question = Question(job, *policy, 100);
  int64_t priced = 0;
  question.price = Price(
      [&](const price::StepLoad& load) {
        ++priced;
        return 1.0 + 0.01 * static_cast<double>(load.sums.decode_context);
      },
      {});
  const JobForecast forecast = Foresee(question);
  // Each token but a choice's first has a row, which sees what is known by then.
  double context = 0;
  for (const ChoiceShape& choice : job) {
    for (int64_t generated = 1; generated < choice.output; ++generated)
      context += static_cast<double>(choice.prompt + generated);
  }
  EXPECT_NEAR(forecast.seconds, static_cast<double>(forecast.steps) + 0.01 * context, 1e-6);
  EXPECT_EQ(forecast.output_tokens, 410);
  EXPECT_LT(priced, 30);
}

// A job that takes longer than anybody wants to know is followed to that time.
TEST(Foresee, StopsWhereItIsTooLate) {
  const std::vector<ChoiceShape> job(20, {32, 4, 100});
  const auto policy = *schedule::CreatePolicy("continuous");
  ForeseeQuestion question = Question(job, *policy, 100);
  const JobForecast whole = Foresee(question);
  EXPECT_FALSE(whole.stopped);
  question.most_seconds = whole.seconds;
  EXPECT_FALSE(Foresee(question).stopped);
  question.most_seconds = whole.seconds / 2;
  const JobForecast half = Foresee(question);
  EXPECT_TRUE(half.stopped);
  EXPECT_GT(half.seconds, question.most_seconds);
  EXPECT_LT(half.seconds, whole.seconds);
  EXPECT_EQ(half.tokens_per_s(), 0);
}

// Steps taken alone say what they would save together, those of prompts too long to ship nothing.
TEST(Foresee, StepsAloneSayWhatTheySaveTogether) {
  const std::vector<ChoiceShape> job(2, {32, 20, 100});
  const auto policy = *schedule::CreatePolicy("continuous");
  ForeseeQuestion question = Question(job, *policy, 100);
  question.replicas = 2;
  question.agreement = {
      .num_replicas = 2, .by_load = true, .load = {.threshold = 0}, .most_rows = 4};
  const JobForecast alone = Foresee(question);
  EXPECT_EQ(alone.steps_together, 0);
  EXPECT_DOUBLE_EQ(alone.together_saves, 19 * 0.5);
  question.price = Price(HalfASecond, OneSecond);
  EXPECT_EQ(Foresee(question).together_saves, 0);
}

// Who meets waits for the slowest: here for the longer context, and for more rows elsewhere.
TEST(Foresee, TheSlowestDecidesWhereAllMeet) {
  const auto policy = *schedule::CreatePolicy("continuous");
  const auto seconds = [&](std::vector<ChoiceShape> job) {
    ForeseeQuestion question = Question(job, *policy, 1000);
    question.replicas = 2;
    question.agreement = {.num_replicas = 2, .by_load = false, .most_rows = 64};
    question.price = Price({}, [](const price::StepLoad& load) {
      return 1.0 + static_cast<double>(load.rows()) +
             0.01 * static_cast<double>(load.sums.decode_context);
    });
    return Foresee(question).seconds;
  };
  // Both orders: whichever replica has which prompt.
  EXPECT_DOUBLE_EQ(seconds({{16, 2, 2}, {48, 2, 2}}), 1 + 48 + 2 + 0.49);
  EXPECT_DOUBLE_EQ(seconds({{48, 2, 2}, {16, 2, 2}}), 1 + 48 + 2 + 0.49);
  // Two short ones beside a long one: about the same context in more rows.
  EXPECT_DOUBLE_EQ(seconds({{48, 2, 2}, {23, 2, 2}, {23, 2, 2}}), 1 + 48 + 3 + 0.48);
}

// Two stages: each has its step of prompts, of which the second comes to each stage behind the
// first; then steps of decoding follow each other without a gap.
TEST(Foresee, LongerStepsFillThePipelineFirst) {
  const std::vector<ChoiceShape> job = {{64, 4, 100}, {64, 4, 100}};
  const auto policy = *schedule::CreatePolicy("continuous");
  ForeseeQuestion question = Question(job, *policy, 100);
  question.price =
      Price([](const price::StepLoad& load) { return load.sums.prefill_rows > 0 ? 8.0 : 1.0; }, {});
  // The second prompt's last row has no place beside the first choice's row in the second step.
  EXPECT_DOUBLE_EQ(Foresee(question).seconds, 8 + 8 + 4);
  question.stages = question.choices.steps_in_flight = 2;
  EXPECT_DOUBLE_EQ(Foresee(question).seconds, 8 * 1.5 + 3);
  // A prompt alone waits for none.
  question.job = question.job.first(1);
  EXPECT_DOUBLE_EQ(Foresee(question).seconds, 8 + 3);
}

// A policy that packs by lengths learns them from the choices that have ended, as in the engine:
// a bound that none comes near costs only the first of them.
TEST(Foresee, PoliciesLearnLengths) {
  const std::vector<ChoiceShape> job(20, {32, 4, 100'000});
  const auto adaptive = *schedule::CreatePolicy("adaptive"),
             continuous = *schedule::CreatePolicy("continuous");
  ForeseeQuestion question = Question(job, *adaptive, 40);
  question.choices.lengths = schedule::LengthPredictor::kQuantile;
  const double learned = Foresee(question).seconds,
               packed = Foresee(Question(job, *continuous, 40)).seconds;
  EXPECT_GT(learned, packed);
  EXPECT_LE(learned, packed + 8);
}

// One has what the other would still have to do when it is done.
TEST(Foresee, ReplicasStealFromEachOther) {
  // Bounds hide that every other one is short: the second replica gets these. A row takes a second.
  const std::vector<ChoiceShape> job = {{1, 100, 100}, {1, 2, 100},   {1, 100, 100},
                                        {1, 2, 100},   {1, 100, 100}, {1, 2, 100}};
  const auto policy = *schedule::CreatePolicy("continuous");
  ForeseeQuestion question = Question(job, *policy, 100);
  question.replicas = 2;
  question.choices.steal = {.row_seconds = 1};
  question.price =
      Price([](const price::StepLoad& load) { return static_cast<double>(load.rows()); }, {});
  EXPECT_DOUBLE_EQ(Foresee(question).seconds, 3 * 100);
  question.steals = true;
  EXPECT_LT(Foresee(question).seconds, 250);
}

// A replica computes prompts, another goes on with them: the seconds of either's steps, and those
// that a choice takes on its way.
TEST(Foresee, RolesHandOver) {
  struct Case {
    const char* what;
    std::vector<ChoiceShape> job;
    int takers;
    int32_t blocks, places;  // of each
    Seconds step;
    double move_seconds, seconds;
  };
  const ChoiceShape small{32, 4, 100};
  const std::vector<Case> cases = {
      {"the first token there, the others here", {small}, 1, 100, 8, OneSecond, 0, 4},
      {"each role has its steps", {small}, 1, 100, 8, HalfASecond, 0, 1 + 3 * 0.5},
      {"on its way", {small}, 1, 100, 8, OneSecond, 0.25, 4.25},
      {"the third prompt is read while the first two generate",
       {small, small, small},
       1,
       100,
       8,
       OneSecond,
       0,
       5},
      {"one after the other has room", {small, small}, 1, 3, 8, OneSecond, 0, 7},
      {"one after the other has a place", {small, small}, 1, 100, 1, OneSecond, 0, 7},
      {"each goes to a replica of its own", {small, small}, 2, 3, 8, OneSecond, 0, 4},
      {"what ends with its prompt goes nowhere", {{32, 1, 100}}, 1, 100, 8, OneSecond, 9, 1},
  };
  const auto policy = *schedule::CreatePolicy("continuous");
  for (const Case& c : cases) {
    ForeseeQuestion question = Question(c.job, *policy, 100),
                    generation = Question({}, *policy, c.blocks);
    question.choices.role = GroupRole::kContext;
    question.generation = &generation;
    generation.choices.role = GroupRole::kGeneration;
    generation.choices.limits.max_num_seqs = c.places;
    generation.choices.steal.move_seconds = c.move_seconds;
    generation.replicas = c.takers;
    generation.price = Price(c.step, {});
    const JobForecast forecast = Foresee(question);
    EXPECT_DOUBLE_EQ(forecast.seconds, c.seconds) << c.what;
    int64_t tokens = 0;
    for (const ChoiceShape& choice : c.job) tokens += choice.output;
    EXPECT_EQ(forecast.output_tokens, tokens) << c.what;
  }
}

// Where generation replicas are short of room, what was computed stays where it is, and new prompts
// wait for its blocks.
TEST(Foresee, WhatNobodyTakesHoldsUpTheContext) {
  const std::vector<ChoiceShape> job(12, {64, 30, 100});
  const auto policy = *schedule::CreatePolicy("continuous");
  const auto seconds = [&](int32_t context_blocks, int32_t blocks) {
    ForeseeQuestion question = Question(job, *policy, context_blocks),
                    generation = Question({}, *policy, blocks);
    question.choices.role = GroupRole::kContext;
    question.generation = &generation;
    generation.choices.role = GroupRole::kGeneration;
    return Foresee(question).seconds;
  };
  // Two at a time and all that follow at once, or one by one.
  EXPECT_LT(seconds(100, 100), 80);
  const double narrow = seconds(100, 4);
  EXPECT_DOUBLE_EQ(narrow, 1 + 12 * 29);
  // Prompts are read in time though no more than one fits beside what waits.
  EXPECT_DOUBLE_EQ(seconds(6, 4), narrow);
}

// Groups of any number, whose replicas have stages and may steal.
void SetAtRandom(int most_replicas, base::Rng* rng, ForeseeQuestion* question) {
  const auto below = [&](int most) {
    return static_cast<int>(rng->Below(static_cast<uint64_t>(most)));
  };
  question->max_model_len = 320;
  if (question->policy->wants_lengths())
    question->choices.lengths = schedule::LengthPredictor::kQuantile;
  question->groups = 1 + below(2);
  question->replicas = 1 + below(most_replicas);
  question->stages = question->choices.steps_in_flight = 1 + below(3);
  question->steals = below(2) == 0;
  question->choices.steal = {.row_seconds = 0.1, .kv_token_seconds = 1e-3, .move_seconds = 0.01};
}

// Whatever the roles' groups and the policy: all choices come to their end, siblings too.
TEST(Foresee, RandomJobsGoOver) {
  int64_t preemptions = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    const auto below = [&](uint64_t most) { return static_cast<int32_t>(rng.Below(most)); };
    std::vector<ChoiceShape> job;
    int64_t tokens = 0;
    for (int left = 1 + below(60); left > 0; --left) {
      ChoiceShape choice{.prompt = 1 + below(150), .output = 1 + below(120)};
      if (below(2) == 0) choice.bound = choice.output + below(50);
      for (int siblings = below(4) == 0 ? 1 + below(4) : 1; siblings > 0; --siblings) {
        job.push_back(choice);
        tokens += choice.output;
        choice.shared = choice.prompt;
      }
    }
    const char* const policies[] = {"continuous", "adaptive", "makespan", "vllm", "static_batch"};
    const auto policy = *schedule::CreatePolicy(policies[below(5)]);
    ForeseeQuestion roles[] = {Question(job, *policy, 12 + below(60)),
                               Question({}, *policy, 12 + below(60))};
    for (ForeseeQuestion& role : roles) {
      SetAtRandom(/*most_replicas=*/3, &rng, &role);
      role.choices.prefix_caching = below(2) == 0;
      role.price = [](const PricedStep& step, std::span<double> stages) {
        for (double& stage : stages)
          stage = 1 + 1e-3 * static_cast<double>(step.load.rows() + step.load.sums.context());
      };
    }
    roles[0].choices.role = GroupRole::kContext;
    roles[1].choices.role = GroupRole::kGeneration;
    roles[0].generation = &roles[1];
    const JobForecast forecast = Foresee(roles[0]);
    EXPECT_EQ(forecast.output_tokens, tokens);
    preemptions += forecast.preemptions;
    EXPECT_EQ(Foresee(roles[0]).seconds, forecast.seconds) << "it is no function of the question";
  }
  EXPECT_GT(preemptions, 0);
}

// Whatever the layout, the group and the policy: all choices come to their end, tokens are counted
// once, and no job is sooner done than its longest choice or its prompts can be read.
TEST(Foresee, RandomJobsComeToTheirEnd) {
  int64_t together = 0, preemptions = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    const auto below = [&](uint64_t most) { return static_cast<int32_t>(rng.Below(most)); };
    std::vector<ChoiceShape> job(1 + rng.Below(60));
    int64_t tokens = 0, longest = 0;
    for (ChoiceShape& choice : job) {
      choice = {.prompt = 1 + below(150), .output = 1 + below(120)};
      if (below(2) == 0) choice.bound = choice.output + below(50);
      tokens += choice.output;
      longest = std::max(longest, choice.output);
    }
    const char* const policies[] = {"continuous", "adaptive", "makespan", "vllm"};
    const auto policy = *schedule::CreatePolicy(policies[below(4)]);
    ForeseeQuestion question = Question(job, *policy, 12 + below(60));
    SetAtRandom(/*most_replicas=*/4, &rng, &question);
    if (below(2) == 0) question.choices.kv_reaches = {0, 64};
    if (question.replicas > 1 && below(2) == 0) {
      layout::GroupOptions& group = question.agreement.emplace();
      group.num_replicas = question.replicas;
      group.by_load = below(2) == 0;
      group.load.threshold = 4.0 + below(8);
      group.most_rows = 16 + below(64);
      group.load.patience = 1 + below(8);
    }
    question.price = [](const PricedStep& step, std::span<double> stages) {
      for (double& stage : stages) {
        stage = (step.mode.meets() ? 0.5 : 1) +
                1e-3 * static_cast<double>(step.load.rows() + step.load.sums.context());
      }
    };
    const JobForecast forecast = Foresee(question);
    EXPECT_EQ(forecast.output_tokens, tokens);
    EXPECT_GE(forecast.seconds, 0.5 * static_cast<double>(longest));
    together += forecast.steps_together;
    preemptions += forecast.preemptions;
    EXPECT_EQ(Foresee(question).seconds, forecast.seconds) << "it is no function of the question";
  }
  EXPECT_GT(together, 0);
  EXPECT_GT(preemptions, 0);
}

}  // namespace
}  // namespace forebay::choose

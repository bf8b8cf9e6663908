#include "choose/expert_choice.h"

#include <gtest/gtest.h>

#include <cmath>

#include "weights/book/placement.h"

namespace forebay::choose {
namespace {

// Choices of 68 tokens, for which 100 are kept: a rank with room for `spare` tokens with no expert
// of 256 and 50 less an expert that it holds; 4 ranks; a step takes 10 ms and 0.1 ms a choice, an
// expert that is lacked 1 GB of pulls.
PoolQuestion ExpertQuestion(int64_t spare, double pull_rate) {
  PoolQuestion question{.mean_context = 68, .max_batch = 1000, .pull_rate = pull_rate};
  question.memory = [spare](int64_t size, double least) {
    return PooledMemory{.kv_tokens = std::max<int64_t>(0, spare - 50 * size),
                        .pull_bytes = static_cast<uint64_t>(256 - size) * 1'000'000'000};
  };
  question.step = [](int64_t batch) {
    return cost::Work{.seconds = 10e-3 + 0.1e-3 * static_cast<double>(batch)};
  };
  return question;
}

TEST(ExpertChoice, Table) {
  struct Case {
    const char* what;
    int64_t spare;
    double pull_rate;
    int64_t max_batch;
    int64_t size;
  };
  const Case cases[] = {
      {"a link that hides everything: as large a batch as there can be", 20'000, 1e18, 1000, 64},
      {"more memory than the batch can use: all of it is redundancy", 1'000'000, 1e18, 1000, 253},
      {"a batch that may not grow: what it leaves, 20,000 - 50 n >= 12,000", 20'000, 1e18, 120,
       160},
      {"a link that hides nothing: 168 choices wait for 192 experts, 73 for 3", 20'000, 1e9, 1000,
       253},
      {"room for the least alone", 3400, 1e9, 1000, 64},
      {"nothing fits", 1000, 1e18, 1000, 64},
  };
  const std::vector<int64_t> sizes = weights::ExpertSizes(256, 4);
  ASSERT_EQ(sizes.size(), 64u);
  for (const Case& c : cases) {
    PoolQuestion question = ExpertQuestion(c.spare, c.pull_rate);
    question.max_batch = c.max_batch;
    const ExpertChoice choice = ChooseExpertSize(sizes, question);
    EXPECT_EQ(choice.size, c.size) << c.what;
    EXPECT_LT(choice.trials.size(), 40u) << c.what;
    EXPECT_EQ(choice.trials.front().size, 64);
    EXPECT_EQ(choice.trials.back().size, 253);
    for (const int64_t size : sizes) {
      EXPECT_GE(choice.chosen().tokens_per_s(),
                0.998 * ThroughputOf(question, question.memory(size, 0)).tokens_per_s())
          << c.what << ", " << size;
    }
  }
}

// Steps that ranks take together pull nothing: where these are sooner, memory serves the batch.
TEST(ExpertChoice, StepsTakenTogetherCountWhereTheyAreSooner) {
  const std::vector<int64_t> sizes = weights::ExpertSizes(256, 4);
  PoolQuestion question = ExpertQuestion(20'000, 1e9);
  double seconds = 0;
  bool always = false;
  question.memory = [&, memory = question.memory](int64_t size, double least) {
    PooledMemory ships = memory(size, least);
    ships.together = [&](int64_t) { return seconds; };
    ships.always_together = always;
    return ships;
  };
  seconds = 0.1;
  EXPECT_EQ(ChooseExpertSize(sizes, question).size, 64);
  seconds = 1e6;
  EXPECT_EQ(ChooseExpertSize(sizes, question).size, 253);
  always = true;
  EXPECT_EQ(ChooseExpertSize(sizes, question).size, 64);
}

// A steady state says the most, the job that 160 is best.
TEST(ExpertChoice, TheJobDecidesWhereItIsKnown) {
  PoolQuestion question = ExpertQuestion(20'000, 1e9);
  question.memory = [memory = question.memory](int64_t size, double least) {
    PooledMemory with_job = memory(size, least);
    with_job.job = JobForecast{.seconds = 100 + std::abs(static_cast<double>(size - 160)),
                               .output_tokens = 1000};
    return with_job;
  };
  const ExpertChoice choice = ChooseExpertSize(weights::ExpertSizes(256, 4), question);
  EXPECT_EQ(choice.size, 160);
  EXPECT_DOUBLE_EQ(choice.chosen().tokens_per_s(), 10);
}

}  // namespace
}  // namespace forebay::choose

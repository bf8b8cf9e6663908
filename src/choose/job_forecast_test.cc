#include "choose/job_forecast.h"

#include <gtest/gtest.h>

#include <vector>

namespace forebay::choose {
namespace {

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

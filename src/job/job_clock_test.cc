#include "job/job_clock.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace forebay::job {
namespace {

std::optional<std::string> Find(const std::string& content) {
  const std::string path = testing::TempDir() + "/job_clock_test.jsonl";
  std::ofstream(path, std::ios::binary) << content;
  const auto found = FindJobClock(path);
  std::remove(path.c_str());
  return found;
}

TEST(JobClock, IsTakenFromTheFirstResultThatCarriesOne) {
  EXPECT_EQ(Find("{\"error\":1}\n"
                 "{\"text\":\"\\\"system_fingerprint\\\":\\\"-now1999\",\"system_fingerprint\":"
                 "\"fb-pair-now2026-03-07T14:05:09\"}\n"
                 "{\"system_fingerprint\":\"fb-pair-now2027-03-07T14:05:09\"}\n"),
            "2026-03-07T14:05:09");
}

TEST(JobClock, NoneWithoutOne) {
  EXPECT_EQ(Find(""), std::nullopt);
  EXPECT_EQ(Find("{\"system_fingerprint\":\"fb-pair\"}\n"), std::nullopt);
  EXPECT_EQ(Find("{\"system_fingerprint\":\"fb-pair-now\n"), std::nullopt);
  EXPECT_EQ(FindJobClock("/nonexistent/file"), std::nullopt);
}

}  // namespace
}  // namespace forebay::job

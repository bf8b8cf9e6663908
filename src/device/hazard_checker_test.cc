#include "device/hazard_checker.h"

#include <gtest/gtest.h>

#include <array>

namespace forebay::device {
namespace {

Operation Touching(const char* label) {
  Operation operation;
  operation.desc.label = label;
  return operation;
}

class HazardCheckerTest : public testing::Test {
 protected:
  std::array<std::byte, 100> memory_;
  HazardChecker checker_;
};

TEST_F(HazardCheckerTest, WriteDuringReadIsAConflict) {
  checker_.Begin("rank 0 compute", Touching("gemm").Reads(&memory_[0], 50));
  checker_.Begin("rank 1 weights copy", Touching("pull").Writes(&memory_[40], 60));
  EXPECT_EQ(checker_.num_conflicts(), 1);
  EXPECT_EQ(checker_.status().code(), kHazard);
  EXPECT_EQ(checker_.status().message(),
            "'gemm' on rank 0 compute reads 10 bytes that 'pull' on rank 1 weights copy writes at "
            "the same time");
}

TEST_F(HazardCheckerTest, ReadersAndNeighboursAgree) {
  checker_.Begin("a", Touching("one").Reads(&memory_[0], 50).Writes(&memory_[80], 20));
  checker_.Begin(
      "b", Touching("two").Reads(&memory_[0], 50).Writes(&memory_[50], 30).Writes(&memory_[90], 0));
  EXPECT_TRUE(checker_.status().ok()) << checker_.status().ToString();
}

TEST_F(HazardCheckerTest, WhatHasEndedConflictsNoMore) {
  const int64_t token = checker_.Begin("a", Touching("one").Writes(&memory_[0], 50));
  checker_.End(token);
  checker_.Begin("b", Touching("two").Writes(&memory_[0], 50));
  EXPECT_TRUE(checker_.status().ok());
  checker_.Begin("c", Touching("three").Writes(&memory_[49], 1));
  EXPECT_FALSE(checker_.status().ok());
}

}  // namespace
}  // namespace forebay::device

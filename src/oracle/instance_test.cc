#include "oracle/instance.h"

#include <gtest/gtest.h>

namespace forebay::oracle {
namespace {

Profile ProfileOf(Form form) {
  const Lengths lengths[] = {{.prompt = 10, .output = 3}};
  return MakeInstance(lengths, 100, form, 4)->requests[0];
}

TEST(Instance, HoldsWhatTheFormSays) {
  EXPECT_EQ(ProfileOf(Form::kPrinted), (Profile{13, 13, 13}));
  EXPECT_EQ(ProfileOf(Form::kGrown), (Profile{11, 12, 13}));
  EXPECT_EQ(ProfileOf(Form::kChunked), (Profile{4, 8, 11, 12, 13}));
}

TEST(Instance, RefusesWhatCannotBePacked) {
  const auto error = [](std::vector<Lengths> requests, int64_t capacity, Form form, int64_t chunk) {
    const auto made = MakeInstance(requests, capacity, form, chunk);
    return made.ok() ? "" : made.status().ToString();
  };
  EXPECT_EQ(error({{5, 5}, {10, 3}}, 12, Form::kGrown, 0),
            "request 2 holds 13 tokens, more than the capacity of 12 [pack_invalid]");
  EXPECT_EQ(error({{5, 0}}, 12, Form::kGrown, 0),
            "request 1 has a prompt of 5 and an output of 0 tokens; expected at least 1 of each "
            "[pack_invalid]");
  EXPECT_EQ(error({}, 0, Form::kGrown, 0),
            "a capacity of 0 tokens; expected at least 1 [pack_invalid]");
  EXPECT_EQ(error({}, 1, Form::kChunked, 0),
            "a chunk of 0 tokens; expected at least 1 [pack_invalid]");
  EXPECT_EQ(ParseForm("paper").status().ToString(),
            "form \"paper\"; expected printed, grown or chunked [pack_invalid]");
}

TEST(Instance, LowerBoundIsTheLargestOfThree) {
  const auto bound = [](std::vector<Lengths> requests, int64_t capacity) {
    return LowerBound(*MakeInstance(requests, capacity, Form::kPrinted, 0));
  };
  EXPECT_EQ(bound({{1, 9}, {1, 2}}, 100), 9);              // the longest stay
  EXPECT_EQ(bound({{2, 2}, {2, 2}, {2, 2}}, 4), 6);        // all tokens over the capacity
  EXPECT_EQ(bound({{50, 6}, {50, 6}, {50, 6}}, 100), 18);  // each holds more than half
}

TEST(InstanceDeathTest, AnInvalidPackingIsFound) {
  const Lengths lengths[] = {{.prompt = 6, .output = 2}, {.prompt = 6, .output = 2}};
  const Instance instance = *MakeInstance(lengths, 10, Form::kPrinted, 0);
  CheckPacking(instance, {.begin = {0, 2}, .makespan = 4});
  EXPECT_DEATH(CheckPacking(instance, {.begin = {0, 1}, .makespan = 3}), "16 tokens at step 1");
}

}  // namespace
}  // namespace forebay::oracle

#include "sample/stop.h"

#include <gtest/gtest.h>

namespace forebay::sample {
namespace {

constexpr int32_t kEnd[] = {2, 3};

// Feeds tokens 100, 101, .. with these texts until the choice ends; returns the pieces taken.
size_t Feed(StopConditions& stop, const std::vector<std::string>& pieces) {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const bool ends = stop.AddToken(100 + static_cast<int32_t>(i));
    EXPECT_EQ(ends, stop.finish().has_value());
    if (stop.wants_text()) stop.AddText(pieces[i]);
    if (stop.finish()) return i + 1;
  }
  return pieces.size();
}

TEST(StopConditionsTest, EndsByEachKindOfId) {
  SamplingParams params{.stop_token_ids = {7, 3}};
  const std::vector<std::pair<int32_t, std::optional<int32_t>>> table = {{2, {}}, {3, {}}, {7, 7}};
  for (const auto& [token, reason] : table) {
    StopConditions stop(params, kEnd, 100);
    EXPECT_FALSE(stop.AddToken(50));
    stop.AddText("a");
    EXPECT_FALSE(stop.finish());
    EXPECT_TRUE(stop.AddToken(token));
    ASSERT_TRUE(stop.finish());
    EXPECT_EQ(stop.finish()->reason, FinishReason::kStop);
    EXPECT_EQ(stop.finish()->stop_token, reason);
    EXPECT_FALSE(stop.wants_text());
    EXPECT_EQ(stop.text(), "a");
  }
  params.ignore_eos = true;
  StopConditions stop(params, kEnd, 100);
  stop.AddToken(2);
  EXPECT_FALSE(stop.finish());
  stop.AddToken(3);
  EXPECT_EQ(stop.finish()->stop_token, 3);
}

TEST(StopConditionsTest, IncludeStopKeepsTheTextOfAStopId) {
  const SamplingParams params{.stop_token_ids = {7}, .include_stop_str_in_output = true};
  StopConditions stop(params, kEnd, 100);
  stop.AddToken(7);
  EXPECT_TRUE(stop.wants_text());
}

TEST(StopConditionsTest, EndsByLength) {
  for (const auto& [max_tokens, max_output, expected] :
       {std::tuple{-1, 3, 3}, {2, 3, 2}, {5, 3, 3}}) {
    const SamplingParams params{.max_tokens = max_tokens};
    StopConditions stop(params, kEnd, max_output);
    EXPECT_EQ(Feed(stop, std::vector<std::string>(9, "x")), static_cast<size_t>(expected));
    EXPECT_EQ(stop.finish()->reason, FinishReason::kLength);
    EXPECT_EQ(stop.text().size(), static_cast<size_t>(expected));
  }
  const SamplingParams params{.max_tokens = 0};
  EXPECT_EQ(StopConditions(params, kEnd, 9).finish()->reason, FinishReason::kLength);
}

TEST(StopConditionsTest, AnEndIdAtTheLastTokenIsAStop) {
  const SamplingParams params{.max_tokens = 1};
  StopConditions stop(params, kEnd, 9);
  stop.AddToken(2);
  EXPECT_EQ(stop.finish()->reason, FinishReason::kStop);
}

TEST(StopConditionsTest, BansEverythingThatEndsUntilMinTokens) {
  const SamplingParams params{.min_tokens = 2, .stop_token_ids = {7}};
  StopConditions stop(params, kEnd, 9);
  EXPECT_EQ(std::vector(stop.banned().begin(), stop.banned().end()),
            (std::vector<int32_t>{2, 3, 7}));
  stop.AddToken(7);
  EXPECT_FALSE(stop.finish());
  EXPECT_EQ(stop.banned().size(), 3u);
  stop.AddToken(50);
  EXPECT_TRUE(stop.banned().empty());
  stop.AddToken(7);
  EXPECT_TRUE(stop.finish());
}

struct StringCase {
  const char* what;
  std::vector<std::string> stop, pieces;
  bool include;
  int32_t min_tokens;
  size_t taken;
  std::string text;
  std::string matched;  // empty: none
};

TEST(StopConditionsTest, StopStrings) {
  const std::vector<StringCase> table = {
      {"within a piece", {"END"}, {"a", "bENDc", "d"}, false, 0, 2, "ab", "END"},
      {"kept when asked for", {"END"}, {"a", "bENDc", "d"}, true, 0, 2, "abEND", "END"},
      {"across pieces", {"\n\nQ:"}, {"x\n", "\n", "Q", ":", "y"}, false, 0, 4, "x", "\n\nQ:"},
      {"a failed beginning restarts inside it",
       {"aab"},
       {"a", "a", "a", "b"},
       false,
       0,
       4,
       "a",
       "aab"},
      {"first to begin, not first in the list",
       {"lo", "hello"},
       {"say hello"},
       false,
       0,
       1,
       "say ",
       "hello"},
      {"at the same place the first in the list", {"ab", "abc"}, {"xabc"}, false, 0, 1, "x", "ab"},
      {"at the same place the first in the list, kept",
       {"abc", "ab"},
       {"xabc"},
       true,
       0,
       1,
       "xabc",
       "abc"},
      {"none", {"z"}, {"a", "b"}, false, 0, 2, "ab", ""},
      {"not before min_tokens", {"b"}, {"a", "b", "c", "b"}, false, 2, 4, "abc", "b"},
      {"begun before min_tokens, ended after",
       {"bc"},
       {"a", "b", "c", "d"},
       false,
       2,
       3,
       "a",
       "bc"},
      {"several bytes a character",
       {"\u00e9\u00e8"},
       {"x\u00e9", "\u00e8y"},
       false,
       0,
       2,
       "x",
       "\u00e9\u00e8"},
      {"an empty piece changes nothing", {"ab"}, {"a", "", "b"}, false, 0, 3, "", "ab"},
  };
  for (const StringCase& row : table) {
    SCOPED_TRACE(row.what);
    const SamplingParams params{
        .min_tokens = row.min_tokens, .stop = row.stop, .include_stop_str_in_output = row.include};
    StopConditions stop(params, kEnd, 100);
    EXPECT_EQ(Feed(stop, row.pieces), row.taken);
    EXPECT_EQ(stop.text(), row.text);
    EXPECT_EQ(stop.finish() ? *stop.finish()->stop_string : "", row.matched);
  }
}

TEST(StopConditionsTest, WhatIsHeldEndsTheChoiceAndElseIsNoTextYet) {
  const SamplingParams params{.min_tokens = 1, .stop = {"\n\n", "\nQ"}};
  StopConditions stop(params, kEnd, 100);
  const auto add = [&](std::string_view piece, std::string_view held) {
    stop.AddToken(100);
    stop.AddText(piece, held);
    return stop.text();
  };
  EXPECT_EQ(add("", "\n\n"), "");  // before min_tokens
  EXPECT_EQ(add("\n\na", ""), "\n\na");
  EXPECT_EQ(add("", "\n"), "\n\na");
  EXPECT_EQ(add("\nR", ""), "\n\na\nR");
  EXPECT_EQ(add("", "\n"), "\n\na\nR");
  EXPECT_FALSE(stop.finish());
  EXPECT_EQ(add("", "\n\n"), "\n\na\nR");
  EXPECT_EQ(stop.finish()->stop_string, "\n\n");
  // A string may begin in the text and end in what is held.
  const SamplingParams across{.stop = {"a\n"}};
  StopConditions other(across, kEnd, 100);
  other.AddToken(100);
  other.AddText("ba", "\n");
  EXPECT_EQ(other.finish()->stop_string, "a\n");
  EXPECT_EQ(other.text(), "b");
}

TEST(StopConditionsTest, AStringInTheLastTokenCountsAsStop) {
  const SamplingParams params{.max_tokens = 1, .stop = {"b"}};
  StopConditions stop(params, kEnd, 100);
  Feed(stop, {"ab"});
  EXPECT_EQ(stop.finish()->reason, FinishReason::kStop);
  EXPECT_EQ(stop.finish()->stop_string, "b");
}

}  // namespace
}  // namespace forebay::sample

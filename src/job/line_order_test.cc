#include "job/line_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/rng.h"
#include "job/testing/files.h"

namespace forebay::job {
namespace {

using ::testing::ElementsAre;

TEST(StartOf, WhatMakesThePromptCounts) {
  const PromptStart chat = StartOf(
      R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"Hi there"}]}})");
  EXPECT_NE(chat, PromptStart());
  EXPECT_EQ(
      StartOf(
          R"({"max_tokens":7,"messages":[{"role":"user","content":[{"type":"text","text":"Hi there"}]}]})"),
      chat)
      << "the form of the line does not";
  EXPECT_NE(StartOf(R"({"messages":[{"role":"system","content":"Hi there"}]})"), chat);
  const PromptStart text = StartOf(R"({"prompt":"abc"})");
  EXPECT_EQ(StartOf(R"({"custom_id":"b","body":{"model":"m","prompt":["abc"]}})"), text);
  EXPECT_NE(StartOf(R"({"prompt":"abd"})"), text);
  EXPECT_NE(StartOf(R"({"prompt":[1,2,3]})"), StartOf(R"({"prompt":[12,3]})"));
  for (const char* bad : {"", "no json", "[1]", "{}", R"({"messages":5})"})
    EXPECT_EQ(StartOf(bad), PromptStart()) << bad;
}

TEST(StartOf, NearAndFar) {
  const auto start = [](const std::string& prompt) {
    return StartOf(R"({"prompt":")" + prompt + R"("})");
  };
  const std::string system(300, 's'), document(3000, 'd');
  const PromptStart a = start(system + document + "a"), b = start(system + document + "b"),
                    c = start(system + "c" + document);
  EXPECT_EQ(a, b) << "they differ behind 2,048 bytes";
  EXPECT_EQ(a.near, c.near);
  EXPECT_NE(a.far, c.far);
  EXPECT_NE(start("x" + system).near, a.near);
}

TEST(GroupByStart, Table) {
  EXPECT_THAT(GroupByStart({}), ElementsAre());
  const PromptStart starts[] = {{7, 1}, {3, 9}, {7, 2}, {5, 5}, {7, 1}, {3, 8}, {7, 2}, {3, 9}};
  EXPECT_THAT(GroupByStart(starts), ElementsAre(0, 4, 2, 6, 1, 7, 5, 3));
  const PromptStart other[] = {{2, 2}, {1, 1}, {0, 0}};
  EXPECT_THAT(GroupByStart(other), ElementsAre(0, 1, 2)) << "nothing is alike";
}

// Each line once, equal starts side by side, near ones too, each in the order of the lines.
TEST(GroupByStart, RandomLines) {
  base::Rng rng(4);
  for (int round = 0; round < 300; ++round) {
    std::vector<PromptStart> starts(rng.Below(60));
    for (PromptStart& start : starts) {
      start.near = static_cast<uint32_t>(rng.Below(6));
      start.far = static_cast<uint32_t>(rng.Below(4));
    }
    const std::vector<uint32_t> order = GroupByStart(starts);
    std::vector<uint32_t> sorted = order;
    std::ranges::sort(sorted);
    for (uint32_t i = 0; i < starts.size(); ++i) ASSERT_EQ(sorted[i], i);
    for (size_t i = 0; i < order.size(); ++i) {
      for (size_t j = i + 1; j < order.size(); ++j) {
        const PromptStart &a = starts[order[i]], &b = starts[order[j]];
        if (a == b) {
          EXPECT_LT(order[i], order[j]);
          EXPECT_EQ(starts[order[j - 1]].near, a.near);
        }
        // Who stands between two of a kind is of that kind.
        for (size_t k = i + 1; k < j; ++k) {
          if (a == b) {
            EXPECT_EQ(starts[order[k]], a);
          }
          if (a.near == b.near) {
            EXPECT_EQ(starts[order[k]].near, a.near);
          }
        }
      }
    }
  }
}

TEST(OrderByStart, ReadsTheFile) {
  const base::TemporaryFolder folder;
  WriteFile(folder / "in.jsonl",
            "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n\nbad\n{\"prompt\":\"a\",\"max_tokens\":3}\n");
  const auto file = JobFile::Open(folder / "in.jsonl");
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(*OrderByStart(*file), ElementsAre(0, 3, 1, 2));
  WriteFile(folder / "in.jsonl", "{\"prompt\":\"c\"}\n");
  EXPECT_EQ(OrderByStart(*file).status().code(), kInputChanged);
}

}  // namespace
}  // namespace forebay::job

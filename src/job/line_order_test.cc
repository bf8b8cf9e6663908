#include "job/line_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/rng.h"
#include "job/lines/parameters.h"
#include "job/testing/files.h"

namespace forebay::job {
namespace {

using ::testing::ElementsAre;

PromptStart SketchStart(std::string_view line) { return SketchOf(line).start; }

std::vector<uint32_t> OrdinalsOf(std::span<const LineSketch> lines) {
  std::vector<uint32_t> ordinals;
  for (const LineSketch& line : lines) ordinals.push_back(line.ordinal);
  return ordinals;
}

std::vector<uint32_t> Grouped(std::span<const PromptStart> starts) {
  std::vector<LineSketch> lines;
  for (const PromptStart& start : starts)
    lines.push_back({.start = start, .ordinal = static_cast<uint32_t>(lines.size())});
  GroupByStart(&lines);
  return OrdinalsOf(lines);
}

TEST(SketchOf, WhatMakesThePromptCounts) {
  const PromptStart chat = SketchStart(
      R"({"custom_id":"a","url":"/v1/chat/completions","body":{"messages":[{"role":"user","content":"Hi there"}]}})");
  EXPECT_NE(chat, PromptStart());
  EXPECT_EQ(
      SketchStart(
          R"({"max_tokens":7,"messages":[{"role":"user","content":[{"type":"text","text":"Hi there"}]}]})"),
      chat)
      << "the form of the line does not";
  EXPECT_NE(SketchStart(R"({"messages":[{"role":"system","content":"Hi there"}]})"), chat);
  const PromptStart text = SketchStart(R"({"prompt":"abc"})");
  EXPECT_EQ(SketchStart(R"({"custom_id":"b","body":{"model":"m","prompt":["abc"]}})"), text);
  EXPECT_NE(SketchStart(R"({"prompt":"abd"})"), text);
  EXPECT_NE(SketchStart(R"({"prompt":[1,2,3]})"), SketchStart(R"({"prompt":[12,3]})"));
  for (const char* bad : {"", "no json", "[1]", "{}", R"({"messages":5})"})
    EXPECT_EQ(SketchStart(bad), PromptStart()) << bad;
}

TEST(SketchOf, NearAndFar) {
  const auto start = [](const std::string& prompt) {
    return SketchStart(R"({"prompt":")" + prompt + R"("})");
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
  EXPECT_THAT(Grouped({}), ElementsAre());
  const PromptStart starts[] = {{7, 1}, {3, 9}, {7, 2}, {5, 5}, {7, 1}, {3, 8}, {7, 2}, {3, 9}};
  EXPECT_THAT(Grouped(starts), ElementsAre(0, 4, 2, 6, 1, 7, 5, 3));
  const PromptStart other[] = {{2, 2}, {1, 1}, {0, 0}};
  EXPECT_THAT(Grouped(other), ElementsAre(0, 1, 2)) << "nothing is alike";
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
    const std::vector<uint32_t> order = Grouped(starts);
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

TEST(SketchOf, Lengths) {
  const auto sketch = [](const std::string& line) {
    const LineSketch of = SketchOf(line);
    return std::array<uint32_t, 3>{of.prompt, of.output, of.choices};
  };
  EXPECT_THAT(sketch(R"({"prompt":"a","max_tokens":70,"n":3})"), ElementsAre(9, 70, 3));
  EXPECT_THAT(sketch(R"({"messages":[],"max_completion_tokens":700000000})"),
              ElementsAre(12, (1 << 24) - 1, 1));
  EXPECT_THAT(sketch(R"({"messages":[]})"), ElementsAre(3, 0, 1));
  EXPECT_THAT(sketch(R"({"prompt":"abc"})"), ElementsAre(4, kCompletionTokens, 1));
  EXPECT_THAT(sketch(R"({"prompt":5,"n":-1,"max_tokens":"x"})"),
              ElementsAre(9, kCompletionTokens, 1));
}

std::vector<LineSketch> Lines(std::span<const uint32_t> outputs) {
  std::vector<LineSketch> lines;
  for (const uint32_t output : outputs) {
    lines.push_back(
        {.ordinal = static_cast<uint32_t>(lines.size()), .prompt = 10, .output = output});
  }
  return lines;
}

TEST(LongOnesInTime, Table) {
  EXPECT_THAT(LongOnesInTime({}, {.kv_tokens = 100}), ElementsAre());
  struct Case {
    const char* what;
    std::vector<uint32_t> outputs;
    double kv_tokens;
    std::vector<uint32_t> order;
    int64_t ahead = 0, tokens_ahead = INT64_MAX;
  };
  const Case cases[] = {
      {"equal ones stay", {8, 8, 8, 8, 8, 8}, 36, {0, 1, 2, 3, 4, 5}},
      {"nothing is known", {0, 0, 0, 0}, 36, {0, 1, 2, 3}},
      {"long ones late move", {8, 8, 8, 8, 8, 8, 8, 64}, 300, {7, 0, 1, 2, 3, 4, 5, 6}},
      {"long ones early stay", {64, 8, 8, 8, 8, 8, 8, 8}, 300, {0, 1, 2, 3, 4, 5, 6, 7}},
      {"one without a bound stays", {8, 8, 8, 8, 8, 8, 64, 0}, 300, {6, 0, 1, 2, 3, 4, 5, 7}},
      {"not more than fit", {8, 8, 8, 8, 8, 8, 64, 64}, 290, {6, 0, 1, 2, 3, 4, 5, 7}},
      {"both fit", {8, 8, 8, 8, 8, 8, 64, 64}, 300, {6, 7, 0, 1, 2, 3, 4, 5}},
      {"all is read ahead", {8, 8, 8, 8, 8, 8, 8, 64}, 300, {0, 1, 2, 3, 4, 5, 6, 7}, 8},
      {"too late when all is", {8, 8, 8, 8, 8, 8, 8, 64}, 300, {7, 0, 1, 2, 3, 4, 5, 6}, 4},
      {"prompts are too long for that",
       {8, 8, 8, 8, 8, 8, 8, 64},
       300,
       {7, 0, 1, 2, 3, 4, 5, 6},
       8,
       40},
      {"in time when all is", {8, 8, 8, 8, 8, 8, 8, 16}, 40, {0, 1, 2, 3, 4, 5, 6, 7}, 5},
      {"without that", {8, 8, 8, 8, 8, 8, 8, 16}, 40, {0, 1, 2, 7, 3, 4, 5, 6}},
  };
  for (const Case& each : cases) {
    const LineOrdering ordering{.kv_tokens = each.kv_tokens,
                                .requests_ahead = each.ahead,
                                .prompt_tokens_ahead = each.tokens_ahead};
    EXPECT_EQ(LongOnesInTime(Lines(each.outputs), ordering), each.order) << each.what;
  }
}

// Each line once; those of a group, as long as each other, side by side; and no long answer begins
// when too little of the job is left, as far as room is.
TEST(LongOnesInTime, RandomLines) {
  base::Rng rng(9);
  for (int round = 0; round < 200; ++round) {
    std::vector<LineSketch> lines(rng.Below(400) + 1);
    for (size_t i = 0; i < lines.size(); ++i) {
      const auto group = static_cast<uint32_t>(rng.Below(50));
      lines[i] = {.start = {group, group},
                  .ordinal = static_cast<uint32_t>(i),
                  .prompt = static_cast<uint32_t>(rng.Below(300)),
                  .output = group % 10 == 0 ? 512u : 16u};
    }
    GroupByStart(&lines);
    const std::vector<uint32_t> order =
        LongOnesInTime(lines, {.kv_tokens = static_cast<double>(500 + rng.Below(100'000))});
    std::vector<uint32_t> sorted = order;
    std::ranges::sort(sorted);
    for (uint32_t i = 0; i < lines.size(); ++i) ASSERT_EQ(sorted[i], i);
    const std::vector<uint32_t> grouped = OrdinalsOf(lines);
    // Groups of short answers are never cut.
    std::vector<uint32_t> short_before, short_after;
    std::vector<uint32_t> output(lines.size());
    for (const LineSketch& line : lines) output[line.ordinal] = line.output;
    for (const uint32_t ordinal : grouped) {
      if (output[ordinal] == 16) short_before.push_back(ordinal);
    }
    for (const uint32_t ordinal : order) {
      if (output[ordinal] == 16) short_after.push_back(ordinal);
    }
    EXPECT_EQ(short_after, short_before);
  }
}

TEST(OrderLines, ReadsTheFile) {
  const base::TemporaryFolder folder;
  WriteFile(
      folder / "in.jsonl",
      "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n\nbad\n{\"prompt\":\"a\",\"max_tokens\":300}\n");
  const auto file = JobFile::Open(folder / "in.jsonl");
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(*OrderLines(*file, {}), ElementsAre());
  EXPECT_THAT(*OrderLines(*file, {LineOrder::kByStart}), ElementsAre(0, 3, 1, 2));
  EXPECT_THAT(*OrderLines(*file, {LineOrder::kMakespan, 400}), ElementsAre(3, 0, 1, 2));
  EXPECT_THAT(*OrderLines(*file, {LineOrder::kByStart}, [](size_t line) { return line == 0; }),
              ElementsAre(1, 2, 3));
  WriteFile(folder / "in.jsonl", "{\"prompt\":\"c\"}\n");
  EXPECT_EQ(OrderLines(*file, {LineOrder::kByStart}).status().code(), kInputChanged);
}

}  // namespace
}  // namespace forebay::job

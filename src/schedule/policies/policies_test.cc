// Each rule of each policy as a row: view -> plan.
#include <gtest/gtest.h>

#include <array>
#include <ostream>

#include "schedule/policy.h"

namespace forebay::schedule {

bool operator==(const RowsOf& a, const RowsOf& b) { return a.index == b.index && a.rows == b.rows; }
void PrintTo(const RowsOf& rows, std::ostream* os) { *os << rows.index << " x " << rows.rows; }

namespace {

using Rows = std::vector<RowsOf>;

struct Row {
  const char* rule;
  StepView view;
  std::vector<int32_t> preempt;
  Rows run;
  Rows admit;
};

constexpr int64_t kLong = 1000;  // remaining output

// A decoding choice with `known` tokens and just the blocks for those computed.
RunningView Decode(int64_t known, int64_t remaining = kLong) {
  return {.known_tokens = known,
          .computed_tokens = known - 1,
          .reserved_blocks = (known - 1 + 31) / 32,
          .remaining_output = remaining,
          .decoding = true};
}
RunningView Prompt(int64_t known, int64_t computed) {
  return {.known_tokens = known,
          .computed_tokens = computed,
          .reserved_blocks = (computed + 31) / 32,
          .remaining_output = kLong};
}
WaitingView Wait(int64_t known, int64_t cached = 0) {
  return {.known_tokens = known, .cached_tokens = cached, .remaining_output = kLong};
}
Limits Of(int32_t seqs, int32_t rows, int32_t blocks) {
  return {.max_num_seqs = seqs, .max_num_batched_tokens = rows, .total_blocks = blocks};
}
Limits Chunked(int32_t seqs, int32_t rows, int32_t blocks, int32_t least) {
  Limits limits = Of(seqs, rows, blocks);
  limits.least_chunk = least;
  return limits;
}

Limits Whole(int32_t seqs, int32_t rows, int32_t blocks) {
  Limits limits = Of(seqs, rows, blocks);
  limits.whole_prompts = true;
  return limits;
}

RunningView Streamed(RunningView choice, int64_t blocks) {
  choice.streamed_blocks = blocks;
  return choice;
}
Limits Streaming(Limits limits, int32_t streamed_blocks) {
  limits.streamed_blocks = streamed_blocks;
  return limits;
}

void Check(std::string_view policy_name, const std::vector<Row>& table) {
  const auto policy = CreatePolicy(policy_name);
  ASSERT_TRUE(policy.ok());
  EXPECT_EQ((*policy)->name(), policy_name);
  StepPlan plan;
  for (const Row& row : table) {
    SCOPED_TRACE(row.rule);
    (*policy)->Plan(row.view, &plan);
    CheckPlan(row.view, plan);
    EXPECT_EQ(plan.preempt, row.preempt);
    EXPECT_EQ(plan.run, row.run);
    EXPECT_EQ(plan.admit, row.admit);
  }
}

RunningView Generated(RunningView choice, int64_t tokens) {
  choice.generated = tokens;
  return choice;
}
Limits OfPrompts(Limits limits, int32_t blocks) {
  limits.prompt_blocks = blocks;
  return limits;
}

TEST(ContinuousTest, Table) {
  RunningView shared = Decode(65);
  shared.exclusive_blocks = 1;
  RunningView siblings = Decode(193);
  siblings.exclusive_blocks = 1;
  WaitingView held = Wait(97, 64);
  held.held_tokens = 64;
  Check(
      "continuous",
      {
          {"nothing to do", {.limits = Of(4, 64, 10)}, {}, {}, {}},
          {"admits in order while rows last, the last in a chunk",
           {.waiting = {Wait(40), Wait(40), Wait(40)},
            .available_blocks = 100,
            .limits = Of(4, 64, 100)},
           {},
           {},
           {{0, 40}, {1, 24}}},
          {"admits while choices last",
           {.running = {Decode(10)},
            .waiting = {Wait(5), Wait(5)},
            .available_blocks = 99,
            .limits = Of(2, 64, 100)},
           {},
           {{0, 1}},
           {{0, 5}}},
          {"whole prompts are not cut, and shorter ones overtake",
           {.waiting = {Wait(40), Wait(40), Wait(20), Wait(9), Wait(4)},
            .available_blocks = 100,
            .limits = Whole(9, 64, 100)},
           {},
           {},
           {{0, 40}, {2, 20}, {4, 4}}},
          {"a prompt waits where fewer rows are left than a chunk has",
           {.running = {Decode(10), Prompt(99, 64), Prompt(500, 32), Prompt(40, 32)},
            .waiting = {Wait(50)},
            .available_blocks = 90,
            .limits = Chunked(9, 66, 100, 32)},
           {},
           {{0, 1}, {1, 35}, {3, 8}},
           {}},
          {"admission does not undercut a chunk, but with the last rows",
           {.waiting = {Wait(40), Wait(20), Wait(50)},
            .available_blocks = 100,
            .limits = Chunked(9, 64, 100, 16)},
           {},
           {},
           {{0, 40}, {1, 20}}},
          {"a chunk is half of a step at most",
           {.running = {Decode(10), Prompt(500, 32)},
            .available_blocks = 90,
            .limits = Chunked(9, 16, 100, 64)},
           {},
           {{0, 1}, {1, 15}},
           {}},
          {"cached tokens are not computed",
           {.waiting = {Wait(40, 32)}, .available_blocks = 100, .limits = Of(4, 64, 100)},
           {},
           {},
           {{0, 8}}},
          {"decodes first, then prompts in order, then admissions",
           {.running = {Prompt(50, 32), Decode(10), Prompt(99, 64)},
            .waiting = {Wait(9)},
            .available_blocks = 90,
            .limits = Of(9, 30, 100)},
           {},
           {{1, 1}, {0, 18}, {2, 11}},
           {}},
          {"what is streamed of one that is preempted can be streamed of others",
           {.running = {Streamed(Decode(481), 11), Streamed(Decode(33), 1)},
            .limits = Streaming(Of(9, 64, 16), 12)},
           {1},
           {{0, 1}},
           {}},
          {"blocks that what is streamed wants back are for those that run",
           {.running = {Streamed(Decode(97), 3)},
            .waiting = {Wait(5)},
            .limits = Streaming(Of(9, 64, 12), 2)},
           {},
           {{0, 1}},
           {}},
          {"decodes alone may fill the step",
           {.running = {Prompt(50, 32), Decode(10), Decode(10), Decode(10)},
            .available_blocks = 90,
            .limits = Of(9, 2, 100)},
           {},
           {{1, 1}, {2, 1}},
           {}},
          {"what does not fit is not overtaken",
           {.running = {Decode(10)},
            .waiting = {Wait(200), Wait(5)},
            .available_blocks = 6,
            .limits = Of(4, 999, 7)},
           {},
           {{0, 1}},
           {}},
          {"watermark: the decode's next block and the admitted one's stay free",
           {.running = {Decode(10)},
            .waiting = {Wait(31)},
            .available_blocks = 2,
            .limits = Of(4, 64, 3)},
           {},
           {{0, 1}},
           {}},
          {"watermark: with one block more it is admitted",
           {.running = {Decode(10)},
            .waiting = {Wait(31)},
            .available_blocks = 3,
            .limits = Of(4, 64, 4)},
           {},
           {{0, 1}},
           {{0, 31}}},
          {"watermark: a choice about to end needs no more",
           {.running = {Decode(10, 1)},
            .waiting = {Wait(31)},
            .available_blocks = 2,
            .limits = Of(4, 64, 3)},
           {},
           {{0, 1}},
           {{0, 31}}},
          {"watermark: the rest of a running prompt is spoken for",
           {.running = {Prompt(128, 32)},
            .waiting = {Wait(10)},
            .available_blocks = 5,
            .limits = Of(4, 32, 6)},
           {},
           {{0, 32}},
           {}},
          {"blocks that others hold are not counted again",
           {.running = {Decode(65, 1)},
            .waiting = {held},
            .available_blocks = 4,
            .limits = Of(4, 64, 6)},
           {},
           {{0, 1}},
           {{0, 33}}},
          {"what runs elsewhere keeps its blocks, and those it will want",
           {.running = {Decode(10)},
            .elsewhere = {Decode(33)},
            .waiting = {Wait(31)},
            .available_blocks = 3,
            .limits = Of(9, 64, 6)},
           {},
           {{0, 1}},
           {}},
          {"the latest here gives way to what runs elsewhere",
           {.running = {Decode(33), Decode(33)},
            .elsewhere = {Decode(33)},
            .available_blocks = 0,
            .limits = Of(9, 64, 3)},
           {1},
           {{0, 1}},
           {}},
          {"and where that does not do, nothing runs",
           {.running = {Decode(33)},
            .elsewhere = {Decode(33)},
            .waiting = {Wait(1)},
            .available_blocks = 0,
            .limits = Of(9, 64, 2)},
           {},
           {},
           {}},
          {"the latest-admitted gives way, and nothing is admitted then",
           {.running = {Decode(33), Decode(10), Decode(40)},
            .waiting = {Wait(1)},
            .available_blocks = 0,
            .limits = Of(9, 64, 4)},
           {2},
           {{0, 1}, {1, 1}},
           {}},
          {"as many as needed",
           {.running = {Decode(65), Decode(33), Decode(33)},
            .available_blocks = 0,
            .limits = Of(9, 64, 4)},
           {2, 1},
           {{0, 1}},
           {}},
          {"a choice that needs the block itself may be the one to go",
           {.running = {Decode(10), Decode(33)}, .available_blocks = 0, .limits = Of(9, 64, 2)},
           {1},
           {{0, 1}},
           {}},
          {"shared blocks do not come back: one more goes",
           {.running = {siblings, shared, siblings, siblings},
            .available_blocks = 0,
            .limits = Of(9, 64, 9)},
           {3, 2},
           {{0, 1}, {1, 1}},
           {}},
          {"a prompt takes the blocks that are there",
           {.running = {Decode(10), Prompt(200, 32)},
            .available_blocks = 2,
            .limits = Of(9, 999, 4)},
           {},
           {{0, 1}, {1, 64}},
           {}},
          {"the first runs even where decodes would fill the step",
           {.running = {Prompt(64, 32), Decode(33)}, .available_blocks = 0, .limits = Of(9, 1, 2)},
           {1},
           {{0, 1}},
           {}},
      });
}

TEST(SarathiTest, Table) {
  Check("sarathi",
        {
            {"decodes first, then prompts in order, then admissions",
             {.running = {Prompt(50, 32), Decode(10), Prompt(99, 64)},
              .waiting = {Wait(9)},
              .available_blocks = 90,
              .limits = Of(9, 30, 100)},
             {},
             {{1, 1}, {0, 18}, {2, 11}},
             {}},
            {"watermark: a hundredth of all blocks stays free",
             {.running = {Decode(10)},
              .waiting = {Wait(64)},
              .available_blocks = 3,
              .limits = Of(4, 99, 200)},
             {},
             {{0, 1}},
             {}},
            {"watermark: with one block more it is admitted, growth or not",
             {.running = {Decode(10)},
              .waiting = {Wait(64)},
              .available_blocks = 4,
              .limits = Of(4, 99, 200)},
             {},
             {{0, 1}},
             {{0, 64}}},
            {"alone it may take all",
             {.waiting = {Wait(64)}, .available_blocks = 2, .limits = Of(4, 99, 2)},
             {},
             {},
             {{0, 64}}},
            {"the latest gives way",
             {.running = {Decode(10), Decode(33)}, .available_blocks = 0, .limits = Of(9, 64, 2)},
             {1},
             {{0, 1}},
             {}},
        });
}

TEST(WholeTest, Table) {
  Check("whole",
        {
            {"whole prompts in order up to the step's tokens, beside decoding rows",
             {.running = {Decode(10), Decode(10)},
              .waiting = {Wait(40), Wait(20), Wait(2), Wait(1)},
              .available_blocks = 99,
              .limits = Of(9, 64, 100)},
             {},
             {{0, 1}, {1, 1}},
             {{0, 40}, {1, 20}, {2, 2}}},
            {"one that does not fit waits whole, and nobody overtakes it",
             {.running = {Decode(10)},
              .waiting = {Wait(40), Wait(30), Wait(5)},
              .available_blocks = 99,
              .limits = Of(9, 64, 100)},
             {},
             {{0, 1}},
             {{0, 40}}},
            {"the first too, where a running row takes its room",
             {.running = {Decode(10)},
              .waiting = {Wait(64)},
              .available_blocks = 99,
              .limits = Of(9, 64, 100)},
             {},
             {{0, 1}},
             {}},
            {"what the prefix index holds of it is not computed",
             {.running = {Decode(10)},
              .waiting = {Wait(90, 32)},
              .available_blocks = 99,
              .limits = Of(9, 64, 100)},
             {},
             {{0, 1}},
             {{0, 58}}},
            {"one that is longer than a step is cut, first of its step",
             {.running = {Decode(10)},
              .waiting = {Wait(100), Wait(5)},
              .available_blocks = 99,
              .limits = Of(9, 64, 100)},
             {},
             {{0, 1}},
             {{0, 63}}},
            {"not behind another",
             {.waiting = {Wait(5), Wait(100)}, .available_blocks = 99, .limits = Of(9, 64, 100)},
             {},
             {},
             {{0, 5}}},
            {"and goes on, with whole ones behind it",
             {.running = {Decode(10), Prompt(100, 64)},
              .waiting = {Wait(20), Wait(20)},
              .available_blocks = 90,
              .limits = Of(9, 64, 100)},
             {},
             {{0, 1}, {1, 36}},
             {{0, 20}}},
            {"admission leaves a running choice its next block",
             {.running = {Decode(33)},
              .waiting = {Wait(32)},
              .available_blocks = 2,
              .limits = Of(9, 64, 3)},
             {},
             {{0, 1}},
             {}},
            {"the latest gives way",
             {.running = {Decode(10), Decode(33)}, .available_blocks = 0, .limits = Of(9, 64, 2)},
             {1},
             {{0, 1}},
             {}},
        });
}

TEST(VllmTest, Table) {
  Check("vllm",
        {
            {"whole prompts first, and no decoding row beside them",
             {.running = {Decode(10), Decode(10)},
              .waiting = {Wait(40), Wait(20), Wait(5)},
              .available_blocks = 99,
              .limits = Of(9, 64, 100)},
             {},
             {},
             {{0, 40}, {1, 20}}},
            {"decodes where no prompt is admitted",
             {.running = {Decode(10), Decode(10)},
              .waiting = {Wait(64)},
              .available_blocks = 2,
              .limits = Of(9, 64, 100)},
             {},
             {{0, 1}, {1, 1}},
             {}},
            {"a prompt that fits a step waits for one",
             {.waiting = {Wait(40), Wait(30)}, .available_blocks = 99, .limits = Of(9, 64, 100)},
             {},
             {},
             {{0, 40}}},
            {"one that fits none begins alone",
             {.waiting = {Wait(100)}, .available_blocks = 99, .limits = Of(9, 64, 100)},
             {},
             {},
             {{0, 64}}},
            {"and goes on alone",
             {.running = {Decode(10), Prompt(100, 64)},
              .waiting = {Wait(5)},
              .available_blocks = 90,
              .limits = Of(9, 64, 100)},
             {},
             {{1, 36}},
             {}},
            {"the latest gives way",
             {.running = {Decode(10), Decode(33)}, .available_blocks = 0, .limits = Of(9, 64, 2)},
             {1},
             {{0, 1}},
             {}},
        });
}

TEST(StaticBatchTest, Table) {
  WaitingView brief = Wait(31);
  brief.remaining_output = 2;
  Check(
      "static_batch",
      {
          {"nothing to do", {.limits = Of(4, 64, 10)}, {}, {}, {}},
          {"a whole batch when nothing runs",
           {.waiting = {Wait(40), Wait(40)}, .available_blocks = 100, .limits = Of(4, 64, 100)},
           {},
           {},
           {{0, 40}, {1, 24}}},
          {"none while one runs",
           {.running = {Decode(10)},
            .waiting = {brief},
            .available_blocks = 99,
            .limits = Of(4, 64, 100)},
           {},
           {{0, 1}},
           {}},
          {"each with room up to its end",
           {.waiting = {Wait(40), brief, brief}, .available_blocks = 34, .limits = Of(4, 640, 34)},
           {},
           {},
           {{0, 40}, {1, 31}}},
      });
}

TEST(AdaptiveTest, Table) {
  StepView known{.waiting = {Wait(40), Wait(40), Wait(40)},
                 .available_blocks = 100,
                 .mean_tokens = 1600,
                 .limits = Of(9, 640, 100)};
  StepView running = known;
  running.running = {Decode(10)};
  StepView full = running;
  full.running.push_back(Decode(10));
  StepView unknown = known;
  unknown.mean_tokens = 0;
  unknown.waiting[0].remaining_output = 100'000;
  StepView long_ones = known;
  long_ones.mean_tokens = 100'000;
  Check("adaptive",
        {
            {"nothing to do", {.limits = Of(4, 64, 10)}, {}, {}, {}},
            {"as many as the cache holds at the mean length", known, {}, {}, {{0, 40}, {1, 40}}},
            {"with those that run", running, {}, {{0, 1}}, {{0, 40}}},
            {"and not one more", full, {}, {{0, 1}, {1, 1}}, {}},
            {"none has finished: what is known, and a guess",
             unknown,
             {},
             {},
             {{0, 40}, {1, 40}, {2, 40}}},
            {"one always runs", long_ones, {}, {}, {{0, 40}}},
            {"the latest-admitted gives way",
             {.running = {Decode(33), Decode(10), Decode(40)},
              .waiting = {Wait(1)},
              .available_blocks = 0,
              .limits = Of(9, 64, 4)},
             {2},
             {{0, 1}, {1, 1}},
             {}},
        });
}

TEST(MakespanTest, Table) {
  // Each ends with 640 tokens, 20 blocks and a half; 28 may be filled one and a half times.
  WaitingView wait = Wait(32);
  wait.expected_left = 608;
  StepView waiting{.waiting = {wait, wait, wait},
                   .available_blocks = 28,
                   .overcommit = 1,
                   .limits = Of(9, 2000, 28)};
  StepView overcommitted = waiting;
  overcommitted.overcommit = 1.5;
  StepView unforeseen = waiting;
  for (WaitingView& choice : unforeseen.waiting) {
    choice.expected_left = 0;
    choice.remaining_output = 10 * kLong;
  }
  StepView ending = waiting;
  ending.available_blocks = 18;
  ending.running = {Decode(320, 2)};
  StepView staying = ending;
  staying.running[0].remaining_output = 608;
  Check("makespan",
        {
            {"nothing to do", {.limits = Of(4, 64, 10)}, {}, {}, {}},
            {"as many as fit until they end", waiting, {}, {}, {{0, 32}, {1, 32}}},
            {"more where preemption is cheap", overcommitted, {}, {}, {{0, 32}, {1, 32}, {2, 32}}},
            {"one always runs", unforeseen, {}, {}, {{0, 32}}},
            {"beside one that ends before it is in the way",
             ending,
             {},
             {{0, 1}},
             {{0, 32}, {1, 32}}},
            {"not beside one that stays", staying, {}, {{0, 1}}, {}},
            {"the latest gives way, though another would lose fewer rows",
             {.running = {Decode(1), Decode(64), Decode(32), Decode(96)},
              .waiting = {Wait(1)},
              .available_blocks = 0,
              .limits = Of(9, 64, 6)},
             {3},
             {{0, 1}, {1, 1}, {2, 1}},
             {}},
        });
}

TEST(PackedTest, Table) {
  const auto wait = [](int64_t known, int64_t left) {
    WaitingView choice = Wait(known);
    choice.expected_left = left;
    return choice;
  };
  // 28 blocks may be filled one and a half times; the one that runs ends with 640 tokens.
  StepView view{.running = {Decode(320, 320)},
                .waiting = {wait(96, 96), wait(384, 640), wait(64, 64), wait(64, 600)},
                .available_blocks = 18,
                .limits = Of(9, 2000, 28)};
  StepView whole = view;
  whole.waiting[1] = wait(320, 320);
  StepView alone{.waiting = {Wait(32)}, .available_blocks = 28, .limits = Of(9, 2000, 28)};
  alone.waiting[0].remaining_output = 10 * kLong;
  Check("packed",
        {
            {"nothing to do", {.limits = Of(4, 64, 10)}, {}, {}, {}},
            {"all that fit until they end, as in makespan's order",
             whole,
             {},
             {{0, 1}},
             {{0, 96}, {1, 320}}},
            {"one that does not fit is overtaken, but not by one that is in its way later",
             view,
             {},
             {{0, 1}},
             {{0, 96}, {2, 64}}},
            {"one always runs", alone, {}, {}, {{0, 32}}},
            {"the latest gives way",
             {.running = {Decode(1), Decode(64), Decode(32), Decode(96)},
              .waiting = {Wait(1)},
              .available_blocks = 0,
              .limits = Of(9, 64, 6)},
             {3},
             {{0, 1}, {1, 1}, {2, 1}},
             {}},
        });
}

TEST(CreatePolicyTest, AnUnknownNameListsTheKnownOnes) {
  const auto policy = CreatePolicy("contiguous");
  ASSERT_FALSE(policy.ok());
  EXPECT_TRUE(policy.status().code() == kUnknownPolicy);
  EXPECT_EQ(
      policy.status().message(),
      "policy 'contiguous' is unknown; there are: adaptive, continuous, interactive, makespan, "
      "packed, sarathi, static_batch, vasuki-printed, vllm, whole");
}

TEST(VasukiPrintedTest, Table) {
  Check("vasuki-printed", {
                              {"prompts alone take blocks",
                               {.running = {Generated(Decode(200), 150)},
                                .waiting = {Wait(64), Wait(64)},
                                .available_blocks = 90,
                                .limits = OfPrompts(Of(8, 512, 100), 5)},
                               {},
                               {{0, 1}},
                               {{0, 64}}},
                              {"growth takes none",
                               {.running = {Generated(Decode(2000), 1950)},
                                .waiting = {Wait(64), Wait(32)},
                                .available_blocks = 37,
                                .limits = OfPrompts(Of(8, 512, 100), 5)},
                               {},
                               {{0, 1}},
                               {{0, 64}, {1, 32}}},
                              {"one always runs",
                               {.waiting = {Wait(200), Wait(20)},
                                .available_blocks = 100,
                                .limits = OfPrompts(Of(8, 512, 100), 2)},
                               {},
                               {},
                               {{0, 200}}},
                              {"as many as may run",
                               {.running = {Generated(Decode(40), 8)},
                                .waiting = {Wait(20), Wait(20)},
                                .available_blocks = 90,
                                .limits = OfPrompts(Of(2, 512, 100), 50)},
                               {},
                               {{0, 1}},
                               {{0, 20}}},
                          });
}

// Steps of one row take 1 ms, and each further row a hundredth of it.
const StepPrices& Prices() {
  static const StepPrices prices({{1, 1e-3}, {1001, 11e-3}}, {});
  return prices;
}
// From 100 rows on a row takes a tenth of a millisecond.
const StepPrices& LevelPrices() {
  static const StepPrices prices({{1, 1e-3}, {100, 10e-3}, {2000, 200e-3}}, {});
  return prices;
}
StepView Bordered(StepView view, double max_step_seconds) {
  view.prices = &LevelPrices();
  view.limits.target_itl_seconds = 1e-3;
  view.limits.max_step_seconds = max_step_seconds;
  return view;
}
template <typename Choice>
Choice Person(Choice choice) {
  choice.service = Service::kInteractive;
  return choice;
}
template <typename Choice>
Choice Due(Choice choice, double deadline) {
  choice.deadline = deadline;
  return choice;
}
StepView Hurried(StepView view, double until) {
  view.hurried_until = until;
  return view;
}
StepView Priced(StepView view, double target_itl_seconds, double max_step_seconds) {
  view.prices = &Prices();
  view.limits.target_itl_seconds = target_itl_seconds;
  view.limits.max_step_seconds = max_step_seconds;
  return view;
}
StepView WithPeak(StepView view, int64_t choices, int64_t blocks) {
  view.interactive_peak = {choices, blocks};
  return view;
}

TEST(InteractiveTest, Table) {
  const StepView full = {.running = {Decode(33), Decode(33), Decode(33)},
                         .waiting = {Person(Wait(40))},
                         .available_blocks = 90,
                         .limits = Of(3, 64, 96)};
  StepView off = full;
  off.price_factor = 2;
  off.running = {Person(Decode(10)), Decode(10), Prompt(500, 0)};
  off.waiting.clear();
  Check("interactive",
        {
            {"people's rows, their prompts, then the batch's",
             {.running = {Decode(10), Person(Prompt(60, 32)), Prompt(90, 32), Person(Decode(10))},
              .available_blocks = 90,
              .limits = Of(9, 64, 96)},
             {},
             {{3, 1}, {1, 28}, {0, 1}, {2, 34}},
             {}},
            {"beside people who decode their prompts leave a batch its row",
             {.running = {Person(Decode(10)), Person(Prompt(500, 0)), Decode(10)},
              .available_blocks = 90,
              .limits = Of(9, 64, 96)},
             {},
             {{0, 1}, {1, 62}, {2, 1}},
             {}},
            {"a person without a place takes the latest batch's, in the same step",
             full,
             {2},
             {{0, 1}, {1, 1}},
             {{0, 40}}},
            {"the latest deadline gives way first",
             {.running = {Due(Decode(33), 9), Due(Decode(33), 8), Due(Decode(33), 7)},
              .waiting = {Person(Wait(40))},
              .available_blocks = 90,
              .limits = Of(3, 64, 96)},
             {1},
             {{2, 1}, {0, 1}},
             {{0, 40}}},
            {"the first of all stays, and so do people",
             {.running = {Decode(33), Person(Decode(33)), Person(Decode(33))},
              .waiting = {Person(Wait(40))},
              .available_blocks = 90,
              .limits = Of(3, 64, 96)},
             {},
             {{1, 1}, {2, 1}, {0, 1}},
             {}},
            {"a person without blocks has as many give way as it takes",
             {.running = {Decode(64), Decode(64), Decode(64)},
              .waiting = {Person(Wait(60))},
              .available_blocks = 0,
              .limits = Of(9, 64, 6)},
             {2, 1},
             {{0, 1}},
             {{0, 60}}},
            {"where the batch's next rows lack blocks it gives way before people do",
             {.running = {Decode(33), Decode(33), Person(Decode(33))},
              .available_blocks = 2,
              .limits = Of(9, 64, 5)},
             {1},
             {{2, 1}, {0, 1}},
             {}},
            {"batches fill a person's step up to the target",
             Priced({.running = {Person(Decode(10)), Decode(10), Prompt(500, 0)},
                     .available_blocks = 90,
                     .limits = Of(9, 512, 96)},
                    1.5e-3, 0),
             {},
             {{0, 1}, {1, 1}, {2, 49}},
             {}},
            {"what steps were measured to take counts",
             Priced(off, 3e-3, 0),
             {},
             {{0, 1}, {1, 1}, {2, 49}},
             {}},
            {"without a target of its own, four steps of one row",
             Priced({.running = {Person(Decode(10)), Prompt(500, 0)},
                     .available_blocks = 90,
                     .limits = Of(9, 512, 96)},
                    -1, 0),
             {},
             {{0, 1}, {1, 300}},
             {}},
            {"a target below a step of one row leaves a batch one row",
             Priced({.running = {Decode(10), Decode(10), Person(Decode(10))},
                     .waiting = {Wait(20)},
                     .available_blocks = 90,
                     .limits = Of(9, 512, 96)},
                    5e-4, 0),
             {},
             {{2, 1}, {0, 1}},
             {}},
            {"and a person's prompt a block",
             Priced({.running = {Person(Decode(10)), Person(Prompt(500, 0))},
                     .available_blocks = 90,
                     .limits = Of(9, 512, 96)},
                    5e-4, 0),
             {},
             {{0, 1}, {1, 32}},
             {}},
            {"a prompt alone is not slowed, and the batch fills to the border",
             Bordered({.running = {Decode(10), Prompt(400, 0)},
                       .waiting = {Person(Wait(200))},
                       .available_blocks = 90,
                       .limits = Of(9, 512, 96)},
                      30.05e-3),
             {},
             {{0, 1}, {1, 99}},
             {{0, 200}}},
            {"steps without people end at the border",
             Bordered({.running = {Decode(10), Prompt(1200, 0)},
                       .available_blocks = 90,
                       .limits = Of(9, 2000, 96)},
                      25.05e-3),
             {},
             {{0, 1}, {1, 249}},
             {}},
            {"but keep the rows that keep the rate",
             Bordered(
                 {.running = {Prompt(1200, 0)}, .available_blocks = 90, .limits = Of(9, 2000, 96)},
                 1e-3),
             {},
             {{0, 100}},
             {}},
            {"places and blocks that people held stay free of batches",
             WithPeak({.running = {Decode(10), Person(Decode(10))},
                       .waiting = {Wait(20), Wait(20), Wait(20)},
                       .available_blocks = 90,
                       .limits = Of(6, 64, 96)},
                      3, 4),
             {},
             {{1, 1}, {0, 1}},
             {{0, 20}, {1, 20}}},
            {"and one batch choice runs in any case",
             WithPeak(
                 {.waiting = {Wait(20), Wait(20)}, .available_blocks = 4, .limits = Of(2, 64, 4)},
                 2, 4),
             {},
             {},
             {{0, 20}}},
            {"a late batch takes the place of a later deadline, and its rows come first",
             Hurried({.running = {Due(Decode(33), 50), Due(Decode(33), 50), Due(Decode(33), 9)},
                      .waiting = {Due(Wait(40), 9)},
                      .available_blocks = 90,
                      .limits = Of(3, 64, 96)},
                     9),
             {1},
             {{2, 1}, {0, 1}},
             {{0, 40}}},
            {"one that is on time does not",
             {.running = {Due(Decode(33), 50), Due(Decode(33), 50), Due(Decode(33), 9)},
              .waiting = {Due(Wait(40), 9)},
              .available_blocks = 90,
              .limits = Of(3, 64, 96)},
             {},
             {{2, 1}, {0, 1}, {1, 1}},
             {}},
            {"nor do those give way that are due as soon, or people",
             Hurried({.running = {Due(Decode(33), 50), Due(Decode(33), 9), Person(Decode(33))},
                      .waiting = {Due(Wait(40), 9)},
                      .available_blocks = 90,
                      .limits = Of(3, 64, 96)},
                     9),
             {},
             {{2, 1}, {1, 1}, {0, 1}},
             {}},
            {"blocks come from later deadlines too",
             Hurried({.running = {Due(Decode(64), 50), Due(Decode(64), 50), Due(Decode(64), 60)},
                      .waiting = {Due(Wait(60), 9)},
                      .available_blocks = 0,
                      .limits = Of(9, 64, 6)},
                     9),
             {2, 1},
             {{0, 1}},
             {{0, 60}}},
            {"people's room stays theirs",
             WithPeak(Hurried({.running = {Due(Decode(33), 50), Due(Decode(33), 50)},
                               .waiting = {Due(Wait(20), 9), Due(Wait(20), 50)},
                               .available_blocks = 90,
                               .limits = Of(4, 64, 96)},
                              9),
                      2, 4),
             {1},
             {{0, 1}},
             {{0, 20}}},
            {"and so does their target",
             Priced(Hurried({.running = {Decode(10), Decode(10), Person(Decode(10))},
                             .waiting = {Due(Wait(20), 9)},
                             .available_blocks = 90,
                             .limits = Of(9, 512, 96)},
                            9),
                    5e-4, 0),
             {},
             {{2, 1}},
             {{0, 1}}},
            {"people who wait leave a place to the first batch where none runs",
             {.running = {Person(Decode(33)), Person(Decode(33))},
              .waiting = {Person(Wait(5)), Person(Wait(5)), Wait(5), Wait(5)},
              .available_blocks = 90,
              .limits = Of(4, 64, 96)},
             {},
             {{0, 1}, {1, 1}},
             {{0, 5}, {2, 5}}},
            {"and blocks",
             {.running = {Person(Decode(64))},
              .waiting = {Person(Wait(60)), Wait(60)},
              .available_blocks = 4,
              .limits = Of(9, 128, 6)},
             {},
             {{0, 1}},
             {{1, 60}}},
            {"nor do they take its place",
             {.running = {Person(Decode(33)), Decode(33)},
              .waiting = {Person(Wait(40))},
              .available_blocks = 90,
              .limits = Of(2, 64, 96)},
             {},
             {{0, 1}, {1, 1}},
             {}},
            {"a person alone leaves nothing",
             {.waiting = {Person(Wait(40)), Wait(5)},
              .available_blocks = 90,
              .limits = Of(1, 64, 96)},
             {},
             {},
             {{0, 40}}},
            {"whole prompts go whole",
             {.waiting = {Person(Wait(40)), Wait(20), Wait(30)},
              .available_blocks = 90,
              .limits = Whole(9, 64, 96)},
             {},
             {},
             {{0, 40}, {1, 20}}},
            {"and the first of a step whatever the border",
             Bordered({.waiting = {Wait(200), Wait(50)},
                       .available_blocks = 90,
                       .limits = Whole(9, 512, 96)},
                      1e-3),
             {},
             {},
             {{0, 200}}},
            {"a batch that makes no room, all of it, keeps its own",
             {.running = {Decode(64), Decode(64), Person(Decode(64))},
              .waiting = {Person(Wait(100))},
              .available_blocks = 0,
              .limits = Of(9, 64, 6)},
             {},
             {{2, 1}, {0, 1}, {1, 1}},
             {}},
            {"and so do later deadlines",
             Hurried({.running = {Due(Decode(64), 9), Due(Decode(64), 9), Due(Decode(64), 50)},
                      .waiting = {Due(Wait(100), 9)},
                      .available_blocks = 0,
                      .limits = Of(9, 64, 6)},
                     9),
             {},
             {{0, 1}, {1, 1}, {2, 1}},
             {}},
            {"nor does any give way to a prompt that waits for a step with more rows",
             {.running = {Decode(64), Decode(64), Person(Prompt(40, 0)), Person(Prompt(90, 0))},
              .available_blocks = 2,
              .limits = Chunked(9, 64, 6, 32)},
             {},
             {{2, 40}, {0, 1}, {1, 1}},
             {}},
            {"while a person waits no batch begins",
             {.running = {Decode(64), Person(Decode(64))},
              .waiting = {Person(Wait(90)), Wait(5)},
              .available_blocks = 1,
              .limits = Of(9, 64, 5)},
             {},
             {{1, 1}, {0, 1}},
             {}},
        });
}

TEST(InteractiveTest, PeopleGoWhereFewestAre) {
  const auto policy = CreatePolicy("interactive");
  QueueView view{.replicas = 2, .held = 5, .next_service = Service::kInteractive};
  view.held_interactive = 1;
  view.least_held_interactive = 0;
  EXPECT_EQ((*policy)->HandOut(view), Taking::kNothing);
  view.held_interactive = 0;
  EXPECT_EQ((*policy)->HandOut(view), Taking::kNext);
}

TEST(StepPricesTest, LieBetweenTheirPoints) {
  const StepPrices prices({{1, 1}, {3, 2}, {9, 5}}, {0.5, 0.25, 0.125});
  EXPECT_DOUBLE_EQ(prices.Seconds({.rows = 1, .sampled = 1}), 1);
  EXPECT_DOUBLE_EQ(prices.Seconds({.rows = 2, .sampled = 1}), 1.5);
  EXPECT_DOUBLE_EQ(prices.Seconds({.rows = 12, .sampled = 3}), 6);
  EXPECT_DOUBLE_EQ(
      prices.Seconds({.rows = 6, .sampled = 1, .decode_context = 4, .prompt_context = 8}), 5.5);
  EXPECT_EQ(prices.rate_rows(), 9);
}

// A profile that is half wrong is known after a hundred steps.
TEST(PriceFactorTest, FollowsWhatIsMeasured) {
  for (const double wrong : {0.5, 1.5, 2.0}) {
    PriceFactor factor;
    for (int step = 0; step < 100; ++step) factor.Observe(1, wrong * (step % 2 == 0 ? 0.97 : 1.03));
    EXPECT_NEAR(factor.value(), wrong, 0.1 * wrong);
  }
}

// A policy that plans by a wrong profile, in a loop with what its steps take: after a hundred of
// them these take the target to a tenth, whatever the profile has wrong.
TEST(InteractiveTest, AWrongProfileEndsWithinATenthOfTheTarget) {
  constexpr double kTarget = 3e-3;
  const auto policy = CreatePolicy("interactive");
  for (const double rows_wrong : {0.5, 1.0, 1.5, 2.0}) {
    for (const double base_wrong : {0.5, 1.0, 1.5}) {
      StepView view = Priced({.running = {Person(Decode(10)), Prompt(1'000'000, 0)},
                              .available_blocks = 90'000,
                              .limits = Of(9, 8192, 96'000)},
                             kTarget, 0);
      PriceFactor factor;
      StepPlan plan;
      double seconds = 0;
      for (int step = 0; step < 100; ++step) {
        view.price_factor = factor.value();
        (*policy)->Plan(view, &plan);
        StepRows rows;
        for (const RowsOf& entry : plan.run) rows = rows.With(0, entry.rows, entry.rows == 1);
        // Prices() has 1 ms and 0.01 ms a row.
        seconds = 1e-3 * base_wrong + 1e-5 * rows_wrong * static_cast<double>(rows.rows - 1);
        factor.Observe(Prices().Seconds(rows), seconds);
      }
      EXPECT_NEAR(seconds, kTarget, 0.1 * kTarget) << rows_wrong << " " << base_wrong;
    }
  }
}

TEST(HeldPeakTest, ForgetsAfterAMinute) {
  HeldPeak peak;
  peak.Add(0, {2, 10});
  peak.Add(30'000'000, {3, 4});
  EXPECT_EQ(peak.most().choices, 3);
  EXPECT_EQ(peak.most().blocks, 10);
  peak.Add(61'000'000, {1, 1});
  EXPECT_EQ(peak.most().choices, 3);
  EXPECT_EQ(peak.most().blocks, 4);
  peak.Add(7'200'000'000, {0, 0});
  EXPECT_EQ(peak.most().choices, 0);
}

}  // namespace
}  // namespace forebay::schedule

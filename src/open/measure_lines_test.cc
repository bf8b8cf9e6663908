#include "open/measure_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "job/testing/fake_pipeline.h"
#include "job/testing/files.h"
#include "open/describe_job.h"
#include "trace/trace.h"

namespace forebay::open {
namespace {

using ::testing::HasSubstr;

class MeasureLinesTest : public ::testing::Test {
 protected:
  MeasureLinesTest() { config_.max_position_embeddings = 4096; }

  base::Result<trace::JobLengths> Measure(const std::string& lines, const char* devices = "2xcpu",
                                          const trace::OutputLengths* lengths = nullptr) {
    const auto file = Write(lines);
    layout::EngineOptions options;
    options.machine.devices = *layout::ParseDevices(devices);
    return MeasureLines({file, rules_, text_, config_, lengths}, options);
  }
  // What the engine is told.
  layout::EngineOptions Describe(const std::string& lines, const std::string& layout,
                                 bool all_there = true, uint64_t below_bytes = 0) {
    const auto file = Write(lines);
    layout::EngineOptions options;
    options.machine.devices = *layout::ParseDevices("2xcpu");
    options.layout_by_job = layout == "auto";
    if (!options.layout_by_job) options.layout = *layout::ParseLayout(layout);
    options.tier.host_bytes = below_bytes;
    EXPECT_TRUE(DescribeJob({.lines = [&] { return &file; }, .all_there = all_there}, rules_,
                            &text_, config_, &options)
                    .ok());
    return options;
  }

  model::ModelConfig config_;

 private:
  job::JobFile Write(const std::string& lines) {
    job::WriteFile(folder_ / "in", lines);
    return *job::JobFile::Open(folder_ / "in");
  }

  const base::TemporaryFolder folder_;
  const job::RequestRules rules_{.model_names = {"*"}, .vocab_size = 300};
  job::FakePipeline text_;
};

TEST_F(MeasureLinesTest, EachChoiceOfEachLine) {
  const auto job = Measure(
      "{\"prompt\":[1,2,3],\"max_tokens\":20}\n{\"prompt\":5}\n"
      "{\"prompt\":[[1],[1,2]],\"max_tokens\":7,\"n\":2,\"temperature\":1}\n");
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  ASSERT_EQ(job->choices.size(), 5u);
  EXPECT_EQ(job->times, 1);
  EXPECT_EQ(job->choices[0].prompt, 3);
  EXPECT_EQ(job->choices[0].output, 20);
  EXPECT_EQ(job->choices[0].bound, 20);
  EXPECT_EQ(job->choices[2].prompt, 1);
  EXPECT_EQ(job->choices[4].prompt, 2);
  EXPECT_EQ(job->choices[4].output, 7);
}

// A real device does not know when an answer without a bound ends; a simulated one goes on.
TEST_F(MeasureLinesTest, AnswersWithoutABound) {
  const std::string chat = "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}\n";
  const auto real = Measure(chat);
  ASSERT_TRUE(real.ok()) << real.status().ToString();
  EXPECT_EQ(real->choices[0].output, kAnswerWithoutBound);
  EXPECT_EQ(real->choices[0].bound, 0);
  const auto simulated = Measure(chat, "sim:2xh20");
  EXPECT_EQ(simulated->choices[0].output, 4096 - simulated->choices[0].prompt);
  const trace::OutputLengths lengths = {{0, 9}};
  EXPECT_EQ(Measure(chat, "2xcpu", &lengths)->choices[0].output, 9);
}

// A prompt alone takes the steps of one with an answer of one token.
TEST_F(MeasureLinesTest, PromptsWithoutAnswers) {
  config_.pooling.emplace();
  const std::string whole(4096, 'x');  // of the model's context
  const auto job = Measure(
      "{\"input\":[[1,2,3],[4]]}\n{\"query\":\"q\",\"documents\":[\"ab\"]}\n"
      "{\"prompt\":[1,2],\"continuations\":[[3],[4,5]]}\n"
      "{\"prompt\":[1,2],\"max_tokens\":0,\"echo\":true}\n"
      "{\"input\":\"" +
      whole +
      "\",\"add_special_tokens\":false}\n"
      "{\"input\":\"x" +
      whole + "\",\"add_special_tokens\":false}\n");
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  std::vector<int64_t> prompts;
  for (const layout::ChoiceShape& choice : job->choices) {
    prompts.push_back(choice.prompt);
    EXPECT_EQ(choice.output, 1);
    EXPECT_EQ(choice.bound, 1);
  }
  EXPECT_THAT(prompts, testing::ElementsAre(3, 1, 2, 3, 3, 4, 2, 4095));
}

// `truncate_prompt_tokens` -1 cuts to what the context leaves beside the answer.
TEST_F(MeasureLinesTest, PromptsAreCutToTheContext) {
  config_.pooling.emplace();
  const std::string longer(5000, 'x');
  const auto line = [](const std::string& text, const std::string& more) {
    return "{" + text + ",\"truncate_prompt_tokens\":-1" + more + "}\n";
  };
  const auto job = Measure(line("\"input\":\"" + longer + "\"", "") +
                           line("\"prompt\":\"" + longer + "\"", ",\"max_tokens\":96") +
                           "{\"prompt\":\"x\",\"max_tokens\":96}\n");
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  ASSERT_EQ(job->choices.size(), 3u);
  EXPECT_EQ(job->choices[0].prompt, 4095);
  EXPECT_EQ(job->choices[1].prompt, 4000);
  EXPECT_EQ(job->choices[1].output, 96);
  EXPECT_TRUE(job->choices[0].cut && job->choices[1].cut);
  EXPECT_FALSE(job->choices[2].cut);
}

TEST_F(MeasureLinesTest, WhatTheModelCannotDoIsPassedOver) {
  const std::string lines = "{\"input\":\"ab\"}\n{\"prompt\":[1],\"max_tokens\":5}\n";
  EXPECT_EQ(Measure(lines)->choices[0].output, 5);
  EXPECT_THAT(Measure("{\"input\":\"ab\"}\n").status().message(),
              HasSubstr("the first for: the model makes no vectors; expected --pooling"));
  config_.pooling.emplace();
  EXPECT_EQ(Measure(lines)->choices.size(), 2u);
  config_.both_ways = true;  // an encoder
  EXPECT_EQ(Measure(lines)->choices.size(), 1u);
}

// What neighbours share is held once, and a prompt once for its choices.
TEST_F(MeasureLinesTest, WhatAChoiceHoldsAlone) {
  const auto held = [&](const std::string& lines) { return Measure(lines)->held; };
  EXPECT_EQ(held("{\"prompt\":[1,2,3,4],\"max_tokens\":20}\n{\"prompt\":5}\n"), 14);
  EXPECT_EQ(held("{\"prompt\":[1,2,3,4],\"max_tokens\":2}\n"
                 "{\"prompt\":[1,2,3,5],\"max_tokens\":2}\n"),
            (4 + 1) / 2.0 + 1);
  EXPECT_EQ(held("{\"prompt\":[1,2,3,4],\"max_tokens\":2,\"n\":4,\"temperature\":1}\n"), 1 + 1);
  // Of a longer job the second lines of pairs count.
  std::string lines;
  for (int i = 0; i < 3 * kMostMeasuredLines; ++i)
    lines += "{\"prompt\":[" + std::to_string(i / 2 % 200) + ",2,3,4],\"max_tokens\":2}\n";
  EXPECT_NEAR(held(lines), 1, 0.01);
}

TEST_F(MeasureLinesTest, SomeLinesStandForAll) {
  std::string lines;
  constexpr int kLines = 3 * kMostMeasuredLines;
  for (int i = 0; i < kLines; ++i)
    lines += "{\"prompt\":[1],\"n\":50,\"temperature\":1,\"max_tokens\":" +
             std::to_string(1 + i * 10 / kLines) + "}\n";
  const auto job = Measure(lines);
  ASSERT_TRUE(job.ok()) << job.status().ToString();
  EXPECT_EQ(job->choices.size(), static_cast<size_t>(kMostMeasuredChoices));
  EXPECT_EQ(job->times * kMostMeasuredChoices, 50.0 * kLines);
  double sum = 0;
  for (const layout::ChoiceShape& choice : job->choices) sum += static_cast<double>(choice.output);
  EXPECT_NEAR(sum / kMostMeasuredChoices, 5.5, 0.01);
}

TEST_F(MeasureLinesTest, TheEngineIsToldWhereItDecidesByIt) {
  const std::string lines = "{\"prompt\":[1,2,3,4],\"max_tokens\":20}\n{\"prompt\":5}\n";
  for (const char* layout : {"auto", "dp=2,weights=striped", "dp=2,weights=striped,pool=3"}) {
    const layout::EngineOptions told = Describe(lines, layout);
    ASSERT_NE(told.job, nullptr) << layout;
    EXPECT_EQ(told.job->size(), 1u);
    EXPECT_EQ(told.limits.mean_context, 14);
    EXPECT_EQ(Describe(lines, layout, false).job, nullptr);
    EXPECT_EQ(Describe(lines, layout, false).limits.mean_context, 14);
  }
  EXPECT_EQ(Describe(lines, "dp=2").job, nullptr);
  EXPECT_NE(Describe(lines, "dp=2", true, 1 << 20).job, nullptr) << "what is below is streamed";
  EXPECT_EQ(Describe(lines, "dp=1,tp=2").limits.mean_context, 0);
  EXPECT_EQ(Describe(lines, "dp=2").job_held, 0);
  // Where windowed layers stand beside others, what choices hold says how many run.
  config_.num_layers = 2;
  config_.sliding_window = {64, 0};
  const layout::EngineOptions mixed = Describe(lines, "dp=2");
  EXPECT_EQ(mixed.job_held, 14);
  EXPECT_EQ(mixed.job, nullptr);
  EXPECT_EQ(mixed.limits.mean_context, 0);
  EXPECT_EQ(Describe(lines, "auto").job_held, 14);
  config_.sliding_window = {64, 64};
  EXPECT_EQ(Describe(lines, "dp=2").job_held, 0);
  // A job of which no line can run ends at once in any layout.
  for (const char* none : {"{\"prompt\":5}\n", ""})
    EXPECT_EQ(Describe(none, "auto").job->size(), 1u);
  const auto none = Measure("{\"prompt\":5}\n");
  EXPECT_EQ(none.status().code(), trace::kTraceInvalid);
  EXPECT_THAT(none.status().message(), HasSubstr("none of 1 lines can run, the first for: "));
}

}  // namespace
}  // namespace forebay::open

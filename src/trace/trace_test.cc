// Length traces: published headers, errors that name the place, synthetic distributions.
#include "trace/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "runtime/virtual/virtual_runtime.h"
#include "trace/trace_source.h"

namespace forebay::trace {
namespace {

using testing::HasSubstr;

base::Result<LengthTrace> ReadText(const std::string& text, const TraceOptions& options = {}) {
  const std::string path = testing::TempDir() + "/" +
                           testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv";
  std::ofstream(path) << text;
  return ReadTrace(path, options);
}

std::string Error(const std::string& text) {
  const auto trace = ReadText(text);
  if (trace.ok()) return "no error";
  EXPECT_TRUE(trace.status().code() == kTraceInvalid);
  return trace.status().message();
}

TEST(TraceTest, ReadsPublishedHeaders) {
  const auto offline = ReadText(
      "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3772,54,3826,69."
      "85\r\n\n2015,156,2171,12.9");
  ASSERT_TRUE(offline.ok()) << offline.status().ToString();
  ASSERT_EQ(offline->rows.size(), 2u);
  EXPECT_EQ(offline->rows[1].prompt_tokens, 2015);
  EXPECT_EQ(offline->rows[1].output_tokens, 156);
  EXPECT_FALSE(offline->online());

  const auto online =
      ReadText("arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,4808,10\n0.5,3180,8\n",
               {.time_scale = 4});
  ASSERT_TRUE(online.ok()) << online.status().ToString();
  EXPECT_TRUE(online->online());
  EXPECT_EQ(online->rows[1].arrival_seconds, 2.0);
  EXPECT_FALSE(ReadText("arrived_at,prompt,output\n0,1,1\n5,1,1\n", {.time_scale = 0})->online());

  // As spreadsheets write it.
  const auto marked = ReadText("\xEF\xBB\xBFprompt,output\r\n3,4\r\n");
  ASSERT_TRUE(marked.ok()) << marked.status().ToString();
  EXPECT_EQ(marked->rows[0].prompt_tokens, 3);

  const auto clock = ReadText(
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-30 23:59:59.5000000,7,3\n2023-12-01 "
      "00:00:01.7500000,8,4\n");
  ASSERT_TRUE(clock.ok()) << clock.status().ToString();
  EXPECT_EQ(clock->rows[0].arrival_seconds, 0);
  EXPECT_NEAR(clock->rows[1].arrival_seconds, 2.25, 1e-6);
  EXPECT_EQ(clock->rows[1].prompt_tokens, 8);
}

TEST(TraceTest, ReadsServicesAndDeadlines) {
  auto trace =
      ReadText("prompt,output,service,deadline,\n1,1,batch,\n2,2,interactive,\n3,3,batch,7.5,\n",
               {.time_scale = 2});
  EXPECT_FALSE(trace.ok()) << "rows have fewer columns than the header";
  trace = ReadText("prompt,output,service,deadline\n1,1,batch,\n2,2,interactive,\n3,3,batch,7.5\n",
                   {.time_scale = 2});
  ASSERT_TRUE(trace.ok()) << trace.status().ToString();
  EXPECT_EQ(trace->rows[0].deadline_seconds, std::numeric_limits<double>::infinity());
  EXPECT_EQ(trace->rows[2].deadline_seconds, 15);
  EXPECT_TRUE(trace->has(Service::kInteractive));
  const LengthTrace batch = trace->Take(Service::kBatch);
  ASSERT_EQ(batch.rows.size(), 2u);
  EXPECT_EQ(batch.rows[1].prompt_tokens, 3);
  ASSERT_EQ(trace->rows.size(), 1u);
  EXPECT_EQ(trace->rows[0].service, Service::kInteractive);
  EXPECT_THAT(Error("prompt,output,service\n1,1,fast\n"),
              HasSubstr("line 2: column service: \"fast\" is no service; expected batch or"));
  EXPECT_THAT(Error("prompt,output,deadline\n1,1,soon\n"), HasSubstr("column deadline: \"soon\""));
  const auto synthetic = ReadTrace("synthetic:n=2,service=interactive,deadline=3", {});
  EXPECT_EQ(synthetic->rows[1].service, Service::kInteractive);
  EXPECT_EQ(synthetic->rows[1].deadline_seconds, 3);
  EXPECT_THAT(ReadTrace("synthetic:service=fast", {}).status().message(),
              HasSubstr("service is \"fast\"; expected batch or interactive"));
}

TEST(TraceTest, TakesTheFirstRows) {
  EXPECT_EQ(ReadText("prompt,output\n1,1\n2,2\n3,3\nbad", {.max_rows = 2})->rows.size(), 2u);
  EXPECT_EQ(ReadTrace("synthetic:n=10", {.max_rows = 3})->rows.size(), 3u);
}

TEST(TraceTest, ErrorsNameThePlace) {
  EXPECT_THAT(Error(""), HasSubstr("no rows"));
  EXPECT_THAT(Error("prompt,output\n"), HasSubstr("no rows"));
  EXPECT_THAT(Error("prompt,tokens\n1,2\n"),
              HasSubstr("line 1: no column gives the output's length"));
  EXPECT_THAT(Error("prompt,ContextTokens,output\n1,2,3\n"),
              HasSubstr("columns prompt and ContextTokens both give"));
  EXPECT_THAT(
      Error("prompt,output\n1,2\n-3,4\n"),
      HasSubstr("line 3: column prompt: \"-3\" is no length; expected a whole number from 1"));
  EXPECT_THAT(Error("prompt,output\n1,\n"), HasSubstr("line 2: column output: \"\""));
  EXPECT_THAT(Error("prompt,output\n1\n"), HasSubstr("line 2: 1 columns; expected 2"));
  EXPECT_THAT(Error("prompt,output\n0,1\n"), HasSubstr("\"0\" is no length"));
  EXPECT_THAT(Error("prompt,output\n1.5,1\n"), HasSubstr("\"1.5\" is no length"));
  EXPECT_THAT(Error("prompt,output\n1,16777217\n"), HasSubstr("\"16777217\" is no length"));
  EXPECT_THAT(Error("prompt,output\n1,99999999999999999999\n"), HasSubstr("is no length"));
  EXPECT_THAT(Error("arrival,prompt,output\n-1,1,1\n"),
              HasSubstr("column arrival: \"-1\" is no time"));
  EXPECT_THAT(Error("arrival,prompt,output\nnan,1,1\n"), HasSubstr("\"nan\" is no time"));
  EXPECT_THAT(Error("arrival,prompt,output\n2023-11,1,1\n"), HasSubstr("\"2023-11\" is no time"));
  EXPECT_THAT(Error("arrival,prompt,output\n2,1,1\n1,1,1\n"),
              HasSubstr("line 3: column arrival: 1 comes after a later arrival"));
  EXPECT_THAT(Error("prompt,output\n" + std::string(70000, '1') + "\n"), HasSubstr("70000 bytes"));
  EXPECT_TRUE(ReadTrace("/nowhere/trace.csv", {}).status().code() == base::kIoError);
}

TEST(TraceTest, ArrivalsStayWithinTheClock) {
  const auto late = ReadText("arrival,prompt,output\n3e9,1,1\n", {.time_scale = 2});
  EXPECT_TRUE(late.status().code() == kTraceInvalid);
  EXPECT_THAT(late.status().message(), HasSubstr("the last arrival is after 6e+09 s"));
  // Seconds since 1970, where those since the begin are expected.
  EXPECT_THAT(ReadText("arrival,prompt,output\n0,1,1\n1700000000,1,1\n").status().message(),
              HasSubstr("the last arrival is after 1.7e+09 s; expected at most 7.776e+06 s"));
  EXPECT_FALSE(ReadTrace("synthetic:n=100,rate=1e-300", {}).ok());
  EXPECT_TRUE(ReadTrace("synthetic:n=100,rate=1e-300", {.time_scale = 0}).ok());
}

TEST(TraceTest, DrawsDistributions) {
  const std::string spec =
      "synthetic:n=20000,prompt=normal(1067,280),output=lognormal(5,0.5),rate=2.5,seed=1";
  const auto trace = ReadTrace(spec, {});
  ASSERT_TRUE(trace.ok()) << trace.status().ToString();
  double prompts = 0, outputs = 0;
  for (const TraceRow& row : trace->rows)
    prompts += row.prompt_tokens, outputs += row.output_tokens;
  EXPECT_NEAR(prompts / 20000, 1067, 10);
  EXPECT_NEAR(outputs / 20000, std::exp(5 + 0.125), 5);
  EXPECT_NEAR(trace->rows.back().arrival_seconds, 20000 / 2.5, 300);
  EXPECT_EQ(ReadTrace(spec, {})->rows[777].prompt_tokens, trace->rows[777].prompt_tokens);

  const auto few =
      ReadTrace("synthetic:n=500,prompt=uniform(3,5),output=zipf(1.5,100),shared=64,choices=2", {});
  ASSERT_TRUE(few.ok()) << few.status().ToString();
  EXPECT_EQ(few->shared_prefix_tokens, 64);
  EXPECT_EQ(few->choices, 2);
  int ones = 0;
  for (const TraceRow& row : few->rows) {
    EXPECT_TRUE(row.prompt_tokens >= 3 && row.prompt_tokens <= 5);
    EXPECT_TRUE(row.output_tokens >= 1 && row.output_tokens <= 100);
    ones += row.output_tokens == 1;
  }
  EXPECT_GT(ones, 100);
}

TEST(TraceTest, SyntheticErrorsNameTheField) {
  const auto error = [](const std::string& spec) { return ReadTrace(spec, {}).status().message(); };
  EXPECT_THAT(error("synthetic:rows=3"), HasSubstr("\"rows\" is unknown; expected n,"));
  EXPECT_THAT(error("synthetic:n=-3"), HasSubstr("n is \"-3\""));
  EXPECT_THAT(error("synthetic:n=1.5"), HasSubstr("n is \"1.5\""));
  EXPECT_THAT(error("synthetic:prompt=normal(3"), HasSubstr("prompt is \"normal(3\"; expected"));
  EXPECT_THAT(error("synthetic:output=uniform(5,3)"), HasSubstr("output is"));
  EXPECT_THAT(error("synthetic:prompt=0"), HasSubstr("prompt is \"0\""));
}

class TraceSourceTest : public testing::Test {
 protected:
  TraceSourceTest() {
    facts_.max_model_len = 100;
    facts_.vocab_size = 50;
  }
  ModelFacts facts_;
  RunControl control_;
};

TEST_F(TraceSourceTest, GivesSeededPromptsAndRefusesWhatTheContextCannotHold) {
  const LengthTrace trace{.rows = {{0, 10, 5}, {0, 60, 41}, {0, 60, 40}},
                          .shared_prefix_tokens = 8};
  TraceSource source(trace, facts_, 7, control_);
  const auto first = source.Next(false), second = source.Next(false);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->line, 0);
  EXPECT_EQ(second->line, 2);
  EXPECT_EQ(source.refused(), 1);
  EXPECT_TRUE(source.ended());
  EXPECT_EQ(first->ends_after, 5);
  EXPECT_EQ(first->sampling.max_tokens, -1);
  ASSERT_EQ(second->prompts[0].size(), 60u);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(first->prompts[0][i], second->prompts[0][i]);
  for (const int32_t token : second->prompts[0]) EXPECT_TRUE(token >= 0 && token < 50);
  EXPECT_NE(std::vector(second->prompts[0].begin() + 8, second->prompts[0].begin() + 10),
            std::vector(first->prompts[0].begin() + 8, first->prompts[0].end()));
  TraceSource again(trace, facts_, 7, control_), other(trace, facts_, 8, control_);
  EXPECT_EQ(again.Next(false)->prompts, first->prompts);
  EXPECT_NE(other.Next(false)->prompts, first->prompts);
}

TEST_F(TraceSourceTest, LongOnesComeInTime) {
  LengthTrace trace{.rows = {{0, 10, 5}, {0, 10, 5}, {0, 10, 80}}, .bound = 1};
  const auto first = [&](job::LineOrder order) {
    return TraceSource(trace, facts_, 7, control_, {order, 400}).Next(false)->line;
  };
  EXPECT_EQ(first(job::LineOrder::kMakespan), 2);
  EXPECT_EQ(first(job::LineOrder::kOfTheFile), 0);
  trace.rows[2].arrival_seconds = 1;
  EXPECT_EQ(first(job::LineOrder::kMakespan), 0) << "lines with arrivals have their order";
}

TEST_F(TraceSourceTest, HasTheArrivalsOfWhatItGivesAndNoticesTheEnd) {
  const LengthTrace trace{.rows = {{1.5, 10, 5}, {2, 60, 41}, {2.5, 10, 5}}};
  TraceSource source(trace, facts_, 7, control_);
  EXPECT_EQ(source.arrivals(), (std::vector<double>{1.5, 2.5}));
  EXPECT_TRUE(source.Next(false).has_value());
  control_.drain = true;
  EXPECT_FALSE(source.Next(true).has_value());
  EXPECT_TRUE(source.ended());
}

}  // namespace
}  // namespace forebay::trace

// Timelines divide steps by time and stay small; a report draws what a run has, and nothing else.
#include "report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "report/rank_charts.h"
#include "report/step_log.h"
#include "report/svg_chart.h"

namespace forebay::report {
namespace {

using testing::HasSubstr;
using testing::Not;

StepRecord Step(int replica, double begin, double end) {
  return {.replica = replica,
          .begin_seconds = begin,
          .end_seconds = end,
          .decode_rows = 4,
          .prefill_rows = 8,
          .running = 6,
          .kv_blocks_used = 10};
}

TEST(TimelineTest, DividesStepsByTime) {
  Timeline timeline;
  timeline.OnStep(Step(1, 0.0005, 0.0025));
  ASSERT_EQ(timeline.lanes().size(), 2u);
  const auto& lane = timeline.lanes()[1];
  EXPECT_EQ(timeline.size(), 3u);
  EXPECT_NEAR(lane[0].steps, 0.25, 1e-9);
  EXPECT_NEAR(lane[1].decode_rows, 2, 1e-9);
  EXPECT_NEAR(lane[1].running, 6 * 0.001, 1e-9);
  EXPECT_NEAR(lane[2].busy_seconds, 0.0005, 1e-9);
  EXPECT_EQ(lane[3].steps, 0);
}

TEST(TimelineTest, KeepsSumsWhenItWidens) {
  Timeline timeline;
  double time = 0;
  for (int i = 0; i < 20000; ++i) {
    const double next = time + 0.0007 * (1 + i % 5);
    timeline.OnStep(Step(i % 3, time, next));
    time = next;
  }
  double steps = 0, rows = 0, busy = 0;
  for (const auto& lane : timeline.lanes()) {
    for (const TimelineBucket& bucket : lane)
      steps += bucket.steps, rows += bucket.prefill_rows, busy += bucket.busy_seconds;
  }
  EXPECT_NEAR(steps, 20000, 1e-6);
  EXPECT_NEAR(rows, 160000, 1e-5);
  EXPECT_NEAR(busy, time, 1e-6);
  EXPECT_GE(timeline.size(), Timeline::kBuckets / 2);
  EXPECT_NEAR(timeline.end_seconds(), time, 1e-12);
}

TEST(DistributionTest, SharesAreThoseOfTheValues) {
  Distribution values;
  for (int i = 1; i <= 100; ++i) values.Add(i);
  EXPECT_EQ(values.count(), 100);
  const auto share = [&](double most) {
    double share = 0;
    for (const Distribution::Point& point : values.Points()) {
      if (point.value <= most * 1.02) share = point.share;
    }
    return share;
  };
  for (const int most : {1, 2, 10, 50, 99}) EXPECT_NEAR(share(most), most / 100.0, 0.03) << most;
  EXPECT_EQ(values.Points().back().share, 1);
  EXPECT_NEAR(values.Points().back().value, 100, 2);
  values.Add(0);
  EXPECT_EQ(values.Points().front().value, 0);
  EXPECT_NEAR(values.Points().front().share, 1.0 / 101, 1e-12);
  EXPECT_TRUE(Distribution().Points().empty());
}

trace::CountedRun SomeRun() {
  trace::CountedRun run;
  run.summary.end = "complete";
  run.summary.isa = "sim:8xh200";
  run.summary.model.name = "A<model>&\"";
  run.layout = "dp=8";
  run.summary.model.device_profile = "h200";
  run.summary.stats.mode_counters = {{"priced_measured_percent", 62},
                                     {"priced_derived_percent", 0},
                                     {"priced_datasheet_percent", 38}};
  run.summary.stats.kv_blocks_total = 800;
  return run;
}

TEST(ReportTest, DrawsWhatThereIs) {
  Timeline timeline;
  for (int i = 0; i < 100; ++i) timeline.OnStep(Step(0, 0.01 * i, 0.01 * (i + 1)));
  trace::CountedRun run = SomeRun();
  std::string html = ReportHtml(run, timeline);
  for (const char* title :
       {"Running choices", "Tokens a second", "Step time", "Rows a step", "KV cache in use",
        "Running choices, part of steps", "Step time, part of steps", ">100 %<", "Summary"}) {
    EXPECT_THAT(html, HasSubstr(title));
  }
  for (const char* title : {"Pulled over links", "Mode", "Where time went", "Replicas",
                            "KV below the device", "A<model>", "nan", "inf\""})
    EXPECT_THAT(html, Not(HasSubstr(title)));
  EXPECT_THAT(html,
              HasSubstr("<h1>A&lt;model&gt;&amp;&quot; on sim:8xh200, simulated; layout dp=8; "
                        "prices of h200: 62 % measured, 0 % derived, 38 % datasheet</h1>"));

  StepRecord pulls = Step(1, 1, 1.5);
  pulls.mode.ffn = FfnMode::kPull;
  pulls.bytes_pulled = 1'000'000'000;
  pulls.kv_blocks_streamed = 300;
  timeline.OnStep(pulls);
  for (const FfnMode mode : {FfnMode::kShip, FfnMode::kGather, FfnMode::kRouted}) {
    StepRecord step = Step(1, 1.5, 2);
    step.mode.ffn = mode;
    timeline.OnStep(step);
  }
  run.profile.push_back({.label = "attention", .seconds = 2});
  run.summary.stats.replicas = {{.steps = 3, .tokens = 10, .busy_seconds = 1},
                                {.steps = 5, .tokens = 30, .busy_seconds = 3}};
  html = ReportHtml(run, timeline);
  for (const char* title :
       {"Pulled over links", "Batch by mode", "Mode", "Replicas", "Where time went", "attention",
        "By replica", "busiest to mean: 1.500 in time, 1.500 in tokens",
        "least to most of 2 replicas", "KV below the device, part of steps",
        "Waits for KV, part of steps",
        "<i class=\"k0\"></i>local <i class=\"k1\"></i>pull <i class=\"k2\"></i>ship "
        "<i class=\"k3\"></i>gather <i class=\"k4\"></i>routed",
        "<path class=\"k4\"", "pull 25.0 %, ship 25.0 %, gather 25.0 %, routed 25.0 %, pulled"})
    EXPECT_THAT(html, HasSubstr(title));
  EXPECT_THAT(ReportHtml(SomeRun(), Timeline()), HasSubstr("Summary"));
}

engine::RankReport SomeRank(double peers, std::vector<int64_t> rows, std::vector<uint64_t> from) {
  engine::RankReport rank;
  using enum cost::OpKind;
  rank.profile = {{.label = "attention", .kind = kAttention, .seconds = 1},
                  {.label = "experts_down", .kind = kExperts, .seconds = 2},
                  {.label = "qkv", .kind = kLinear, .seconds = 3},
                  {.label = "ffn_norm", .kind = kNorm, .seconds = 0.5},
                  {.label = "router", .kind = kOther, .seconds = 0.25},
                  {.label = "ship_experts", .kind = kCopy, .seconds = 4}};
  rank.time = {.busy = 11, .moved = 0.75};
  rank.time.waits.by_cause[static_cast<size_t>(WaitCause::kPeer)] = peers;
  rank.expert_rows = std::move(rows);
  rank.bytes_from = std::move(from);
  return rank;
}

TEST(ReportTest, TimeOfARankByKind) {
  const TimeByKind times = TimesOf(SomeRank(5, {}, {}));
  EXPECT_THAT(times, testing::ElementsAre(1, 2, 3, 0.75, 4.75, 0.25, 0, 5, 0, 0));
  engine::RankReport unprofiled = SomeRank(5, {}, {});
  unprofiled.profile.clear();
  EXPECT_THAT(TimesOf(unprofiled), testing::Each(0));
}

TEST(ReportTest, DrawsRanks) {
  trace::CountedRun run = SomeRun();
  for (const char* title : {"Time by rank", "Expert load", "Bytes between ranks"})
    EXPECT_THAT(ReportHtml(run, Timeline()), Not(HasSubstr(title)));
  run.ranks = {SomeRank(1, {3, 0}, {0, 2'500'000'000}), SomeRank(2, {4, 1}, {7000, 0})};
  run.ranks[1].role = GroupRole::kGeneration;
  const std::string html = ReportHtml(run, Timeline());
  for (const char* text : {"Time by rank", "waits for other ranks", ">rank 0<", ">1, generation<",
                           "class=\"k7\"", "Expert load", "the busiest has 1.750",
                           "Bytes between ranks", "<td>2.5GB</td>", "<td>7kB</td>"})
    EXPECT_THAT(html, HasSubstr(text));
  for (const char* text : {"nan", "inf\"", "class=\"k8\" x"})
    EXPECT_THAT(html, Not(HasSubstr(text)));
  EXPECT_EQ(ExpertLoadOf({}).busiest, 0);
}

TEST(ReportTest, DrawsRequestsThatCameOverTime) {
  Timeline timeline;
  for (int i = 0; i < 100; ++i) timeline.OnStep(Step(0, 0.01 * i, 0.01 * (i + 1)));
  trace::CountedRun run = SomeRun();
  for (int i = 0; i < 40; ++i) {
    run.latencies.requests.push_back(
        {.arrival = 0, .first_token = 0.1, .end = 0.1 + 0.01 * i, .longest = i});
  }
  for (const char* title : {"Arrivals a second", "Time to first token, ms"})
    EXPECT_THAT(ReportHtml(run, timeline), Not(HasSubstr(title)));
  run.latencies.requests[39].arrival = 0.5;
  run.latencies.completion.max = 1;
  run.latencies.tokens = {.any = true, .peak_1s = 321, .peak_10s = 123};
  const std::string html = ReportHtml(run, timeline);
  for (const char* title : {"Arrivals a second", "Time to first token, ms",
                            "Time per output token, ms", "time between tokens", "321.0, 123.0"})
    EXPECT_THAT(html, HasSubstr(title));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

// A step of a layout without sp has sp = 1; one chart shows where steps shift.
TEST(ReportTest, DrawsTheModesOfRanksThatCutRows) {
  Timeline timeline;
  StepRecord step = Step(0, 0, 0.5);
  step.mode.degrees.tp = 8;
  timeline.OnStep(step);
  EXPECT_THAT(ReportHtml(SomeRun(), timeline), Not(HasSubstr("Mode")));
  step.begin_seconds = 0.5, step.end_seconds = 1;
  step.mode.degrees = {.sp = 8, .tp = 1};
  timeline.OnStep(step);
  EXPECT_NEAR(timeline.lanes()[0][0].sp_seconds, timeline.bucket_seconds(), 1e-9);
  const size_t last = timeline.size() - 1;
  EXPECT_NEAR(timeline.lanes()[0][last].sp_seconds, 8 * timeline.lanes()[0][last].busy_seconds,
              1e-9);
  EXPECT_THAT(ReportHtml(SomeRun(), timeline), HasSubstr("Mode, sp of a step"));
}

TEST(ReportTest, StaysSmall) {
  Timeline timeline;
  for (int i = 0; i < 64; ++i) {
    for (int k = 0; k < 2000; ++k)
      timeline.OnStep(Step(i, 0.013 * k, 0.013 * (k + 1) + 0.001 * (i % 7)));
  }
  EXPECT_LT(ReportHtml(SomeRun(), timeline).size(), 1'000'000u);
}

TEST(StepLogTest, SaysWhatOfTheKvLiesBelow) {
  StepRecord step = Step(0, 0, 0.5);
  std::string line;
  AppendStepLine(step, &line);
  EXPECT_THAT(line, Not(HasSubstr("kv_stream_limit")));
  step.kv_blocks_down = 3, step.kv_blocks_up = 2;
  step.kv_blocks_streamed = 7, step.kv_stream_limit = 12;
  AppendStepLine(step, &line);
  EXPECT_THAT(line, HasSubstr("\"kv_blocks_down\":3,\"kv_blocks_up\":2,"
                              "\"kv_blocks_streamed\":7,\"kv_stream_limit\":12,"));
}

TEST(SvgChartTest, Numbers) {
  EXPECT_EQ(ShortNumber(12345678), "12.3M");
  EXPECT_EQ(ShortNumber(0.25), "0.25");
  EXPECT_EQ(ShortNumber(2000), "2k");
  const double values[] = {0, 5, 10};
  SvgChart chart(90, 10);
  chart.Line(values, "a");
  const std::string svg = chart.Finish();
  EXPECT_THAT(svg, HasSubstr("M103.7 130.0"));  // the middle of the first third, at 0
  EXPECT_THAT(svg, HasSubstr("L350.3 8.0"));    // the last point, at the top
  EXPECT_THAT(svg, HasSubstr(">80 s<"));
}

}  // namespace
}  // namespace forebay::report

#include "job/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "job/signal_control.h"

namespace forebay::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

EngineStats Stats() {
  EngineStats stats;
  stats.choices_running = 64;
  stats.choices_waiting = 12;
  stats.kv_blocks_used = 30;
  stats.kv_blocks_total = 40;
  stats.preemptions = 3;
  stats.prefix_blocks_hit = 17;
  return stats;
}

ProgressView View() {
  return {.lines = 1000,
          .done = 250,
          .failed = 5,
          .elapsed_seconds = 75,
          .output_rate = 812.4,
          .total_rate = 2040,
          .eta_seconds = 7260,
          .stats = Stats()};
}

TEST(ProgressTest, TheLineSaysEverything) {
  EXPECT_EQ(ProgressLine(View()),
            "250/1000 done, 5 failed, output 812 tok/s, total 2040 tok/s, 64 running, 12 waiting, "
            "KV 75%, 3 preemptions, "
            "17 prefix hits, ETA 2h 1m");
  EXPECT_THAT(ProgressLine({}),
              AllOf(HasSubstr("0/0 done"), HasSubstr("KV 0%"), HasSubstr("ETA unknown")));
}

TEST(ProgressTest, TheBlockFitsTheTerminal) {
  for (size_t width = 1; width < 200; ++width) {
    const auto block = ProgressBlock(View(), width);
    ASSERT_EQ(block.size(), 3u);
    for (const std::string& line : block) EXPECT_LE(line.size(), width);
  }
  EXPECT_THAT(ProgressBlock(View(), 100)[0],
              HasSubstr("[##########..............................]  25%  1m 15s, ETA 2h 1m"));
}

TEST(ProgressTest, TheTimeLeftComesFromTokens) {
  ProgressEstimator estimator(
      {.lines = 120, .resumed = 20, .resumed_failed = 1, .pending_bytes = 10'000});
  JobCounters counters;
  EngineStats stats;
  EXPECT_EQ(estimator.View(1, counters, stats).eta_seconds, std::nullopt);
  // Half the bytes are read at 0.2 tokens each: 2,000 prompt tokens in all. 25 of 100 lines gave 40
  // tokens each: 4,000.
  counters.read_bytes = 5000;
  counters.read_prompt_tokens = 1000;
  counters.done = 25;
  counters.failed = 2;
  counters.done_output_tokens = stats.output_tokens = 1000;
  stats.computed_tokens = 1400;
  stats.recomputed_tokens = 100;
  stats.cached_prompt_tokens = 200;
  // 1,500 of 6,000 tokens took 10 s.
  const ProgressView view = estimator.View(10, counters, stats);
  ASSERT_TRUE(view.eta_seconds);
  EXPECT_NEAR(*view.eta_seconds, 30, 1e-9);
  EXPECT_EQ(view.done, 45);
  EXPECT_EQ(view.failed, 3);
  EXPECT_NEAR(view.output_rate, 100, 1e-9);
  EXPECT_NEAR(view.total_rate, 150, 1e-9);
  // What runs already has longer answers than what is done: 75 running choices with 9,000 tokens.
  stats.output_tokens = 10'000;
  stats.choices_running = 75;
  EXPECT_GT(*estimator.View(10, counters, stats).eta_seconds, 60);
  // Those done used half of what they might; those that run may generate 400,000 more, at 1,000 a
  // second.
  stats.output_allowed = 2000;
  stats.output_room = 400'000;
  EXPECT_NEAR(*estimator.View(10, counters, stats).eta_seconds, 200, 1e-9);
}

TEST(ProgressTest, RatesForgetWhatIsLongAgo) {
  ProgressEstimator estimator({.lines = 10});
  const JobCounters counters;
  EngineStats stats;
  ProgressView view;
  for (int second = 0; second <= 60; ++second) {
    stats.output_tokens += second < 30 ? 1000 : 10;
    view = estimator.View(second, counters, stats);
  }
  EXPECT_NEAR(view.output_rate, 10, 1e-6);
}

TEST(ProgressTest, WorkersHaveALineEach) {
  ProgressView view = View();
  view.workers = {{"process 7", 20, 4}, {"process 9", 9, 0}};
  const auto block = ProgressBlock(view, 100);
  ASSERT_EQ(block.size(), 4u);
  EXPECT_EQ(block[2], "process 7: 20 done, 4 held");
  EXPECT_EQ(block[3], "process 9: 9 done, 0 held");
  EXPECT_THAT(ProgressLine(view), HasSubstr(" tok/s, 2 workers, ETA"));
  view.workers.resize(40);
  EXPECT_EQ(ProgressBlock(view, 100).back(), "and 24 workers more");
}

std::string Drawn(ProgressMode mode, bool finish) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  ProgressDisplay display(mode, ends[1]);
  finish ? display.Finish(View()) : display.Draw(View());
  close(ends[1]);
  std::string text(4096, '\0');
  text.resize(static_cast<size_t>(read(ends[0], text.data(), text.size())));
  close(ends[0]);
  return text;
}

TEST(ProgressTest, EachModeDrawsItsWay) {
  EXPECT_EQ(Drawn(ProgressMode::kQuiet, false), "");
  EXPECT_EQ(Drawn(ProgressMode::kLines, false), "forebay: " + ProgressLine(View()) + "\n");
  EXPECT_EQ(Drawn(ProgressMode::kLines, true), "");
  EXPECT_THAT(Drawn(ProgressMode::kLive, false),
              HasSubstr("prefix hits\x1b[K\n\x1b[?7h\x1b[J\x1b[3A"));
  EXPECT_THAT(Drawn(ProgressMode::kLive, true),
              ::testing::EndsWith("prefix hits\x1b[K\n\x1b[?7h\x1b[J"));
}

TEST(ProgressTest, SeveralReplicas) {
  ProgressView view = View();
  const size_t lines = ProgressBlock(view, 200).size();
  view.stats.replicas = {{.tokens = 300, .choices_running = 12, .mode = {.ffn = FfnMode::kPull}},
                         {.tokens = 100, .choices_running = 4, .mode = {.ffn = FfnMode::kShip}}};
  EXPECT_THAT(ProgressLine(view),
              HasSubstr("running by replica 12|4, imbalance 1.50, mode 1 pull, 1 ship"));
  EXPECT_EQ(ProgressBlock(view, 200).size(), lines + 1);
}

// Rows and modes of the last seconds, of a layout whose steps shift.
TEST(ProgressTest, ModesOfRanksThatCutRows) {
  ProgressEstimator estimator({.lines = 10});
  EngineStats stats = Stats();
  EXPECT_EQ(estimator.View(1, {}, stats).modes, "");
  stats.mode_counters = {{"steps_sp8tp1", 3}, {"steps_sp1tp8", 0}, {"steps_pull", 3}};
  stats.computed_tokens = 3000;
  EXPECT_EQ(estimator.View(2, {}, stats).modes, "1000.0 rows a step, sp8tp1 100%");
  for (int second = 3; second < 30; ++second) {
    stats.mode_counters["steps_sp1tp8"] += 3;
    stats.mode_counters["steps_sp8tp1"] += 1;
    stats.computed_tokens += 200;
    estimator.View(second, {}, stats);
  }
  const ProgressView view = estimator.View(30, {}, stats);
  EXPECT_EQ(view.modes, "50.0 rows a step, sp1tp8 75%, sp8tp1 25%");
  EXPECT_THAT(ProgressLine(view), HasSubstr("prefix hits, 50.0 rows a step, sp1tp8 75%"));
  EXPECT_EQ(ProgressBlock(view, 200).back(), view.modes);
}

TEST(SignalControlTest, DrainsThenAbortsThenDies) {
  const pid_t child = fork();
  if (child == 0) {
    RunControl control;
    const SignalControl signals(&control);
    close(STDERR_FILENO);
    raise(SIGPIPE);
    if (control.drain || control.abort) _exit(1);
    raise(SIGTERM);
    if (!control.drain || control.abort) _exit(2);
    raise(SIGINT);
    if (!control.abort) _exit(3);
    raise(SIGINT);
    _exit(4);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGINT);
}

TEST(SignalControlTest, AHangUpDrainsUnlessItIsIgnored) {
  for (const bool ignored : {false, true}) {
    const pid_t child = fork();
    if (child == 0) {
      close(STDERR_FILENO);
      signal(SIGHUP, ignored ? SIG_IGN : SIG_DFL);  // nohup ignores it
      RunControl control;
      const SignalControl signals(&control);
      raise(SIGHUP);
      _exit(control.drain ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), ignored ? 0 : 1);
  }
}

TEST(SignalControlTest, RestoresWhatWasThere) {
  struct sigaction before, after;
  sigaction(SIGTERM, nullptr, &before);
  {
    RunControl control;
    const SignalControl signals(&control);
  }
  sigaction(SIGTERM, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
}

}  // namespace
}  // namespace forebay::job

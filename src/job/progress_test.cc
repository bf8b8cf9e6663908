#include "job/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <random>
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
  // Half the bytes are read at 0.2 tokens each: 2,000 prompt tokens in all, a third of them given
  // by the prefix index. 25 of 100 lines gave 40 tokens each: 4,000.
  counters.read_bytes = 5000;
  counters.read_prompt_tokens = 1000;
  counters.done = 25;
  counters.failed = 2;
  for (int line = 0; line < 25; ++line) counters.CountOutput(40);
  stats.output_tokens = 1000;
  stats.computed_tokens = 1500;
  stats.recomputed_tokens = 100;
  stats.prefill_rows = 400;
  stats.cached_prompt_tokens = 200;
  const ProgressView view = estimator.View(10, counters, stats);
  ASSERT_TRUE(view.eta_seconds);
  // 1,400 tokens took 10 s; 933 of prompts and 3,000 of answers are left.
  EXPECT_NEAR(*view.eta_seconds, 10.0 / 1400 * (2000 * 2 / 3.0 - 400 + 3000), 0.3);
  EXPECT_EQ(view.done, 45);
  EXPECT_EQ(view.failed, 3);
  EXPECT_NEAR(view.output_rate, 100, 1e-9);
  // Tokens that were computed, and each once.
  EXPECT_NEAR(view.total_rate, 140, 1e-9);
  // Those done used half of what they might; those that run may generate 400,000 more, at 100 a
  // second.
  stats.output_allowed = 2000;
  stats.output_room = 400'000;
  EXPECT_NEAR(*estimator.View(10, counters, stats).eta_seconds, 2000, 1e-6);
}

// A job of one replica with a batch of 32, whose steps have at most 256 rows.
struct LineLengths {
  int64_t prompt, output;
};
struct StepCost {
  double step, prompt, output;  // seconds, of a step and of its rows
};

// The mean error of the time left, of looks each two seconds between a tenth and 80 % of the job.
double MeanEtaError(const std::vector<LineLengths>& lines, const StepCost& cost) {
  struct Running {
    LineLengths line;
    int64_t computed = 0, generated = 0;
  };
  struct Look {
    double seconds;
    std::optional<double> eta;
  };
  ProgressEstimator estimator({.lines = std::ssize(lines), .pending_bytes = std::ssize(lines)});
  JobCounters counters;
  EngineStats stats;
  std::vector<Running> running;
  std::vector<Look> looks;
  size_t next = 0;
  double now = 0;
  while (next < lines.size() || !running.empty()) {
    while (running.size() < 32 && next < lines.size()) running.push_back({lines[next++]});
    while (counters.read_bytes <
           std::min<int64_t>(std::ssize(lines), static_cast<int64_t>(next) + 128))
      counters.read_prompt_tokens += lines[static_cast<size_t>(counters.read_bytes++)].prompt;
    int64_t rows = 256, prompt = 0, output = 0;
    for (Running& choice : running) {
      if (choice.computed < choice.line.prompt) continue;
      ++choice.generated, ++output, --rows;
    }
    for (Running& choice : running) {
      const int64_t chunk = std::min(rows, choice.line.prompt - choice.computed);
      choice.computed += chunk, prompt += chunk, rows -= chunk;
    }
    std::erase_if(running, [&](const Running& choice) {
      if (choice.generated < choice.line.output) return false;
      ++counters.done;
      counters.CountOutput(choice.line.output);
      return true;
    });
    now += cost.step + cost.prompt * static_cast<double>(prompt) +
           cost.output * static_cast<double>(output);
    ++stats.steps;
    stats.prefill_rows += prompt;
    stats.output_tokens += output;
    stats.computed_tokens += prompt + output;
    stats.choices_running = std::ssize(running);
    if (looks.empty() || now > looks.back().seconds + 2)
      looks.push_back({now, estimator.View(now, counters, stats).eta_seconds});
  }
  double sum = 0;
  int count = 0;
  for (const Look& look : looks) {
    if (look.seconds < 0.1 * now || look.seconds > 0.8 * now || !look.eta) continue;
    sum += std::abs(*look.eta / (now - look.seconds) - 1);
    ++count;
  }
  return count > 0 ? sum / count : 1;
}

// Prompts that cost as much as answers, and a tenth; steps that cost by themselves, and by rows.
TEST(ProgressTest, TheTimeLeftIsRightFromATenthOn) {
  std::mt19937_64 rng(7);
  const auto draw = [&](double median, double sigma) {
    return std::max<int64_t>(
        1, std::llround(std::lognormal_distribution(std::log(median), sigma)(rng)));
  };
  struct Law {
    const char* name;
    double prompt, prompt_sigma, output, output_sigma;
  };
  for (const Law& law :
       {Law{"all alike", 200, 0, 100, 0}, Law{"answers differ", 200, 0, 74, 0.7},
        Law{"both differ", 120, 0.6, 74, 0.6}, Law{"long prompts", 800, 0, 33, 0.7},
        Law{"short prompts", 20, 0, 120, 0.6}}) {
    std::vector<LineLengths> lines;
    for (int i = 0; i < 600; ++i) {
      const int64_t prompt = draw(law.prompt, law.prompt_sigma);
      lines.push_back({prompt, draw(law.output, law.output_sigma)});
    }
    for (const StepCost& cost :
         {StepCost{0.02, 1e-3, 5e-4}, StepCost{0.02, 1e-4, 5e-4}, StepCost{5e-3, 1e-3, 2e-3}}) {
      EXPECT_LT(MeanEtaError(lines, cost), 0.15)
          << law.name << ", " << cost.step << ", " << cost.prompt << ", " << cost.output;
    }
  }
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

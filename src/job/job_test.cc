#include "job/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <thread>

#include "base/json.h"
#include "base/log.h"
#include "job/files/results_log.h"
#include "job/testing/fake_engine.h"
#include "job/testing/fake_pipeline.h"
#include "job/testing/files.h"
#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kManyLines = 400;

// Good lines of several kinds, and every seventh a bad one.
std::string ManyLines(int count = kManyLines) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    switch (i % 7) {
      case 0:
        text += fmt::format(
            R"({{"custom_id":"c{}","method":"POST","url":"/v1/chat/completions","body":{{"messages":[{{"role":"user","content":"question {}"}}]}}}})",
            i, i);
        break;
      case 1: text += fmt::format(R"({{"prompt":["p {}","q"],"n":2,"max_tokens":4}})", i); break;
      case 2:
        text += fmt::format(R"({{"custom_id":"bad {}","prompt":"x","temperature":-1}})", i);
        break;
      case 3: text += R"({"prompt":[1,2,3],"echo":true})"; break;
      case 4:
        text += fmt::format(R"({{"prompt":"{}"}})", std::string(size_t(i % 50 + 1), 'w'));
        break;
      case 5:
        text += i % 2 ? "{\"prompt\":\"x\""
                      : R"({"messages":[{"role":"user","content":"bad template"}]})";
        break;
      default:
        text += fmt::format(R"({{"prompt":"{}","max_tokens":2}})",
                            std::string(size_t(i % 3 == 0 ? 400 : 4), 'l'));
        break;
    }
    text += i % 11 == 0 ? "\r\n\n" : "\n";
  }
  return text;
}

struct TestJob {
  TestJob() {
    base::SetLogLevel(base::LogLevel::kError);
    options.output_path = folder / "out.jsonl";
    options.fingerprints = {0, 1, 2, 3};
    options.rules.vocab_size = FakePipeline::kVocabulary;
    options.style = {"tiny", "pair-fake", false};
    options.progress = ProgressMode::kQuiet;
    options.isa = "avx2";
    options.unix_seconds = [] { return 1700000000; };
  }
  JobOutcome Run(FakeEngine& engine, runtime::Runtime& on) {
    const auto input = JobFile::Open(input_path);
    EXPECT_TRUE(input.ok()) << input.status().ToString();
    return RunJob(on, *input, options, text, engine, control);
  }
  JobOutcome Run(FakeEngine& engine) { return Run(engine, *runtime); }
  JobOutcome Run() {
    FakeEngine engine;
    return Run(engine);
  }
  void Input(std::string_view content) const { WriteFile(input_path, content); }
  std::string Output() const { return ReadWhole(options.output_path); }

  base::TemporaryFolder folder;
  const std::string input_path = folder / "in.jsonl";
  std::unique_ptr<runtime::Runtime> runtime = runtime::CreateRealRuntime();
  JobOptions options;
  FakePipeline text;
  RunControl control;
};

// The lines of a results file by input line; a second result for one fails.
std::map<int64_t, std::string> ByLine(const std::string& content) {
  std::map<int64_t, std::string> lines;
  std::istringstream in(content);
  for (std::string line; std::getline(in, line);) {
    const int64_t number = std::stoll(line.substr(line.find("req_") + 4));
    EXPECT_TRUE(lines.emplace(number, line).second) << line;
  }
  EXPECT_TRUE(content.empty() || content.back() == '\n');
  return lines;
}

// What one undisturbed run writes for ManyLines().
const std::map<int64_t, std::string>& Expected() {
  static const std::map<int64_t, std::string> expected = [] {
    TestJob job;
    job.Input(ManyLines());
    const JobOutcome outcome = job.Run();
    EXPECT_EQ(outcome.exit_code, ExitCode::kComplete) << outcome.status.ToString();
    EXPECT_EQ(outcome.summary.done, kManyLines);
    return ByLine(job.Output());
  }();
  return expected;
}

TEST(JobTest, EveryLineGetsItsResult) {
  TestJob job;
  job.Input(
      "\xEF\xBB\xBF{\"custom_id\":\"a\",\"prompt\":\"hi\"}\r\n\n{\"custom_id\":\"a\",\"prompt\":1}"
      "\n{\"prompt\":[[97],[98,99]],\"echo\":true}");
  const JobOutcome outcome = job.Run();
  EXPECT_EQ(outcome.exit_code, ExitCode::kComplete) << outcome.status.ToString();
  EXPECT_EQ(outcome.summary.lines, 3);
  EXPECT_EQ(outcome.summary.done, 3);
  EXPECT_EQ(outcome.summary.failed, 1);
  const auto lines = ByLine(job.Output());
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines.at(1),
              AllOf(HasSubstr("\"custom_id\":\"a\",\"response\":{\"status_code\":200"),
                    HasSubstr("\"object\":\"text_completion\""), HasSubstr("\"model\":\"tiny\""),
                    HasSubstr("\"created\":1700000000"),
                    HasSubstr("\"prompt_tokens\":3,\"completion_tokens\":3")));
  EXPECT_THAT(lines.at(3), AllOf(HasSubstr("\"custom_id\":\"a\",\"response\":{\"status_code\":400"),
                                 HasSubstr("`prompt` is 1"), HasSubstr("\"error\":null}")));
  EXPECT_THAT(lines.at(4),
              AllOf(HasSubstr("\"custom_id\":null"), HasSubstr("{\"index\":0,\"text\":\"at\""),
                    HasSubstr("{\"index\":1,\"text\":\"bcvx\"")));
}

TEST(JobTest, ErrorsOfTemplateAndEngineAreTheLinesOwn) {
  const auto& lines = Expected();
  EXPECT_EQ(lines.size(), size_t{kManyLines});
  const auto count = [&](const std::string& text) {
    return std::count_if(lines.begin(), lines.end(), [&](const auto& line) {
      return line.second.find(text) != std::string::npos;
    });
  };
  EXPECT_GT(count("\"code\":\"template_error\""), 10);
  EXPECT_GT(count("\"code\":\"context_length_exceeded\""), 10);
  EXPECT_GT(count("\"code\":\"json_invalid\""), 10);
  EXPECT_GT(count("\"status_code\":200"), 200);
}

TEST(JobTest, SaysWhyLinesFailed) {
  TestJob job;
  job.Input(ManyLines());
  const JobOutcome outcome = job.Run();
  const auto& failures = outcome.summary.failures;
  ASSERT_EQ(failures.size(), 4u);
  EXPECT_EQ(failures[0].first, "invalid_value");
  EXPECT_EQ(failures[0].second.count, (kManyLines + 4) / 7);
  EXPECT_EQ(failures[0].second.first_line, 4);
  EXPECT_THAT(failures[0].second.message, HasSubstr("`temperature` is -1"));
  int64_t sum = 0;
  for (const auto& [code, failure] : failures) sum += failure.count;
  EXPECT_EQ(sum, outcome.summary.total_failed);
  const std::string text = SummaryText(outcome.summary);
  EXPECT_THAT(text, HasSubstr("failed: 57 x invalid_value, first at line 4: `temperature` is -1"));
  EXPECT_THAT(SummaryJson(outcome.summary),
              HasSubstr(R"("failures":[{"code":"invalid_value","count":57,"first_line":4,)"));
  // A resume reads them back.
  const JobOutcome again = job.Run();
  EXPECT_EQ(SummaryText(again.summary).find("failed: 57 x"), text.find("failed: 57 x") - 2);
  EXPECT_EQ(again.summary.failures.size(), 4u);
}

TEST(JobTest, AJobOfWhichNothingSucceededHasItsCode) {
  TestJob job;
  job.options.rules.model_names = {"tiny"};
  std::string input;
  for (int i = 0; i < 1200; ++i) input += "{\"prompt\":\"x\",\"model\":\"gpt-9\"}\n";
  job.Input(input);
  for (int run = 0; run < 2; ++run) {
    const JobOutcome outcome = job.Run();
    EXPECT_EQ(outcome.exit_code, ExitCode::kAllFailed);
    EXPECT_EQ(outcome.status.code(), kAllLinesFailed);
    EXPECT_EQ(outcome.summary.end, "all_failed");
    // It alone is printed under --quiet.
    EXPECT_THAT(outcome.status.message(),
                HasSubstr("all 1200 lines failed: 1,200 x model_not_found, first at line 1: the "));
    EXPECT_THAT(SummaryText(outcome.summary),
                HasSubstr("failed: 1,200 x model_not_found, first at line 1: the model `gpt-9`"));
  }
  job.options.rules.model_names = {"tiny", "*"};
  EXPECT_EQ(job.Run().exit_code, ExitCode::kAllFailed);
  job.options.retry_failed = true;
  const JobOutcome outcome = job.Run();
  EXPECT_EQ(outcome.exit_code, ExitCode::kComplete);
  EXPECT_EQ(outcome.summary.done, 1200);
  EXPECT_TRUE(outcome.summary.failures.empty());
}

TEST(JobTest, AFailedLineThatWasMendedRunsAgain) {
  TestJob job;
  job.Input("{\"prompt\":\"a\"}\n{\"prompt\":1}\n{\"prompt\":\"c\",\"n\":0}\n");
  EXPECT_EQ(job.Run().exit_code, ExitCode::kComplete);
  const auto before = ByLine(job.Output());
  job.Input("{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}\n{\"prompt\":\"c\",\"n\":0}\n");
  const JobOutcome outcome = job.Run();
  EXPECT_EQ(outcome.exit_code, ExitCode::kComplete) << outcome.status.ToString();
  EXPECT_EQ(outcome.summary.done, 1);
  const auto after = ByLine(job.Output());
  EXPECT_EQ(after.at(1), before.at(1));
  EXPECT_EQ(after.at(3), before.at(3));
  EXPECT_THAT(after.at(2), HasSubstr("\"status_code\":200"));
}

TEST(JobTest, AResultsFileThatGoesAwayStopsTheJob) {
  TestJob job;
  job.Input(ManyLines());
  FakeEngine engine;
  engine.after_result = [&](int64_t finished) {
    if (finished == 50) std::filesystem::remove(job.options.output_path);
  };
  const JobOutcome outcome = job.Run(engine);
  EXPECT_EQ(outcome.exit_code, ExitCode::kResultsIo);
  EXPECT_EQ(outcome.status.code(), kResultsReplaced);
}

TEST(JobTest, AnEmptyInputIsComplete) {
  TestJob job;
  for (const char* content : {"", "\n\n"}) {
    job.Input(content);
    EXPECT_EQ(job.Run().exit_code, ExitCode::kComplete);
    EXPECT_EQ(job.Output(), "");
  }
}

TEST(JobTest, AResumedJobTellsHowLongItsAnswersAre) {
  TestJob job;
  std::vector<schedule::EarlierAnswer> told;
  int calls = 0;
  job.options.learn = [&](std::span<const schedule::EarlierAnswer> answers) {
    told.assign(answers.begin(), answers.end());
    ++calls;
  };
  const std::string lines =
      "{\"prompt\":\"hi\",\"max_tokens\":2}\n{\"prompt\":1}\n{\"prompt\":[1,2,3],\"max_tokens\":3}"
      "\n";
  job.Input(lines);
  job.Run();
  EXPECT_EQ(calls, 0) << "nothing was there";
  job.Input(lines + "{\"prompt\":\"more\"}\n");
  EXPECT_EQ(job.Run().summary.resumed, 3);
  EXPECT_EQ(calls, 1);
  ASSERT_EQ(told.size(), 2u);
  std::ranges::sort(told, {}, &schedule::EarlierAnswer::output_tokens);
  EXPECT_EQ(told[0].output_tokens, 2);
  EXPECT_EQ(told[1].prompt_tokens, 3);
  EXPECT_EQ(told[1].output_tokens, 3);
}

TEST(JobTest, ResumesAfterAbortsAtRandomMoments) {
  base::Rng rng(5);
  for (int round = 0; round < 10; ++round) {
    TestJob job;
    job.Input(ManyLines());
    ExitCode exit_code = ExitCode::kAborted;
    for (int runs = 0; exit_code == ExitCode::kAborted; ++runs) {
      ASSERT_LT(runs, 1000);
      FakeEngine engine(rng.Next());
      job.control.abort = false;
      const auto stop_after = static_cast<int64_t>(rng.Below(60));
      engine.after_result = [&](int64_t finished) { job.control.abort = finished >= stop_after; };
      exit_code = job.Run(engine).exit_code;
      // What a kill at any byte of the last write leaves.
      const std::string content = job.Output();
      if (exit_code == ExitCode::kAborted)
        WriteFile(
            job.options.output_path,
            content.substr(0, content.size() - std::min<size_t>(content.size(), rng.Below(900))));
    }
    EXPECT_EQ(exit_code, ExitCode::kComplete);
    EXPECT_EQ(ByLine(job.Output()), Expected());
  }
}

TEST(JobTest, ADrainFinishesWhatRuns) {
  TestJob job;
  job.Input(ManyLines());
  FakeEngine engine;
  engine.after_result = [&](int64_t finished) { job.control.drain = finished >= 20; };
  const JobOutcome drained = job.Run(engine);
  EXPECT_EQ(drained.exit_code, ExitCode::kDrained);
  EXPECT_THAT(drained.status.message(), HasSubstr("have no result yet"));
  EXPECT_EQ(drained.summary.end, "drained");
  const size_t kept = ByLine(job.Output()).size();
  EXPECT_GE(kept, 20u);
  EXPECT_LT(kept, size_t{kManyLines});
  job.control.drain = false;
  const JobOutcome outcome = job.Run();
  EXPECT_EQ(outcome.exit_code, ExitCode::kComplete);
  EXPECT_EQ(outcome.summary.resumed, int64_t(kept));
  EXPECT_EQ(ByLine(job.Output()), Expected());
}

TEST(JobTest, TheGraceTimeEnds) {
  TestJob job;
  job.Input(ManyLines());
  job.options.grace_seconds = 0.2;
  FakeEngine engine;
  engine.hang_in_drain = true;
  engine.after_result = [&](int64_t) { job.control.drain = true; };
  EXPECT_EQ(job.Run(engine).exit_code, ExitCode::kDrained);
  EXPECT_TRUE(job.control.abort);
}

TEST(JobTest, AStallHasItsCode) {
  TestJob job;
  job.Input(ManyLines());
  FakeEngine engine;
  engine.end_instead = RunEnd::kStalled;
  engine.end_after = 5;
  const JobOutcome outcome = job.Run(engine);
  EXPECT_EQ(outcome.exit_code, ExitCode::kStalled);
  EXPECT_EQ(outcome.status.code(), kStalled);
}

TEST(JobTest, AnEngineThatEndsEarlyIsAnError) {
  TestJob job;
  job.Input(ManyLines());
  FakeEngine engine;
  engine.end_instead = RunEnd::kComplete;
  engine.end_after = 5;
  EXPECT_EQ(job.Run(engine).exit_code, ExitCode::kError);
}

TEST(JobTest, StrictListsBadLinesAndRunsNothing) {
  TestJob job;
  job.Input("{\"prompt\":\"x\"}\n\n{\"prompt\":1}\n{\"prompt\":\"" + std::string(400, 'x') +
            "\"}\n");
  job.options.strict = true;
  testing::internal::CaptureStderr();
  const JobOutcome outcome = job.Run();
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(outcome.exit_code, ExitCode::kBadInput);
  EXPECT_EQ(outcome.status.code(), kBadLines);
  EXPECT_THAT(outcome.status.message(), HasSubstr("2 of 3 lines are bad"));
  EXPECT_THAT(said,
              AllOf(HasSubstr("line 3: `prompt` is 1"),
                    HasSubstr("line 4: the prompt has too many tokens [context_length_exceeded]"),
                    Not(HasSubstr("line 1"))));
  EXPECT_FALSE(std::filesystem::exists(job.options.output_path));

  job.Input("{\"prompt\":\"x\"}\n");
  EXPECT_EQ(job.Run().exit_code, ExitCode::kComplete);
  EXPECT_EQ(ByLine(job.Output()).size(), 1u);
}

TEST(JobTest, PreserveOrderRewritesAndResumes) {
  TestJob job;
  job.Input(ManyLines());
  job.options.preserve_order = true;
  EXPECT_EQ(job.Run().exit_code, ExitCode::kComplete);
  std::string expected;
  for (const auto& [line, text] : Expected()) expected += text + "\n";
  EXPECT_EQ(job.Output(), expected);
  EXPECT_EQ(job.Run().exit_code, ExitCode::kComplete);
  EXPECT_EQ(job.Output(), expected);

  job.Input(ManyLines() + "{\"prompt\":\"one more\"}\n");
  const JobOutcome outcome = job.Run();
  EXPECT_EQ(outcome.exit_code, ExitCode::kComplete) << outcome.status.ToString();
  EXPECT_EQ(outcome.summary.done, 1);
  EXPECT_EQ(job.Output().substr(0, expected.size()), expected);
}

TEST(JobTest, AnotherJobsResultsAreRefused) {
  TestJob job;
  job.Input(ManyLines());
  ASSERT_EQ(job.Run().exit_code, ExitCode::kComplete);
  const std::string before = job.Output();
  job.options.fingerprints.settings = 99;
  const JobOutcome outcome = job.Run();
  EXPECT_EQ(outcome.exit_code, ExitCode::kResultsMismatch);
  EXPECT_THAT(outcome.status.message(), HasSubstr("what changed: the settings ("));
  job.options.fingerprints.settings = 2;
  std::string edited = ManyLines();
  edited.replace(edited.find("question 0"), 10, "question 1");
  job.Input(edited);
  EXPECT_THAT(job.Run().status.message(), HasSubstr("the input line"));
  EXPECT_EQ(job.Output(), before);
  job.options.output_path = job.input_path;
  EXPECT_EQ(job.Run().exit_code, ExitCode::kResultsMismatch);
}

TEST(JobTest, ErrorsOfFilesHaveTheirCodes) {
  TestJob job;
  EXPECT_EQ(ExitCodeOf(JobFile::Open(job.input_path).status()), ExitCode::kBadInput);
  job.Input(ManyLines());
  const int other = open(job.options.output_path.c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_EQ(flock(other, LOCK_EX), 0);
  EXPECT_EQ(job.Run().exit_code, ExitCode::kResultsLocked);
  close(other);
  job.options.output_path = "/dev/full";
  EXPECT_EQ(job.Run().exit_code, ExitCode::kResultsIo);
}

TEST(JobTest, AnInputThatChangesStopsTheJob) {
  TestJob job;
  job.Input(ManyLines());
  FakeEngine engine;
  engine.after_result = [&](int64_t finished) {
    if (finished == 1) job.Input(std::string(ManyLines().size(), ' '));
  };
  const JobOutcome outcome = job.Run(engine);
  EXPECT_EQ(outcome.exit_code, ExitCode::kBadInput);
  EXPECT_EQ(outcome.status.code().name, std::string("input_changed"));
  job.Input(ManyLines());
  job.control.abort = false;
  EXPECT_EQ(job.Run().exit_code, ExitCode::kComplete);
  EXPECT_EQ(ByLine(job.Output()), Expected());
}

// Runs the job in a process of its own with a bound on the size of its files.
ExitCode RunWithFileLimit(TestJob& job, rlim_t bytes) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    _exit(static_cast<int>(job.Run().exit_code));
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  return static_cast<ExitCode>(WEXITSTATUS(status));
}

TEST(JobTest, AFullDiskStopsTheJobAndItResumes) {
  TestJob job;
  job.Input(ManyLines());
  for (const rlim_t bytes : {0, 500, 30'000, 70'000}) {
    EXPECT_EQ(RunWithFileLimit(job, bytes), ExitCode::kResultsIo);
    EXPECT_LE(job.Output().size(), bytes);
  }
  EXPECT_EQ(job.Run().exit_code, ExitCode::kComplete);
  EXPECT_EQ(ByLine(job.Output()), Expected());
}

TEST(JobTest, AFullFilesystemStopsTheJobAndItResumes) {
  TestJob job;
  const std::string mount_point = job.folder / "disk";
  std::filesystem::create_directory(mount_point);
  if (mount("tmpfs", mount_point.c_str(), "tmpfs", 0, "size=64k") != 0)
    GTEST_SKIP() << "mounting a tmpfs is not permitted";
  job.Input(ManyLines());
  job.options.output_path = mount_point + "/out.jsonl";
  const JobOutcome outcome = job.Run();
  EXPECT_EQ(outcome.exit_code, ExitCode::kResultsIo);
  EXPECT_THAT(outcome.status.message(), HasSubstr("No space left on device"));
  ASSERT_EQ(mount("tmpfs", mount_point.c_str(), "tmpfs", MS_REMOUNT, "size=4m"), 0);
  job.control.abort = false;
  EXPECT_EQ(job.Run().exit_code, ExitCode::kComplete);
  EXPECT_EQ(ByLine(job.Output()), Expected());
  umount(mount_point.c_str());
}

TEST(JobTest, SurvivesKillsAtRandomMoments) {
  TestJob job;
  job.Input(ManyLines());
  base::Rng rng(9);
  int killed = 0;
  uint64_t longest_us = 10'000;  // grows, so that slow builds get ahead as well
  for (bool complete = false; !complete;) {
    const pid_t child = fork();
    if (child == 0) {
      FakeEngine engine(rng.Next());
      engine.after_result = [](int64_t) { usleep(200); };
      _exit(static_cast<int>(job.Run(engine).exit_code));
    }
    static_cast<void>(rng.Next());
    usleep(static_cast<useconds_t>(500 + rng.Below(longest_us)));
    longest_us += longest_us / 8;
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    killed += WIFSIGNALED(status);
    complete = WIFEXITED(status);
  }
  EXPECT_GT(killed, 2);
  EXPECT_EQ(ByLine(job.Output()), Expected());
}

TEST(JobTest, TheSummaryHasWhatItPromises) {
  TestJob job;
  job.Input(ManyLines());
  job.options.summary_path = job.folder / "summary.json";
  ASSERT_EQ(job.Run().exit_code, ExitCode::kComplete);
  simdjson::dom::parser parser;
  const auto summary = base::ParseJsonFile(parser, job.options.summary_path);
  ASSERT_TRUE(summary.ok());
  for (const char* name :
       {"elapsed_time", "num_requests", "total_num_tokens", "requests_per_second",
        "tokens_per_second", "startup_seconds", "first_result_seconds", "tail_seconds",
        "peak_rss_bytes", "numerics_class", "isa"}) {
    EXPECT_FALSE((*summary)[name].error()) << name;
  }
  EXPECT_EQ(int64_t((*summary)["num_requests"]), kManyLines);
  EXPECT_EQ(std::string_view((*summary)["end"]), "complete");
  EXPECT_EQ(int64_t((*summary)["engine"]["recomputed_tokens"]), 0);
  EXPECT_GT(int64_t((*summary)["mode_counters"]["rows_decode"]), 0);
  job.options.summary_path = job.folder / "none/summary.json";
  EXPECT_EQ(job.Run().exit_code, ExitCode::kError);
}

TEST(JobTest, EveryInterleavingEnds) {
  const auto& expected = Expected();
  for (uint64_t seed = 0; seed < 30; ++seed) {
    TestJob job;
    job.Input(ManyLines());
    runtime::VirtualRuntime runtime(seed);
    ExitCode exit_code = ExitCode::kError;
    // Even seeds drain on the way, and go on with a run of their own.
    const bool drains = seed % 2 == 0;
    const auto run = [&] {
      FakeEngine engine(seed);
      engine.before_step = [&] { runtime.Sleep(3'000'000); };
      engine.after_result = [&](int64_t finished) {
        if (drains && finished == 100) job.control.drain = true;
      };
      exit_code = job.Run(engine, runtime).exit_code;
      if (!drains) return;
      EXPECT_EQ(exit_code, ExitCode::kDrained);
      job.control.drain = false;
      FakeEngine next(seed + 1);
      exit_code = job.Run(next, runtime).exit_code;
    };
    const base::Status status = runtime.Run(run);
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(exit_code, ExitCode::kComplete);
    EXPECT_EQ(ByLine(job.Output()), expected) << seed;
  }
}

}  // namespace
}  // namespace forebay::job

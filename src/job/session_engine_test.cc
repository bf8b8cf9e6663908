#include "job/session_engine.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <utility>

#include "base/log.h"
#include "job/files/job_file.h"
#include "job/job.h"
#include "job/testing/fake_engine.h"
#include "job/testing/fake_pipeline.h"
#include "job/testing/files.h"
#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::job {
namespace {

// One of several jobs of so many lines, of which every fifth is a bad one.
struct OneOfJobs {
  OneOfJobs(const std::string& name, int count) {
    base::SetLogLevel(base::LogLevel::kError);
    std::string lines;
    for (int i = 0; i < count; ++i) {
      lines += i % 5 == 4
                   ? "{\"prompt\":\"x\",\"temperature\":-1}\n"
                   : fmt::format("{{\"prompt\":\"{} {}\",\"n\":2,\"max_tokens\":5}}\n", name, i);
    }
    WriteFile(folder / "in.jsonl", lines);
    input = std::make_unique<JobFile>(std::move(*JobFile::Open(folder / "in.jsonl")));
    options.output_path = folder / "out.jsonl";
    options.fingerprints = {0, 1, 2, 3};
    options.rules.vocab_size = FakePipeline::kVocabulary;
    options.style = {"tiny", "pair-fake", false};
    options.progress = ProgressMode::kQuiet;
    options.unix_seconds = [] { return 1700000000; };
  }
  JobOutcome Run(runtime::Runtime& runtime, Engine& engine) {
    return RunJob(runtime, *input, options, text, engine, control);
  }
  std::map<int64_t, std::string> Answers() const {
    std::map<int64_t, std::string> answers;
    std::istringstream file(ReadWhole(options.output_path));
    for (std::string line; std::getline(file, line);) {
      const int64_t number = std::stoll(line.substr(line.find("req_") + 4));
      EXPECT_TRUE(answers.emplace(number, line).second) << line;
    }
    return answers;
  }

  base::TemporaryFolder folder;
  std::unique_ptr<JobFile> input;
  JobOptions options;
  FakePipeline text;
  RunControl control;
};

// What the job answers that has an engine alone.
std::map<int64_t, std::string> Alone(const std::string& name, int count) {
  OneOfJobs job(name, count);
  FakeEngine engine;
  const auto runtime = runtime::CreateRealRuntime();
  EXPECT_EQ(job.Run(*runtime, engine).exit_code, ExitCode::kComplete);
  return job.Answers();
}

TEST(SessionEngine, SeveralJobsOverOneEngineAnswerAsEachAlone) {
  const auto first = Alone("first", 60), second = Alone("the second", 90);
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    OneOfJobs jobs[] = {{"first", 60}, {"the second", 90}};
    runtime::VirtualRuntime runtime(seed);
    FakeEngine engine(seed);
    engine.stays_open = true;
    engine.before_step = [&] { runtime.Sleep(3'000'000); };
    const base::Status status = runtime.Run([&] {
      Session session(runtime, engine);
      SessionEngine engines[] = {{runtime, session, engine, 8}, {runtime, session, engine, 5}};
      ExitCode ends[2];
      const auto other = runtime.Spawn(
          {.name = "the other job"}, [&] { ends[1] = jobs[1].Run(runtime, engines[1]).exit_code; });
      ends[0] = jobs[0].Run(runtime, engines[0]).exit_code;
      other->Join();
      EXPECT_EQ(ends[0], ExitCode::kComplete);
      EXPECT_EQ(ends[1], ExitCode::kComplete);
      EXPECT_EQ(session.metrics().ends().length, 2 * (48 + 72));
    });
    ASSERT_TRUE(status.ok()) << seed << ": " << status.ToString();
    EXPECT_EQ(jobs[0].Answers(), first) << seed;
    EXPECT_EQ(jobs[1].Answers(), second) << seed;
  }
}

TEST(SessionEngine, AJobThatEndsEarlyLeavesTheOther) {
  const auto first = Alone("first", 60), second = Alone("the second", 90);
  for (const bool abort : {false, true}) {
    OneOfJobs jobs[] = {{"first", 60}, {"the second", 90}};
    runtime::VirtualRuntime runtime(3);
    FakeEngine engine;
    engine.stays_open = true;
    engine.before_step = [&] { runtime.Sleep(3'000'000); };
    engine.after_result = [&](int64_t finished) {
      if (finished == 20) (abort ? jobs[0].control.abort : jobs[0].control.drain) = true;
    };
    const base::Status status = runtime.Run([&] {
      Session session(runtime, engine);
      SessionEngine engines[] = {{runtime, session, engine, 8}, {runtime, session, engine, 5}};
      const auto other = runtime.Spawn({.name = "the other job"}, [&] {
        EXPECT_EQ(jobs[1].Run(runtime, engines[1]).exit_code, ExitCode::kComplete);
      });
      EXPECT_EQ(jobs[0].Run(runtime, engines[0]).exit_code,
                abort ? ExitCode::kAborted : ExitCode::kDrained);
      other->Join();
      // The same job goes on, over the same engine.
      EXPECT_LT(jobs[0].Answers().size(), first.size());
      jobs[0].control.drain = jobs[0].control.abort = false;
      EXPECT_EQ(jobs[0].Run(runtime, engines[0]).exit_code, ExitCode::kComplete);
    });
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(jobs[0].Answers(), first);
    EXPECT_EQ(jobs[1].Answers(), second);
  }
}

}  // namespace
}  // namespace forebay::job

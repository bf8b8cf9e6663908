#include "job/files/results_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <set>
#include <thread>

#include "base/rng.h"
#include "job/testing/files.h"
#include "job/testing/results.h"

namespace forebay::job {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ResultsLogTest, AppendsAndResumes) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  {
    auto log = OpenLog(path, 4);
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    EXPECT_EQ((*log)->num_done(), 0u);
    ASSERT_TRUE((*log)->Append(2, ResultOf(2)).ok());
    ASSERT_TRUE((*log)->Append(0, ResultOf(0, "bad", 400)).ok());
    ASSERT_TRUE((*log)->Commit().ok());
  }
  EXPECT_EQ(ReadWhole(path), ResultOf(2) + "\n" + ResultOf(0, "bad", 400) + "\n");
  auto log = OpenLog(path, 5);  // one line more than before
  ASSERT_TRUE(log.ok()) << log.status().ToString();
  EXPECT_EQ((*log)->num_done(), 2u);
  EXPECT_EQ((*log)->num_resumed_failed(), 1u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ((*log)->Done(i), i == 0 || i == 2);
  ASSERT_TRUE((*log)->Append(1, ResultOf(1)).ok());
  EXPECT_TRUE((*log)->Done(1));
}

TEST(ResultsLogTest, TellsHowLongTheAnswersAre) {
  const base::TemporaryFolder folder;
  const std::string
      path = folder / "out.jsonl",
      answer = R"(x","choices":[1,2],"usage":{"prompt_tokens":9,"completion_tokens":13},"u":")";
  WriteFile(path,
            ResultOf(2, answer) + "\n" + ResultOf(0, answer, 400) + "\n" + ResultOf(1) + "\n");
  auto log = OpenLog(path, 4);
  ASSERT_TRUE(log.ok()) << log.status().ToString();
  const auto answers = (*log)->TakeResumedAnswers();
  ASSERT_EQ(answers.size(), 1u) << "one failed, one does not say";
  EXPECT_EQ(answers[0].prompt_tokens, 9);
  EXPECT_EQ(answers[0].output_tokens, 6);
  EXPECT_TRUE((*log)->TakeResumedAnswers().empty());
}

TEST(ResultsLogTest, CutsATornTailAtEveryByteOfTheLastTwoRecords) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::string head = ResultOf(3) + "\n", second = ResultOf(1, "zwei\\n\xC3\xA4") + "\n",
                    third = ResultOf(0) + "\n";
  const std::string whole = head + second + third;
  for (size_t size = head.size(); size <= whole.size(); ++size) {
    WriteFile(path, whole.substr(0, size));
    auto log = OpenLog(path, 4);
    ASSERT_TRUE(log.ok()) << size << " " << log.status().ToString();
    const bool has_second = size >= head.size() + second.size(), has_third = size == whole.size();
    EXPECT_TRUE((*log)->Done(3));
    EXPECT_EQ((*log)->Done(1), has_second) << size;
    EXPECT_EQ((*log)->Done(0), has_third) << size;
    const std::string kept = has_third ? whole : has_second ? head + second : head;
    EXPECT_EQ(ReadWhole(path), kept) << size;
    EXPECT_EQ((*log)->torn_bytes(), size - kept.size());
    // What comes next begins on a line of its own.
    ASSERT_TRUE((*log)->Append(2, ResultOf(2)).ok());
    EXPECT_EQ(ReadWhole(path), kept + ResultOf(2) + "\n");
  }
}

TEST(ResultsLogTest, CutsWhatACrashLeftAtTheEnd) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::string head = ResultOf(0) + "\n";
  for (const std::string& tail :
       {std::string(5000, '\0'), std::string("{\"id\":\"batch_req_2_0\0\0\0\0", 24),
        std::string("\0\0\n\0", 4), std::string("{\"id\":\"batch_req_2_0\n{\"id"),
        std::string("{\n")}) {
    WriteFile(path, head + tail);
    auto log = OpenLog(path, 4);
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    EXPECT_EQ(ReadWhole(path), head);
  }
}

TEST(ResultsLogTest, RefusesWhatIsNoResultsFileAndLeavesItAlone) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::string good = ResultOf(0) + "\n";
  std::string broken = good;
  broken[broken.size() - 3] = '!';
  const std::string foreign_id =
      "{\"id\":\"batch_req_abc\",\"custom_id\":null,\"response\":{\"status_code\":200}}\n";
  const std::pair<std::string, std::string> cases[] = {
      {"precious data\n", "line 1 begins with 'precious data'"},
      {"precious data", "line 1 begins"},
      {good + "precious", "line 2 begins"},
      {good + "\n" + ResultOf(1) + "\n", "line 2 is no whole result, but results follow"},
      {std::string(3'000'000, 'x'), "line 1 begins"},
      {"{\"custom_id\":\"a\",\"method\":\"POST\"}\n", "line 1 begins"},
      {foreign_id, "line 1 begins"},
      {good + "{\"id\":\"" + FormatResultId({1, kJob}) + "\"}\n", "line 2 begins"},
      {"{\"id\": \"batch_req_abc\"}\n", "line 1 begins"},
      {broken + ResultOf(1) + "\n", "line 1 is no whole result, but results follow"},
      {good + broken + broken + ResultOf(1) + "\n",
       "line 2 is no whole result, but results follow"},
      {good + ResultOf(1) + "\n" + good, "line 3 holds a second result for input line 1"},
  };
  for (const auto& [content, message] : cases) {
    WriteFile(path, content);
    const auto log = OpenLog(path, 4);
    ASSERT_FALSE(log.ok()) << content.substr(0, 200);
    EXPECT_EQ(log.status().code(), kResultsInvalid) << log.status().ToString();
    EXPECT_THAT(log.status().message(), HasSubstr(message));
    EXPECT_EQ(ReadWhole(path), content);
  }
}

TEST(ResultsLogTest, SaysWhichFingerprintChanged) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::string content = ResultOf(0) + "\n" + ResultOf(1) + "\n{\"id\":\"batch";
  WriteFile(path, content);
  const auto message_of = [&](const ScanExpectation& expected) {
    const auto log = ResultsLog::Open(expected);
    EXPECT_FALSE(log.ok());
    EXPECT_EQ(log.status().code(), kResultsMismatch);
    EXPECT_EQ(ReadWhole(path), content);
    return log.status().message();
  };
  EXPECT_THAT(
      message_of(Expect(path, 4, {0, 1, 0xbbbb, 0xcccc})),
      AllOf(HasSubstr("what changed: the model (000000000000aaaa there, 0000000000000001 now)."),
            Not(HasSubstr("numerics")), Not(HasSubstr("the input line"))));
  EXPECT_THAT(message_of(Expect(path, 4, {0, 0xaaaa, 1, 0xcccc})),
              HasSubstr("what changed: the settings ("));
  EXPECT_THAT(message_of(Expect(path, 4, {0, 0xaaaa, 0xbbbb, 1})),
              HasSubstr("what changed: the numerics class"));
  EXPECT_THAT(message_of(Expect(path, 4, {0, 1, 1, 1})),
              AllOf(HasSubstr("the model"), HasSubstr(", the settings ("),
                    HasSubstr(", the numerics class")));
  EXPECT_THAT(message_of(Expect(path, 1)),
              HasSubstr("line 2 holds the result of input line 2, which this input does not have"));
  ScanExpectation edited = Expect(path, 4);
  edited.find = [](int64_t line) -> std::optional<LineKey> {
    return LineKey{size_t(line), InputHash(line) + (line == 1)};
  };
  EXPECT_THAT(message_of(edited), AllOf(HasSubstr("line 2 holds the result of input line 2"),
                                        HasSubstr("changed: the input line")));
}

TEST(ResultsLogTest, TheSecondWriterIsRefused) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  auto log = OpenLog(path, 4);
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE((*log)->Append(0, ResultOf(0)).ok());
  EXPECT_EQ(OpenLog(path, 4).status().code(), kResultsLocked);
  const pid_t child = fork();
  if (child == 0) _exit(OpenLog(path, 4).status().code() == kResultsLocked ? 7 : 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  log->reset();
  EXPECT_TRUE(OpenLog(path, 4).ok());
}

TEST(ResultsLogTest, RefusesPathsThatCannotHoldResults) {
  const base::TemporaryFolder folder;
  EXPECT_EQ(OpenLog(folder / "none/out.jsonl", 1).status().code(), kResultsIo);
  EXPECT_EQ(OpenLog(folder / "", 1).status().code(), kResultsIo);
  EXPECT_EQ(OpenLog("/dev/full", 1).status().code(), kResultsIo);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(OpenLog(folder / "pipe", 1).status().code(), kResultsIo);
}

// Fails, or writes short, once `writes_left` writes were done.
struct FaultyIo : LogIo {
  FaultyIo(int writes, int error, size_t short_bytes)
      : writes_left(writes), write_error(error), partial(short_bytes) {}
  ssize_t Write(int fd, const char* data, size_t size, off_t offset) override {
    if (writes_left-- > 0) return LogIo::Write(fd, data, size, offset);
    if (partial > 0) {
      const size_t count = std::min(partial, size);
      partial -= count;
      return LogIo::Write(fd, data, count, offset);
    }
    errno = write_error;
    return -1;
  }
  int writes_left, write_error;
  size_t partial;
};

TEST(ResultsLogTest, AFailedWriteLatchesAndLeavesWholeLines) {
  const base::TemporaryFolder folder;
  for (const int error : {ENOSPC, EIO, EDQUOT}) {
    for (const size_t partial : {0, 1, 50}) {
      const std::string path = folder / fmt::format("out-{}-{}", error, partial);
      {
        auto log = ResultsLog::Open(Expect(path, 4), std::make_unique<FaultyIo>(2, error, partial));
        ASSERT_TRUE(log.ok());
        ASSERT_TRUE((*log)->Append(0, ResultOf(0)).ok());
        ASSERT_TRUE((*log)->Append(1, ResultOf(1)).ok());
        const base::Status failed = (*log)->Append(2, ResultOf(2));
        EXPECT_EQ(failed.code(), kResultsIo);
        EXPECT_THAT(failed.message(), HasSubstr(std::strerror(error)));
        EXPECT_FALSE((*log)->Append(3, ResultOf(3)).ok());
        EXPECT_FALSE((*log)->Commit().ok());
      }
      EXPECT_EQ(ReadWhole(path), ResultOf(0) + "\n" + ResultOf(1) + "\n");
      auto again = OpenLog(path, 4);
      ASSERT_TRUE(again.ok());
      EXPECT_EQ((*again)->num_done(), 2u);
      EXPECT_EQ((*again)->torn_bytes(), 0u);
    }
  }
}

TEST(ResultsLogTest, AnInterruptedWriteGoesOn) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  struct Interrupted : LogIo {
    ssize_t Write(int fd, const char* data, size_t size, off_t offset) override {
      if (++calls % 2 == 0) {
        errno = EINTR;
        return -1;
      }
      return LogIo::Write(fd, data, std::min<size_t>(size, 7), offset);
    }
    int calls = 0;
  };
  auto log = ResultsLog::Open(Expect(path, 1), std::make_unique<Interrupted>());
  ASSERT_TRUE((*log)->Append(0, ResultOf(0)).ok());
  EXPECT_EQ(ReadWhole(path), ResultOf(0) + "\n");
}

TEST(ResultsLogTest, AFailedSyncLatches) {
  const base::TemporaryFolder folder;
  struct NoSync : LogIo {
    int Sync(int fd) override {
      if (calls++ == 0) return LogIo::Sync(fd);
      errno = EIO;
      return -1;
    }
    int calls = 0;
  };
  auto log = ResultsLog::Open(Expect(folder / "out.jsonl", 4), std::make_unique<NoSync>());
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE((*log)->Append(0, ResultOf(0)).ok());
  EXPECT_EQ((*log)->Commit().code(), kResultsIo);
  EXPECT_EQ((*log)->Append(1, ResultOf(1)).code(), kResultsIo);
}

TEST(ResultsLogTest, AFullDiskStopsCleanly) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const pid_t child = fork();
  if (child == 0) {
    // The kernel's own short write and refusal, as on a full disk.
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{10'000, 10'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    auto log = OpenLog(path, 1000);
    size_t done = 0;
    while (done < 1000 && (*log)->Append(done, ResultOf(int64_t(done), "some text")).ok()) ++done;
    _exit(done > 10 && done < 1000 && (*log)->Commit().code() == kResultsIo ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  auto log = OpenLog(path, 1000);
  ASSERT_TRUE(log.ok());
  EXPECT_EQ((*log)->torn_bytes(), 0u);
  for (size_t i = (*log)->num_done(); i < 1000; ++i)
    ASSERT_TRUE((*log)->Append(i, ResultOf(int64_t(i))).ok());
}

TEST(ResultsLogTest, SurvivesKillsAtRandomMoments) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  constexpr size_t kLines = 20'000;
  base::Rng rng(11);
  size_t before = 0, kills = 0;
  uint64_t longest_us = 5000;  // grows, so that slow builds get ahead as well
  while (before < kLines) {
    const pid_t child = fork();
    if (child == 0) {
      auto log = OpenLog(path, kLines);
      if (!log.ok()) _exit(1);
      for (size_t i = 0; i < kLines; ++i) {
        if ((*log)->Done(i)) continue;
        if (!(*log)->Append(i, ResultOf(int64_t(i), std::string(i % 300, 'y'))).ok()) _exit(1);
        if ((*log)->GroupIsFull() && !(*log)->Commit().ok()) _exit(1);
      }
      _exit((*log)->Commit().ok() ? 0 : 1);
    }
    usleep(static_cast<useconds_t>(1000 + rng.Below(longest_us)));
    longest_us += longest_us / 8;
    kills += kill(child, SIGKILL) == 0;
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    auto log = OpenLog(path, kLines);
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    ASSERT_GE((*log)->num_done(), before);
    before = (*log)->num_done();
  }
  EXPECT_GT(kills, 0u);
  std::string expected;
  for (size_t i = 0; i < kLines; ++i)
    expected += ResultOf(int64_t(i), std::string(i % 300, 'y')) + "\n";
  EXPECT_EQ(ReadWhole(path), expected);
}

TEST(ResultsLogTest, RewritesInOrderAndKeepsItsLock) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  constexpr size_t kLines = 500;
  std::string expected;
  for (size_t i = 0; i < kLines; ++i)
    expected += ResultOf(int64_t(i), std::string(i * 13, 'z')) + "\n";
  {
    auto log = OpenLog(path, kLines);
    for (size_t i = 0; i < kLines; ++i) {
      const size_t line = i * 7 % kLines;
      ASSERT_TRUE((*log)->Append(line, ResultOf(int64_t(line), std::string(line * 13, 'z'))).ok());
    }
    ASSERT_EQ(chmod(path.c_str(), 0640), 0);
    ASSERT_TRUE((*log)->RewriteInOrder().ok());
    EXPECT_EQ(ReadWhole(path), expected);
    EXPECT_EQ(OpenLog(path, kLines).status().code(), kResultsLocked);
    struct stat info;
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0640u);
  }
  EXPECT_FALSE(std::filesystem::exists(path + ".ordered"));
  auto log = OpenLog(path, kLines + 1);
  ASSERT_TRUE(log.ok());
  EXPECT_EQ((*log)->num_done(), kLines);
}

TEST(ResultsLogTest, RewritesTheTargetOfALink) {
  const base::TemporaryFolder folder;
  std::filesystem::create_symlink("real.jsonl", folder / "link.jsonl");
  {
    auto log = OpenLog(folder / "link.jsonl", 2);
    ASSERT_TRUE((*log)->Append(1, ResultOf(1)).ok());
    ASSERT_TRUE((*log)->Append(0, ResultOf(0)).ok());
    ASSERT_TRUE((*log)->RewriteInOrder().ok());
  }
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link.jsonl"));
  EXPECT_EQ(ReadWhole(folder / "real.jsonl"), ResultOf(0) + "\n" + ResultOf(1) + "\n");
}

TEST(ResultsLogTest, AppendsAndCommitsFromSeveralThreads) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  constexpr size_t kLines = 4000;
  {
    auto opened = OpenLog(path, kLines);
    ResultsLog& log = **opened;
    std::atomic<bool> finished{false};
    std::thread committer([&] {
      while (!finished) EXPECT_TRUE(log.Commit().ok());
    });
    std::thread odd([&] {
      for (size_t i = 1; i < kLines; i += 2) EXPECT_TRUE(log.Append(i, ResultOf(int64_t(i))).ok());
    });
    for (size_t i = 0; i < kLines; i += 2) EXPECT_TRUE(log.Append(i, ResultOf(int64_t(i))).ok());
    odd.join();
    finished = true;
    committer.join();
  }
  auto log = OpenLog(path, kLines);
  ASSERT_TRUE(log.ok()) << log.status().ToString();
  EXPECT_EQ((*log)->num_done(), kLines);
}

}  // namespace
}  // namespace forebay::job

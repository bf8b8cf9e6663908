// What others, and power cuts, do to a results file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>

#include "base/rng.h"
#include "job/testing/files.h"
#include "job/testing/results.h"

namespace forebay::job {
namespace {

using ::testing::HasSubstr;

std::string Line(int64_t line, const std::string& text = "x", int status = 200) {
  return ResultOf(line, text, status) + "\n";
}

// Leaves syncing out, which takes most of a test's time.
struct NoSync : LogIo {
  int Sync(int) override { return 0; }
  base::Status SyncFolderOf(const std::string&) override { return {}; }
};

TEST(ResultsDamageTest, AFileThatIsNotTheNamedOneAnyMoreIsFoundOut) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl", other = folder / "other.jsonl";
  const std::pair<std::function<void()>, std::string> cases[] = {
      {[&] { unlink(path.c_str()); }, "the file was removed or renamed"},
      {[&] { rename(path.c_str(), other.c_str()); }, "the file was removed or renamed"},
      {[&] {
         rename(path.c_str(), other.c_str());
         WriteFile(path, "hello\n");
       },
       "another file was put in its place"},
      {[&] { truncate(path.c_str(), 0); }, "the file was cut (0 bytes where there were"},
      {[&] { truncate(path.c_str(), 5); }, "the file was cut (5 bytes"},
      {[&] { std::ofstream(path, std::ios::app) << "hello\n"; }, "the file was written to"},
  };
  for (const auto& [harm, message] : cases) {
    for (const bool append_after : {false, true}) {
      unlink(path.c_str());
      auto log = OpenLog(path, 4);
      ASSERT_TRUE(log.ok());
      ASSERT_TRUE((*log)->Append(0, ResultOf(0)).ok());
      ASSERT_TRUE((*log)->Commit().ok());
      harm();
      if (append_after) static_cast<void>((*log)->Append(1, ResultOf(1)));
      const base::Status status = (*log)->Commit();
      EXPECT_EQ(status.code(), kResultsReplaced) << message;
      EXPECT_THAT(status.message(), HasSubstr(message));
      EXPECT_EQ((*log)->Append(2, ResultOf(2)).code(), kResultsReplaced);
    }
  }
}

// Somebody does harm while the disk works.
struct HarmedWhileSyncing : NoSync {
  int Sync(int) override {
    if (harm) harm();
    return 0;
  }
  std::function<void()> harm;
};

TEST(ResultsDamageTest, HarmWhileACommitIsUnderWayIsFoundOutByIt) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::pair<std::function<void()>, std::string> cases[] = {
      {[&] { unlink(path.c_str()); }, "the file was removed or renamed"},
      {[&] { truncate(path.c_str(), 5); }, "the file was cut (5 bytes"},
      {[&] { std::ofstream(path, std::ios::app) << "hello\n"; }, "the file was written to"},
  };
  for (const auto& [harm, message] : cases) {
    unlink(path.c_str());
    auto owned = std::make_unique<HarmedWhileSyncing>();
    HarmedWhileSyncing& io = *owned;
    auto log = ResultsLog::Open(Expect(path, 4), std::move(owned));
    ASSERT_TRUE(log.ok());
    ASSERT_TRUE((*log)->Append(0, ResultOf(0)).ok());
    io.harm = harm;
    const base::Status status = (*log)->Commit();
    EXPECT_EQ(status.code(), kResultsReplaced) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
    io.harm = nullptr;
    EXPECT_EQ((*log)->Commit().code(), kResultsReplaced) << "it latches";
  }
}

TEST(ResultsDamageTest, WhatOthersAppendedStays) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  auto log = OpenLog(path, 4);
  ASSERT_TRUE((*log)->Append(0, ResultOf(0)).ok());
  std::ofstream(path, std::ios::app) << "hello\n";
  EXPECT_EQ((*log)->Append(1, ResultOf(1)).code(), kResultsReplaced);
  EXPECT_EQ(ReadWhole(path), Line(0) + "hello\n");
}

TEST(ResultsDamageTest, AHoleCostsTheLinesInIt) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::string first = Line(0), second = Line(1), third = Line(2), fourth = Line(3);
  const std::string whole = first + second + third + fourth;
  for (size_t begin = 0; begin < whole.size() - 1; begin += 31) {
    for (size_t end = begin + 1; end < whole.size(); end += 23) {
      std::string holed = whole;
      holed.replace(begin, end - begin, std::string(end - begin, '\0'));
      WriteFile(path, holed);
      auto log = ResultsLog::Open(Expect(path, 4), std::make_unique<NoSync>());
      ASSERT_TRUE(log.ok()) << log.status().ToString();
      std::string expected;
      for (size_t i = 0, at = 0; i < 4; at += first.size(), ++i) {
        const bool intact = end <= at || begin >= at + first.size();
        EXPECT_EQ((*log)->Done(i), intact) << begin << " " << end;
        if (intact) expected += Line(int64_t(i));
      }
      EXPECT_EQ(ReadWhole(path), expected);
      // The log goes on in the file that the path names.
      for (size_t i = 0; i < 4; ++i) {
        if ((*log)->Done(i)) continue;
        ASSERT_TRUE((*log)->Append(i, ResultOf(int64_t(i))).ok());
      }
      ASSERT_TRUE((*log)->Commit().ok());
      EXPECT_EQ(ReadWhole(path).size(), whole.size());
      EXPECT_EQ(OpenLog(path, 4).status().code(), kResultsLocked);
    }
  }
}

TEST(ResultsDamageTest, AHoleLargerThanTheBufferIsSkipped) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  WriteFile(path, Line(0));
  truncate(path.c_str(), 3'000'000);
  std::ofstream(path, std::ios::app) << Line(1);
  auto log = OpenLog(path, 4);
  ASSERT_TRUE(log.ok()) << log.status().ToString();
  EXPECT_EQ((*log)->num_done(), 2u);
  EXPECT_EQ((*log)->hole_bytes(), 3'000'000 - Line(0).size());
  EXPECT_EQ(ReadWhole(path), Line(0) + Line(1));
}

TEST(ResultsDamageTest, FailedLinesRunAgainWhereTheirTextChangedOrWhereAsked) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  const std::string content = Line(0) + Line(1, "bad", 400) + Line(2, "bad", 404) + Line(3);
  WriteFile(path, content);
  {
    auto log = OpenLog(path, 4);
    ASSERT_TRUE(log.ok());
    EXPECT_EQ((*log)->num_resumed_failed(), 2u);
    EXPECT_EQ(ReadWhole(path), content);
  }
  ScanExpectation edited = Expect(path, 4);
  edited.find = [](int64_t line) -> std::optional<LineKey> {
    return LineKey{size_t(line), InputHash(line) + (line == 1)};
  };
  {
    auto log = ResultsLog::Open(edited);
    ASSERT_TRUE(log.ok()) << log.status().ToString();
    EXPECT_FALSE((*log)->Done(1));
    EXPECT_EQ((*log)->num_retried(), 1u);
    EXPECT_EQ((*log)->num_resumed_failed(), 1u);
    EXPECT_EQ(ReadWhole(path), Line(0) + Line(2, "bad", 404) + Line(3));
  }
  ScanExpectation retry = Expect(path, 4);
  retry.retry_failed = true;
  auto log = ResultsLog::Open(retry);
  ASSERT_TRUE(log.ok());
  EXPECT_FALSE((*log)->Done(2));
  EXPECT_EQ((*log)->num_resumed_failed(), 0u);
  EXPECT_EQ(ReadWhole(path), Line(0) + Line(3));
}

TEST(ResultsDamageTest, AFailedResultOfAnotherJobIsStillRefused) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl";
  WriteFile(path, Line(1, "bad", 400));
  ScanExpectation other = Expect(path, 4, {0, 1, 0xbbbb, 0xcccc});
  other.retry_failed = true;
  EXPECT_EQ(ResultsLog::Open(other).status().code(), kResultsMismatch);
  EXPECT_EQ(ReadWhole(path), Line(1, "bad", 400));
}

TEST(ResultsDamageTest, ARewriteTouchesNoFileThatWasThere) {
  const base::TemporaryFolder folder;
  const std::string path = folder / "out.jsonl", precious = folder / "precious";
  WriteFile(precious, "precious");
  std::filesystem::create_symlink(precious, path + ".ordered");
  auto log = OpenLog(path, 2);
  ASSERT_TRUE((*log)->Append(1, ResultOf(1)).ok());
  ASSERT_TRUE((*log)->Append(0, ResultOf(0)).ok());
  ASSERT_TRUE((*log)->RewriteInOrder().ok());
  EXPECT_EQ(ReadWhole(path), Line(0) + Line(1));
  EXPECT_EQ(ReadWhole(precious), "precious");
  EXPECT_TRUE(std::filesystem::is_symlink(path + ".ordered"));
}

// A disk that may lose what was not synced: since the last fdatasync each page of the file is
// written or not, in any order, and the file's size is the old one, the new one or between.
class LossyDisk : public NoSync {
 public:
  int Sync(int fd) override {
    struct stat info;
    EXPECT_EQ(fstat(fd, &info), 0);
    durable_.resize(static_cast<size_t>(info.st_size));
    EXPECT_EQ(pread(fd, durable_.data(), durable_.size(), 0), info.st_size);
    return 0;
  }

  // What a power cut leaves of `written`.
  static std::string Cut(const std::string& durable, std::string written, base::Rng& rng) {
    constexpr size_t kPage = 4096;
    const size_t least = std::min(durable.size(), written.size());
    std::string old = durable;
    old.resize(std::max(old.size(), written.size()), '\0');
    for (size_t begin = 0; begin < written.size(); begin += kPage) {
      const size_t size = std::min(kPage, written.size() - begin);
      if (rng.Below(2) == 0) written.replace(begin, size, old, begin, size);
    }
    if (rng.Below(2) == 0) written.resize(least + rng.Below(written.size() - least + 1));
    return written;
  }

  const std::string& durable() const { return durable_; }

 private:
  std::string durable_;
};

TEST(ResultsDamageTest, PowerCutsLoseNothingThatWasCommitted) {
  const base::TemporaryFolder folder;
  constexpr size_t kLines = 60;
  const auto text_of = [](size_t i) { return std::string(i * 37 % 2900, 'y'); };
  size_t holes = 0, cuts = 0;
  const std::string path = folder / "out.jsonl";
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    base::Rng rng(seed);
    unlink(path.c_str());
    std::map<size_t, bool> committed;
    for (bool complete = false; !complete;) {
      auto disk = std::make_unique<LossyDisk>();
      LossyDisk& io = *disk;
      auto log = ResultsLog::Open(Expect(path, kLines), std::move(disk));
      ASSERT_TRUE(log.ok()) << seed << ": " << log.status().ToString();
      holes += (*log)->hole_bytes() > 0;
      for (const auto& [line, is] : committed) ASSERT_TRUE((*log)->Done(line)) << seed;
      const size_t cut_after = rng.Below(kLines);
      size_t written = 0;
      std::vector<size_t> fresh;
      for (size_t k = 0; k < kLines && written < cut_after; ++k) {
        const size_t line = k * 7 % kLines;
        if ((*log)->Done(line)) continue;
        ASSERT_TRUE((*log)->Append(line, ResultOf(int64_t(line), text_of(line))).ok());
        fresh.push_back(line);
        ++written;
        if (rng.Below(30) > 0) continue;
        ASSERT_TRUE((*log)->Commit().ok());
        for (const size_t done : fresh) committed[done] = true;
        fresh.clear();
      }
      complete = (*log)->num_done() == kLines;
      if (complete) {
        ASSERT_TRUE((*log)->Commit().ok());
        continue;
      }
      const std::string durable = io.durable();
      log->reset();
      WriteFile(path, LossyDisk::Cut(durable, ReadWhole(path), rng));
      ++cuts;
    }
    std::map<std::string, int> lines;
    std::istringstream in(ReadWhole(path));
    for (std::string line; std::getline(in, line);) ++lines[line];
    ASSERT_EQ(lines.size(), kLines) << seed;
    for (size_t i = 0; i < kLines; ++i)
      ASSERT_EQ(lines[ResultOf(int64_t(i), text_of(i))], 1) << seed << " line " << i;
  }
  EXPECT_GT(cuts, 1000u);
  EXPECT_GT(holes, 100u) << "the cuts left holes in the middle";
  RecordProperty("cuts", static_cast<int>(cuts));
  RecordProperty("holes", static_cast<int>(holes));
}

}  // namespace
}  // namespace forebay::job

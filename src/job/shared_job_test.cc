// The driver of a shared job and its workers as tasks in virtual time: whatever dies, is late or
// speaks twice, the results file has each line once, with its answer.
#include "job/shared_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/log.h"
#include "base/testing/interleavings.h"
#include "job/files/merge.h"
#include "job/lines/result_id.h"
#include "job/testing/files.h"
#include "runtime/mailbox.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::job {
namespace {

constexpr Fingerprints kFingerprints{0, 0xaaaa, 0xbbbb, 0xcccc};
constexpr int kLines = 24, kWorkers = 4;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kEndOfLines = -1;

// What a worker tells the driver; and what a supervisor does, of a worker that has died.
struct Message {
  enum class Kind : uint8_t { kAsk, kFinish, kHear, kLeave, kDie, kGarbage };
  Kind kind;
  int64_t worker;
  int64_t line;
};

struct Seen {
  int64_t deaths = 0, silences = 0, twice = 0, refused = 0, failed = 0, restarts = 0;
};

std::string ResultLine(const JobFile& lines, size_t ordinal, std::string_view answer) {
  Fingerprints hash = kFingerprints;
  hash.input = lines[ordinal].hash;
  return fmt::format(
      R"({{"id":"{}","custom_id":null,"response":{{"status_code":200,"body":{{"t":"{}"}}}},"error":null}})",
      FormatResultId({int64_t{lines[ordinal].line} + 1, hash}), answer);
}

class SharedRun {
 public:
  SharedRun(uint64_t seed, const std::string& input, const std::string& output,
            const JobFile& lines, Seen* seen)
      : input_(input),
        output_(output),
        lines_(lines),
        fates_(seed % 4 == 0 ? 12 : 40),
        random_(seed),
        runtime_(seed),
        seen_(seen) {}

  void Run() {
    const base::Status status = runtime_.Run([this] {
      for (bool done = false; !done;) done = Drive();
      for (const auto& worker : workers_) worker->lines.Close();
      for (const auto& worker : workers_) worker->task->Join();
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  std::string ResultOf(size_t ordinal) const {
    return ResultLine(lines_, ordinal, fmt::format("{}", ordinal));
  }

 private:
  struct Worker {
    Worker(runtime::Runtime& runtime, int64_t id)
        : id(id), lines(runtime, fmt::format("worker {}", id), kLines * 8) {}
    int64_t id;
    runtime::Mailbox<int64_t> lines;
    std::unique_ptr<runtime::Task> task;
  };

  int64_t Below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }

  void AddWorker(SharedJob& job) {
    Worker& worker = *workers_.emplace_back(
        std::make_unique<Worker>(runtime_, static_cast<int64_t>(workers_.size())));
    job.Join(worker.id, fmt::format("worker {}", worker.id), runtime_.Now());
    worker.task = runtime_.Spawn({.name = fmt::format("worker {}", worker.id)},
                                 [this, &worker] { Work(worker); });
  }

  // Those after the tenth live on, so that the job comes to its end.
  bool MayDie(const Worker& worker) const { return worker.id < 10; }

  void Work(Worker& worker) {
    const auto tell = [&](Message::Kind kind, int64_t line = 0) {
      return to_driver_.Send({kind, worker.id, line}, 1000 * kSecond);
    };
    if (!tell(Message::Kind::kAsk)) return;
    while (const std::optional<int64_t> line = worker.lines.Receive()) {
      if (*line == kEndOfLines) return;
      runtime_.Sleep(Below(kSecond));
      if (MayDie(worker)) {
        const int64_t fate = Below(fates_);
        if (fate == 0) {  // The driver is told later, or hears nothing any more.
          ++seen_->deaths;
          if (Below(2) == 0) return;
          runtime_.Sleep(Below(20 * kSecond));
          tell(Message::Kind::kDie);
          return;
        }
        if (fate == 1) {
          tell(Message::Kind::kLeave);
          return;
        }
        if (fate == 2) {
          ++seen_->silences;
          runtime_.Sleep(60 * kSecond);  // Then it goes on with lines that are others' by now.
        }
        if (fate == 3 && !tell(Message::Kind::kGarbage)) return;
        if (fate == 4 && !tell(Message::Kind::kFinish, Below(kLines))) return;
      }
      if (!tell(Message::Kind::kFinish, *line)) return;
      if (Below(10) == 0 && !tell(Message::Kind::kFinish, *line)) return;
      if (Below(2) == 0 && !tell(Message::Kind::kAsk)) return;
    }
  }

  base::Result<std::vector<WorkerOrder>> Take(SharedJob& job, const Message& message) {
    const int64_t now = runtime_.Now();
    switch (message.kind) {
      case Message::Kind::kAsk: return job.Ask(message.worker, now);
      case Message::Kind::kFinish:
        return job.Finish(message.worker, ResultOf(static_cast<size_t>(message.line)), now);
      case Message::Kind::kGarbage: return job.Finish(message.worker, "{\"id\": 3}", now);
      case Message::Kind::kHear: return job.Hear(message.worker, now);
      case Message::Kind::kLeave: return job.Leave(message.worker, now);
      case Message::Kind::kDie: return job.Die(message.worker, now);
    }
    return base::Status(base::kInvalidArgument, "no such message");
  }

  void Obey(const std::vector<WorkerOrder>& orders) {
    for (const WorkerOrder& order : orders) {
      Worker& worker = *workers_[static_cast<size_t>(order.worker)];
      for (const LineServer::Line& line : order.lines) worker.lines.Send(line.number, 0);
    }
  }

  // One life of the driver; true: the job is complete.
  bool Drive() {
    auto opened = SharedJob::Open(
        {.input_path = input_,
         .output_path = output_,
         .fingerprints = kFingerprints,
         .leases = {
             .least_lines = 1, .most_lines = 6, .silent_after_ns = 30 * kSecond, .end_lines = 2}});
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    if (!opened.ok()) return true;
    SharedJob& job = **opened;
    // Workers of a driver that has died end with it: what they say still is of nobody's asking.
    const int64_t first_worker = static_cast<int64_t>(workers_.size());
    for (const auto& worker : workers_) worker->lines.Close();
    for (int i = 0; i < kWorkers; ++i) AddWorker(job);
    const int64_t dies_after = first_worker == 0 && Below(4) == 0 ? 1 + Below(60) : -1;
    for (int64_t events = 0; !job.complete(); ++events) {
      if (events == dies_after) {
        ++seen_->restarts;
        return false;
      }
      const std::optional<Message> message = to_driver_.Receive(5 * kSecond);
      if (message && message->worker < first_worker) continue;
      const auto orders = message ? Take(job, *message) : job.Tick(runtime_.Now());
      EXPECT_TRUE(orders.ok()) << orders.status().ToString();
      if (!orders.ok()) return true;
      Obey(*orders);
      const bool gone = message && (message->kind == Message::Kind::kDie ||
                                    message->kind == Message::Kind::kLeave);
      if (gone || !message) AddWorker(job);
    }
    seen_->twice += job.counts().twice;
    seen_->refused += job.counts().refused;
    seen_->failed += job.counts().failed;
    EXPECT_EQ(job.counts().done + job.counts().resumed, kLines);
    const ProgressView view = job.Progress(1);
    EXPECT_EQ(view.done, kLines);
    EXPECT_LE(view.workers.size(), workers_.size() - static_cast<size_t>(first_worker));
    return true;
  }

  const std::string input_, output_;
  const JobFile& lines_;
  const int64_t fates_;  // a line is one of five misfortunes once in so many
  std::mt19937_64 random_;
  runtime::VirtualRuntime runtime_;
  runtime::Mailbox<Message> to_driver_{runtime_, "driver", 1024};
  std::vector<std::unique_ptr<Worker>> workers_;
  Seen* const seen_;
};

TEST(SharedJob, EachLineIsAnsweredOnceWhoeverDies) {
  base::SetLogLevel(base::LogLevel::kError);
  const base::TemporaryFolder folder(base::TemporaryFolder::InMemory());
  std::string text;
  for (int i = 0; i < kLines; ++i) text += fmt::format("{{\"prompt\": \"{}\"}}\n", i);
  WriteFile(folder / "in.jsonl", text);
  const auto lines = JobFile::Open(folder / "in.jsonl");
  ASSERT_TRUE(lines.ok());
  Seen seen;
  const uint64_t seeds = base::Interleavings(4'000);
  for (uint64_t seed = 0; seed < seeds && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const std::string output = folder / "out.jsonl";
    std::filesystem::remove(output);
    SharedRun run(seed, folder / "in.jsonl", output, *lines, &seen);
    run.Run();
    const std::string results = ReadWhole(output);
    EXPECT_EQ(std::ranges::count(results, '\n'), kLines);
    for (size_t i = 0; i < kLines; ++i) {
      const std::string result = run.ResultOf(i);
      const std::string id = result.substr(0, result.find(','));
      const size_t at = results.find(id);
      ASSERT_NE(at, std::string::npos) << "line " << i << " is lost";
      EXPECT_EQ(results.find(id, at + 1), std::string::npos) << "line " << i << " is there twice";
      EXPECT_TRUE(results.find(result + "\n") == at ||
                  results.find("worker_died", at) < results.find('\n', at))
          << "line " << i << " has another answer";
    }
  }
  base::SetLogLevel(base::LogLevel::kInfo);
  const auto often = static_cast<int64_t>(seeds / 10);
  EXPECT_GT(seen.deaths, often);
  EXPECT_GT(seen.silences, often);
  EXPECT_GT(seen.restarts, often);
  EXPECT_GT(seen.twice, often / 10);
  EXPECT_GT(seen.refused, often);
  EXPECT_GT(seen.failed, 0);
}

TEST(SharedJob, TwoAnswersOfALineNameItAndBothWorkers) {
  const base::TemporaryFolder folder(base::TemporaryFolder::InMemory());
  const std::string input = folder / "in.jsonl";
  WriteFile(input, "{\"prompt\": \"a\"}\n\n{\"prompt\": \"b\"}\n{\"prompt\": \"c\"}\n");
  const auto lines = JobFile::Open(input);
  ASSERT_TRUE(lines.ok());
  for (const bool same : {true, false}) {
    SCOPED_TRACE(same);
    const std::string output = folder / (same ? "same.jsonl" : "other.jsonl");
    auto opened = SharedJob::Open(
        {.input_path = input,
         .output_path = output,
         .fingerprints = kFingerprints,
         .leases = {.least_lines = 3, .most_lines = 3, .silent_after_ns = 30 * kSecond}});
    ASSERT_TRUE(opened.ok());
    SharedJob& job = **opened;
    job.Join(0, "worker 0 on east", 0);
    job.Join(1, "worker 1 on west", 0);
    // The first falls silent with the lines that it has; the second finishes one of them.
    const auto lease = job.Ask(0, 0);
    ASSERT_TRUE(lease.ok());
    ASSERT_FALSE(lease->empty());
    const std::optional<size_t> held = lines->Find((*lease)[0].lines.back().number);
    ASSERT_TRUE(held.has_value());
    ASSERT_TRUE(job.Hear(1, 20 * kSecond).ok());
    const auto silence = job.Tick(31 * kSecond);
    ASSERT_TRUE(silence.ok());
    ASSERT_EQ(silence->size(), 1U);
    EXPECT_EQ((*silence)[0].worker, 0);
    EXPECT_TRUE((*silence)[0].lines.empty());
    int64_t given = 0;
    for (int i = 0; i < 3; ++i) {
      const auto orders = job.Ask(1, 32 * kSecond);
      ASSERT_TRUE(orders.ok());
      for (const WorkerOrder& order : *orders) given += static_cast<int64_t>(order.lines.size());
    }
    EXPECT_EQ(given, 3);
    ASSERT_TRUE(job.Finish(1, ResultLine(*lines, *held, "one"), 33 * kSecond).ok());
    // Then the first goes on.
    const auto late = job.Finish(0, ResultLine(*lines, *held, same ? "one" : "two"), 34 * kSecond);
    EXPECT_EQ(job.counts().twice, same ? 1 : 0);
    EXPECT_EQ(job.counts().done, 1);
    ASSERT_EQ(late.ok(), same);
    if (same) continue;
    EXPECT_EQ(late.status().code(), kResultsDiffer);
    const std::string line = fmt::format("input line {}:", (*lines)[*held].line + 1);
    EXPECT_THAT(late.status().message(),
                testing::AllOf(testing::StartsWith(line), testing::HasSubstr("worker 0 on east"),
                               testing::HasSubstr("worker 1 on west")));
    ASSERT_TRUE(job.Commit().ok());
    EXPECT_EQ(ReadWhole(output), ResultLine(*lines, *held, "one") + "\n");
  }
}

}  // namespace
}  // namespace forebay::job

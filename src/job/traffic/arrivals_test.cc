#include "job/traffic/arrivals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "job/traffic/mixed_source.h"
#include "job/traffic/timed_source.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::job {
namespace {

using testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<double> Gaps(const ArrivalOptions& options, int64_t count) {
  const auto arrivals = PlanArrivals(options, count, 7);
  EXPECT_TRUE(arrivals.ok()) << arrivals.status().ToString();
  std::vector<double> gaps;
  double last = 0;
  for (const double time : arrivals->seconds) {
    gaps.push_back(time - last);
    last = time;
  }
  return gaps;
}

// Standard deviation by mean.
double Variation(const std::vector<double>& gaps) {
  double sum = 0, squares = 0;
  for (const double gap : gaps) {
    EXPECT_GE(gap, 0);
    sum += gap;
    squares += gap * gap;
  }
  const double count = static_cast<double>(gaps.size()), mean = sum / count;
  return std::sqrt(std::max(0.0, squares / count - mean * mean)) / mean;
}

TEST(Arrivals, AllAtOnceUnlessAsked) {
  EXPECT_FALSE(PlanArrivals({}, 10, 1)->any());
  EXPECT_TRUE(PlanArrivals({.max_concurrency = 2}, 10, 1)->any());
}

// A gamma distribution of shape b varies by 1 / sqrt(b); the last request comes at n / rate.
TEST(Arrivals, GapsHaveTheRateAndTheBurstiness) {
  for (const double burstiness : {0.25, 0.5, 1.0, 4.0}) {
    const auto gaps = Gaps({.request_rate = 5, .burstiness = burstiness}, 20000);
    EXPECT_NEAR(Variation(gaps), 1 / std::sqrt(burstiness), 0.06 / std::sqrt(burstiness))
        << burstiness;
    EXPECT_NEAR(PlanArrivals({.request_rate = 5, .burstiness = burstiness}, 100, 3)->seconds.back(),
                20, 1e-9);
  }
  EXPECT_NEAR(Variation(Gaps({.request_rate = 5, .burstiness = kInfinity}, 100)), 0, 1e-6);
  EXPECT_EQ(PlanArrivals({.request_rate = 2}, 50, 3)->seconds,
            PlanArrivals({.request_rate = 2}, 50, 3)->seconds);
  EXPECT_NE(PlanArrivals({.request_rate = 2}, 50, 3)->seconds,
            PlanArrivals({.request_rate = 2}, 50, 4)->seconds);
}

// 4 x 10 s x 60/s are 2,400 of 2,800 requests: 400 come in 200 s at 2/s, and the run takes 240 s.
TEST(Arrivals, BurstsLieEvenlyInASteadyStream) {
  const auto arrivals =
      *PlanArrivals({.source = "bursts:rate=2,bursts=4,burst_rate=60,burst_seconds=10"}, 2800, 1);
  EXPECT_NEAR(arrivals.seconds.back(), 240, 1e-6);
  for (int burst = 0; burst < 4; ++burst) {
    const double begin = 25 + 60.0 * burst;
    int64_t inside = 0;
    for (const double time : arrivals.seconds) inside += time >= begin && time < begin + 10 ? 1 : 0;
    EXPECT_NEAR(static_cast<double>(inside), 600, 120) << burst;
  }
}

TEST(Arrivals, AFileIsReadAsItIs) {
  const std::string path = testing::TempDir() + "/arrivals.txt";
  std::ofstream(path) << "0\n0.5\n0.5\n2\n";
  EXPECT_EQ(PlanArrivals({.source = path}, 3, 1)->seconds, (std::vector<double>{0, 0.5, 0.5}));
  std::ofstream(path) << "0\r\n0.5\r\n";
  EXPECT_EQ(PlanArrivals({.source = path}, 2, 1)->seconds, (std::vector<double>{0, 0.5}));
  const auto error = [&](const std::string& text, int64_t count) {
    std::ofstream(path) << text;
    const base::Status status = PlanArrivals({.source = path}, count, 1).status();
    EXPECT_EQ(status.code(), kArrivalsInvalid) << text;
    return status.message();
  };
  EXPECT_THAT(error("0\n1\n", 3), HasSubstr("2 arrivals of a job of 3 requests"));
  EXPECT_THAT(error("0\nx\n", 2), HasSubstr("line 2: \"x\"; expected the seconds"));
  EXPECT_THAT(error("-1\n", 1), HasSubstr("line 1: \"-1\""));
  EXPECT_THAT(error("nan\n", 1), HasSubstr("line 1: \"nan\""));
  EXPECT_THAT(error("2\n1\n", 2), HasSubstr("line 2: 1 comes after 2"));
  EXPECT_THAT(error("0\n1e18\n", 2), HasSubstr("the last of 2 arrivals is after 1e+18 s"));
  EXPECT_EQ(PlanArrivals({.source = "./nowhere"}, 1, 1).status().code(), base::kIoError);
  const base::Status folder = PlanArrivals({.source = "."}, 1, 1).status();
  EXPECT_EQ(folder.code(), base::kIoError) << folder.ToString();
}

// What the clock cannot count would come at once.
TEST(Arrivals, NoneIsLaterThanTheClockCounts) {
  const auto error = [](const ArrivalOptions& options) {
    const base::Status status = PlanArrivals(options, 2, 1).status();
    EXPECT_EQ(status.code(), kArrivalsInvalid) << status.ToString();
    return status.message();
  };
  EXPECT_THAT(error({.request_rate = 1e-12}),
              HasSubstr("--request-rate 1e-12, --burstiness 1: the last of 2 arrivals is after"));
  EXPECT_THAT(error({.request_rate = 1, .burstiness = 1e-9}), HasSubstr("nan s; expected at most"));
  EXPECT_THAT(error({.source = "bursts:rate=1e-12,bursts=1,burst_rate=1,burst_seconds=0.5"}),
              HasSubstr("burst_seconds=0.5: the last of 2 arrivals is after"));
  EXPECT_TRUE(PlanArrivals({.request_rate = 1e-12}, 0, 1).ok());
}

TEST(Arrivals, BadNumbersNameTheFlag) {
  const auto error = [](const ArrivalOptions& options) {
    const base::Status status = PlanArrivals(options, 10, 1).status();
    EXPECT_EQ(status.code(), base::kInvalidArgument) << status.ToString();
    return status.message();
  };
  EXPECT_THAT(error({.request_rate = 0}), HasSubstr("--request-rate is 0"));
  EXPECT_THAT(error({.request_rate = -2}), HasSubstr("--request-rate is -2"));
  EXPECT_THAT(error({.request_rate = std::nan("")}), HasSubstr("--request-rate is nan"));
  EXPECT_THAT(error({.request_rate = 1, .burstiness = 0}), HasSubstr("--burstiness is 0"));
  EXPECT_THAT(error({.burstiness = 2}), HasSubstr("--burstiness 2 without --request-rate"));
  EXPECT_THAT(error({.max_concurrency = -1}), HasSubstr("--max-concurrency is -1"));
  EXPECT_THAT(error({.request_rate = 1, .source = "times.txt"}),
              HasSubstr("--request-rate 1 and --arrivals times.txt are both given"));
  const auto bursts = [](const std::string& fields) {
    const base::Status status = PlanArrivals({.source = "bursts:" + fields}, 10, 1).status();
    EXPECT_EQ(status.code(), kArrivalsInvalid) << status.ToString();
    return status.message();
  };
  EXPECT_THAT(bursts("rate=2"), HasSubstr("bursts is missing"));
  EXPECT_THAT(bursts("rat=2"), HasSubstr("\"rat=2\"; expected rate, bursts"));
  EXPECT_THAT(bursts("rate=2,bursts=1.5,burst_rate=1,burst_seconds=1"),
              HasSubstr("bursts is 1.5; expected a whole number"));
  EXPECT_THAT(bursts("rate=2,bursts=2,burst_rate=5,burst_seconds=1"),
              HasSubstr("10 requests come in its bursts, the job has 10"));
}

class Numbers final : public RequestSource {
 public:
  explicit Numbers(int64_t count, int64_t first = 100) : count_(count), first_(first) {}
  std::optional<Request> Next(bool) override {
    if (ended()) return std::nullopt;
    return Request{.id = first_ + next_++};
  }
  bool ended() const override { return next_ == count_; }
  int64_t remaining() const override { return count_ - next_; }

 private:
  const int64_t count_, first_;
  int64_t next_ = 0;
};

class Nowhere final : public ResultSink {
 public:
  bool Finish(RequestResult result) override {
    ids.push_back(result.id);
    return true;
  }
  std::vector<int64_t> ids;
};

RequestResult ResultOf(int64_t id, runtime::TimeNs first_token, size_t tokens) {
  RequestResult result{.id = id, .first_token_ns = first_token};
  result.choices.push_back({.tokens = std::vector<int32_t>(tokens)});
  return result;
}

constexpr runtime::TimeNs kSecond = 1'000'000'000;

TEST(TimedSource, ReleasesRequestsAtTheirTimesAndMeasuresFromThere) {
  runtime::VirtualRuntime runtime(1);
  ASSERT_TRUE(runtime
                  .Run([&] {
                    Numbers numbers(3);
                    Nowhere sink;
                    RunControl control;
                    runtime.Sleep(kSecond);
                    TimedSource timed(runtime, numbers, sink, {.seconds = {1, 3, 3}}, control);
                    EXPECT_FALSE(timed.Next(false));
                    EXPECT_EQ(timed.Next(true)->id, 100);
                    EXPECT_EQ(runtime.Now(), 2 * kSecond);
                    EXPECT_FALSE(timed.Next(false));
                    // A step that takes long: the others came in the meantime.
                    runtime.Sleep(4 * kSecond);
                    EXPECT_EQ(timed.Next(false)->id, 101);
                    EXPECT_EQ(timed.Next(false)->id, 102);
                    EXPECT_TRUE(timed.ended());
                    for (const int64_t id : {100, 102, 101})
                      EXPECT_TRUE(timed.Finish(ResultOf(id, 5 * kSecond, 3)));
                    EXPECT_EQ(sink.ids, (std::vector<int64_t>{100, 102, 101}));
                    const Latencies latencies = timed.latencies();
                    EXPECT_NEAR(latencies.first_token.max, 3, 1e-9);  // came at 2 s, of 5
                    EXPECT_NEAR(latencies.first_token.p50, 1, 1e-9);
                    EXPECT_NEAR(latencies.token.mean, 0.5, 1e-9);
                    EXPECT_NEAR(latencies.completion.max, 4, 1e-9);
                  })
                  .ok());
}

// The third request is there from the begin, finds both places taken, and arrives when one is free.
TEST(TimedSource, KeepsNoMoreThanThePlaces) {
  runtime::VirtualRuntime runtime(1);
  ASSERT_TRUE(runtime
                  .Run([&] {
                    Numbers numbers(3);
                    Nowhere sink;
                    RunControl control;
                    TimedSource timed(runtime, numbers, sink, {.max_concurrency = 2}, control);
                    EXPECT_TRUE(timed.Next(true));
                    EXPECT_TRUE(timed.Next(true));
                    EXPECT_FALSE(timed.Next(false));
                    const auto engine = runtime.Spawn({.name = "engine"}, [&] {
                      runtime.Sleep(2 * kSecond);
                      timed.Finish(ResultOf(101, kSecond, 1));
                    });
                    EXPECT_EQ(timed.Next(true)->id, 102);
                    EXPECT_EQ(runtime.Now(), 2 * kSecond);
                    engine->Join();
                    timed.Finish(ResultOf(102, 3 * kSecond, 1));
                    EXPECT_NEAR(timed.latencies().first_token.p50, 1, 1e-9);
                  })
                  .ok());
}

// An engine that holds fewer requests than there are places asks late. Two are there from the
// begin, the third since the first has ended, and the fourth since the second has.
TEST(TimedSource, PlacesAreThoseOfWhoSendsNotOfTheEngine) {
  runtime::VirtualRuntime runtime(1);
  ASSERT_TRUE(runtime
                  .Run([&] {
                    Numbers numbers(4);
                    Nowhere sink;
                    RunControl control;
                    TimedSource timed(runtime, numbers, sink, {.max_concurrency = 2}, control);
                    for (int64_t id = 100; id < 104; ++id) {
                      EXPECT_EQ(timed.Next(false)->id, id);
                      runtime.Sleep(kSecond);
                      EXPECT_TRUE(timed.Finish(ResultOf(id, runtime.Now(), 1)));
                    }
                    std::vector<double> arrivals;
                    for (const RequestTimes& times : timed.latencies().requests)
                      arrivals.push_back(times.arrival);
                    EXPECT_EQ(arrivals, (std::vector<double>{0, 0, 1, 2}));
                  })
                  .ok());
}

// People at 2 and 3 s beside a batch of two that is there from the begin.
TEST(MixedSource, GivesWhatComesFirstOrWhoWaits) {
  runtime::VirtualRuntime runtime(1);
  ASSERT_TRUE(runtime
                  .Run([&] {
                    Numbers two(2, 0), three(3, 10);
                    Nowhere sink;
                    RunControl control;
                    TimedSource people(runtime, two, sink, {.seconds = {2, 3}}, control);
                    TimedSource batch(runtime, three, sink, {.seconds = {0, 0, 2.5}}, control);
                    MixedSource mixed(runtime, people, batch, 10);
                    EXPECT_EQ(mixed.remaining(), 5);
                    EXPECT_FALSE(mixed.NextOf(Service::kInteractive));
                    EXPECT_EQ(mixed.Next(false)->id, 10);
                    runtime.Sleep(2 * kSecond);
                    EXPECT_EQ(mixed.NextOf(Service::kInteractive)->id, 0);
                    EXPECT_EQ(mixed.NextOf(Service::kBatch)->id, 11);
                    EXPECT_FALSE(mixed.NextOf(Service::kBatch));
                    EXPECT_FALSE(mixed.Next(false));
                    EXPECT_EQ(mixed.Next(true)->id, 12);
                    EXPECT_NEAR(runtime::SecondsOf(runtime.Now()), 2.5, 0.06);
                    EXPECT_EQ(mixed.Next(true)->id, 1);
                    EXPECT_TRUE(mixed.ended());
                    for (const int64_t id : {0, 10, 11, 1, 12}) {
                      RequestResult result = ResultOf(id, 3 * kSecond, 4);
                      result.completion_tokens = 4;
                      EXPECT_TRUE(mixed.Finish(std::move(result)));
                    }
                    EXPECT_EQ(mixed.interactive_tokens().output, 8);
                    EXPECT_EQ(mixed.batch_tokens().output, 12);
                    EXPECT_EQ(mixed.batch_tokens().requests, 3);
                    EXPECT_NEAR(people.latencies().first_token.max, 1, 0.01);
                  })
                  .ok());
}

// Of a run that was ended at 2 s: one that the engine holds, and those that came and that it had no
// room for.
TEST(TimedSource, CountsWhoCameAndHasNoResult) {
  struct Row {
    Arrivals arrivals;
    int64_t unfinished;
  };
  for (const Row& row :
       {Row{{.seconds = {0, 1, 2, 2, 3, 4, 5, 6}}, 3}, Row{{}, 4}, Row{{.max_concurrency = 2}, 2},
        Row{{.max_concurrency = 9}, 4}, Row{{.seconds = {0, 0, 0, 0, 9}, .max_concurrency = 2}, 2},
        Row{{.seconds = {0, 0, 0, 0, 0, 0, 0}}, 4}}) {
    runtime::VirtualRuntime runtime(1);
    ASSERT_TRUE(runtime
                    .Run([&] {
                      Numbers numbers(5);
                      Nowhere sink;
                      RunControl control;
                      TimedSource timed(runtime, numbers, sink, row.arrivals, control);
                      EXPECT_TRUE(timed.Next(false));
                      EXPECT_TRUE(timed.Finish(ResultOf(100, 0, 1)));
                      runtime.Sleep(2 * kSecond);
                      EXPECT_TRUE(timed.Next(false));
                      EXPECT_EQ(timed.latencies().unfinished, row.unfinished);
                    })
                    .ok());
  }
}

// Where a job goes on, more arrivals are planned than it has requests left; that none is left it
// learns only where it asks for one more.
TEST(TimedSource, EndsWithItsSource) {
  class Learning final : public RequestSource {
   public:
    std::optional<Request> Next(bool) override {
      ended_ = left_ == 0;
      if (ended_) return std::nullopt;
      return Request{.id = --left_};
    }
    bool ended() const override { return ended_; }
    int64_t remaining() const override { return left_; }

   private:
    int64_t left_ = 1;
    bool ended_ = false;
  };
  runtime::VirtualRuntime runtime(1);
  ASSERT_TRUE(runtime
                  .Run([&] {
                    Learning source;
                    Nowhere sink;
                    RunControl control;
                    TimedSource timed(runtime, source, sink,
                                      {.seconds = {1, 1000}, .max_concurrency = 1}, control);
                    EXPECT_TRUE(timed.Next(true));
                    EXPECT_FALSE(timed.ended());
                    EXPECT_FALSE(timed.Next(true));
                    EXPECT_TRUE(timed.ended());
                    EXPECT_EQ(runtime.Now(), kSecond);
                  })
                  .ok());
}

TEST(TimedSource, NoticesTheEnd) {
  runtime::VirtualRuntime runtime(1);
  ASSERT_TRUE(runtime
                  .Run([&] {
                    Numbers numbers(1);
                    Nowhere sink;
                    RunControl control;
                    TimedSource timed(runtime, numbers, sink, {.seconds = {1000}}, control);
                    const auto user = runtime.Spawn({.name = "user"}, [&] {
                      runtime.Sleep(kSecond);
                      control.drain = true;
                    });
                    EXPECT_FALSE(timed.Next(true));
                    EXPECT_LT(runtime.Now(), 2 * kSecond);
                    EXPECT_TRUE(timed.ended());
                    EXPECT_EQ(numbers.remaining(), 1);
                  })
                  .ok());
}

// Two choices of a request and one of another: gaps are those between tokens of one choice.
TEST(TimedSource, MeasuresEachTokenWhereAskedFor) {
  for (const bool each : {false, true}) {
    runtime::VirtualRuntime runtime(1);
    ASSERT_TRUE(
        runtime
            .Run([&] {
              Numbers numbers(3);
              Nowhere sink;
              RunControl control;
              TimedSource timed(runtime, numbers, sink, {.seconds = {0, 0, 1}}, control, each);
              EXPECT_EQ(timed.Next(true)->stream, each);
              EXPECT_TRUE(timed.Next(true));
              EXPECT_TRUE(timed.in_order());
              const auto tokens = [&](int64_t id, int32_t choice) {
                timed.Progress({.id = id, .choice = choice, .tokens = {7}});
              };
              tokens(100, 0);
              tokens(100, 1);
              tokens(101, 0);
              runtime.Sleep(kSecond / 2);
              tokens(100, 0);
              runtime.Sleep(kSecond / 4);
              tokens(100, 1);
              tokens(101, 0);
              EXPECT_TRUE(timed.Finish(ResultOf(101, 0, 2)));
              runtime.Sleep(4 * kSecond);
              tokens(100, 0);
              EXPECT_TRUE(timed.Finish(ResultOf(100, 0, 3)));
              EXPECT_TRUE(timed.Next(true));
              const Latencies latencies = timed.latencies();
              EXPECT_EQ(latencies.unfinished, 1);
              EXPECT_EQ(latencies.requests.size(), 2u);
              EXPECT_EQ(latencies.tokens.any, each);
              const Percentiles& between = latencies.tokens.between;
              EXPECT_NEAR(between.p50, each ? 0.75 : 0, 0.0005);
              EXPECT_EQ(between.max, each ? 4.25 : 0);
              EXPECT_EQ(between.mean, each ? 1.5625 : 0);
              EXPECT_EQ(latencies.tokens.peak_1s, each ? 6 : 0);
              EXPECT_EQ(latencies.tokens.peak_10s, each ? 0.7 : 0);
              // The middle of 4.75 s is from 1.1875 to 3.5625: no token came then.
              EXPECT_EQ(latencies.tokens.steady.end, each ? 3.5625 : 0);
              EXPECT_EQ(latencies.tokens.steady_output, 0);
            })
            .ok());
  }
}

TEST(Latency, DurationsInBoundedMemory) {
  DurationBook book;
  std::vector<double> all;
  for (int i = 0; i < 20000; ++i) {
    all.push_back(1e-6 * std::pow(1.001, i));
    book.Add(all.back());
  }
  const Percentiles found = book.Summarize(), exact = PercentilesOf(all);
  EXPECT_NEAR(found.mean / exact.mean, 1, 1e-9);
  EXPECT_NEAR(found.p50 / exact.p50, 1, 3e-4);
  EXPECT_NEAR(found.p99 / exact.p99, 1, 3e-4);
  EXPECT_EQ(found.max, exact.max);
  EXPECT_EQ(DurationBook().Summarize().max, 0);
}

// As many as there are in the window, whenever the stretches doubled and wherever it begins.
TEST(Latency, TokensOfTheSteadyWindow) {
  const SteadyWindow whole = SteadyWindowOf(8, false), broken_off = SteadyWindowOf(8, true);
  EXPECT_EQ(whole.begin, 2);
  EXPECT_EQ(whole.end, 6);
  EXPECT_EQ(broken_off.begin, 4);
  EXPECT_EQ(broken_off.end, 7.6);
  for (const double step : {1e-4, 1e-3, 0.07, 3.0}) {
    TokenBook book;
    constexpr int kTokens = 20'000;
    for (int i = 0; i < kTokens; ++i) book.Add(i * step, i % 4 == 0 ? 100 : 0, 2);
    const TokenBook::Tokens tokens = book.Within(SteadyWindowOf(kTokens * step, false));
    EXPECT_NEAR(tokens.output, kTokens, 1e-3 * kTokens) << step;
    EXPECT_NEAR(tokens.prompt, 12.5 * kTokens, 12.5e-3 * kTokens) << step;
    EXPECT_NEAR(book.Within({0, 2 * kTokens * step}).output, 2 * kTokens, 1e-6) << step;
  }
  EXPECT_EQ(TokenBook().Within({0, 1}).output, 0);
}

// The peak is that of all stretches, wherever they begin: here found by trying all.
TEST(Latency, PeaksOverStretches) {
  PeakBook book(2);
  std::vector<std::pair<double, int64_t>> all;
  for (int i = 0; i < 200; ++i) {
    all.emplace_back((i * i % 17) * 0.1 + (all.empty() ? 0 : all.back().first), i * 7 % 11);
    book.Add(all.back().first, all.back().second);
  }
  int64_t most = 0;
  for (const auto& [end, last] : all) {
    int64_t sum = 0;
    for (const auto& [time, tokens] : all) sum += time > end - 2 && time <= end ? tokens : 0;
    most = std::max(most, sum);
  }
  EXPECT_EQ(book.per_second(), static_cast<double>(most) / 2);
}

}  // namespace
}  // namespace forebay::job

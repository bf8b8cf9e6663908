#include "job/session.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "job/testing/fake_engine.h"
#include "runtime/virtual/virtual_runtime.h"

namespace forebay::job {
namespace {

constexpr runtime::TimeNs kStep = 3'000'000, kLong = 60'000'000'000;

std::vector<Session::Submitted> Requests(size_t count) {
  std::vector<Session::Submitted> requests(count);
  for (auto& each : requests) each.request.prompts = {{1, 2, 3}};
  return requests;
}

// The sizes of what came at once, by one Take after the other that asks for `least` of ten requests
// that end one a step.
std::vector<size_t> Taken(uint64_t seed, size_t least) {
  std::vector<size_t> sizes;
  runtime::VirtualRuntime runtime(seed);
  FakeEngine engine(seed);
  engine.before_step = [&] { runtime.Sleep(kStep); };
  const base::Status status = runtime.Run([&] {
    Session session(runtime, engine);
    const auto inbox = std::make_shared<Inbox>(runtime);
    EXPECT_EQ(session.Submit(Requests(10), inbox).size(), 10);
    for (size_t missing = 10; missing > 0; missing -= sizes.back())
      sizes.push_back(inbox->Take(kLong, std::min(least, missing)).size());
    // Nothing is left, and nobody waits for ever.
    const runtime::TimeNs begin = runtime.Now();
    EXPECT_TRUE(inbox->Take(kStep, least).empty());
    EXPECT_EQ(runtime.Now() - begin, kStep);
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return sizes;
}

TEST(Session, WhoAsksForManyIsNotWokenForEach) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(Taken(seed, 1), std::vector<size_t>(10, 1));
    EXPECT_EQ(Taken(seed, 4), (std::vector<size_t>{4, 4, 2}));
    EXPECT_EQ(Taken(seed, 10), std::vector<size_t>{10});
  }
}

TEST(Session, ATakeEndsWithItsTime) {
  runtime::VirtualRuntime runtime(1);
  FakeEngine engine;
  engine.before_step = [&] { runtime.Sleep(kStep); };
  const base::Status status = runtime.Run([&] {
    Session session(runtime, engine);
    const auto inbox = std::make_shared<Inbox>(runtime);
    session.Submit(Requests(3), inbox);
    EXPECT_EQ(inbox->Take(kLong).size(), 1);
    // When the time is up there is one of the two; a wait takes nothing, and the other comes to
    // the next.
    EXPECT_FALSE(inbox->Wait(kStep * 3 / 2, 2));
    EXPECT_EQ(inbox->Take(0).size(), 1);
    EXPECT_TRUE(inbox->Wait(kLong, 1));
    EXPECT_EQ(inbox->Take(0).size(), 1);
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// Those that were asked before all replicas failed, and those that are asked after.
TEST(Session, WhereNoReplicaIsLeftRequestsEndWithGroupFailed) {
  runtime::VirtualRuntime runtime(1);
  FakeEngine engine;
  engine.before_step = [&] { runtime.Sleep(kStep); };
  engine.end_instead = RunEnd::kStalled;
  const base::Status status = runtime.Run([&] {
    Session session(runtime, engine);
    const auto inbox = std::make_shared<Inbox>(runtime);
    for (int round = 0; round < 2; ++round) {
      session.Submit(Requests(3), inbox);
      for (size_t left = 3; left > 0;) {
        for (const Delivery& delivery : inbox->Take(kLong, left)) {
          ASSERT_TRUE(delivery.result);
          EXPECT_EQ(delivery.result->error_code, "group_failed");
          EXPECT_EQ(delivery.result->http_status, 500);
          --left;
        }
      }
    }
    EXPECT_FALSE(session.open());
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(Session, MeasuresWhatRequestsTook) {
  runtime::VirtualRuntime runtime(1);
  FakeEngine engine;
  engine.before_step = [&] { runtime.Sleep(kStep); };
  const base::Status status = runtime.Run([&] {
    Session session(runtime, engine);
    const auto inbox = std::make_shared<Inbox>(runtime);
    std::vector<Session::Submitted> requests = Requests(5);
    for (auto& each : requests) {
      each.request.n = 2;
      each.request.sampling.max_tokens = 12;
    }
    session.Submit(std::move(requests), inbox);
    EXPECT_EQ(session.num_waiting(), 10);
    for (size_t left = 5; left > 0;) left -= inbox->Take(kLong, left).size();
    EXPECT_EQ(session.num_waiting(), 0);
    const RequestMetrics metrics = session.metrics();
    const auto& ends = metrics.ends();
    EXPECT_EQ(ends.stop + ends.length, 10);
    EXPECT_EQ(ends.abort + ends.error, 0);
    std::map<std::string, base::Histogram> histograms;
    for (const auto& [name, histogram] : metrics.Histograms({}))
      histograms.emplace(name, histogram);
    const auto of = [&](const char* name) {
      const auto counts = histograms.at(name).counts();
      return std::vector<int64_t>(counts.begin(), counts.end());
    };
    // One a step, each of which is 3 ms: 3 + 6 + ... + 15.
    EXPECT_EQ(of("vllm:e2e_request_latency_seconds")[0], 5);
    EXPECT_NEAR(histograms.at("vllm:e2e_request_latency_seconds").sum(), .045, 1e-9);
    EXPECT_EQ(of("vllm:request_prompt_tokens")[2], 5);  // above 2, up to 5
    EXPECT_EQ(of("vllm:request_params_max_tokens")[4], 5);
    EXPECT_EQ(of("vllm:request_params_n")[1], 5);
    // Up to 200 of the 300 that the context has, and above.
    EXPECT_EQ(of("vllm:request_prompt_tokens").size(), 9u);
    // The fake engine does not say when first tokens came.
    EXPECT_EQ(histograms.at("vllm:time_to_first_token_seconds").sum(), 0);
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(RequestMetrics, ARequestsTimeHasParts) {
  constexpr runtime::TimeNs kSecond = 1'000'000'000;
  RequestMetrics metrics(300);
  const RequestAsked asked{.arrival = 10 * kSecond};
  // One with tokens, one that asked for its prompt alone, and one that needed no step.
  metrics.Add(asked, {.admitted_ns = 12 * kSecond, .first_token_ns = 15 * kSecond}, 22 * kSecond);
  metrics.Add(asked, {.admitted_ns = 11 * kSecond}, 14 * kSecond);
  metrics.Add(asked, {}, 10 * kSecond);
  std::map<std::string, std::pair<int64_t, double>> found;
  for (const auto& [name, histogram] : metrics.Histograms({}))
    found[name] = {std::reduce(histogram.counts().begin(), histogram.counts().end()),
                   histogram.sum()};
  const std::pair<const char*, std::pair<int64_t, double>> rows[] = {
      {"e2e_request_latency", {3, 12 + 4}},    {"request_queue_time", {2, 2 + 1}},
      {"request_inference_time", {2, 10 + 3}}, {"request_prefill_time", {1, 3}},
      {"request_decode_time", {1, 7}},         {"time_to_first_token", {1, 5}}};
  for (const auto& [name, expected] : rows) {
    const auto& [count, sum] = found.at("vllm:" + std::string(name) + "_seconds");
    EXPECT_EQ(count, expected.first) << name;
    EXPECT_NEAR(sum, expected.second, 1e-9) << name;
  }
}

}  // namespace
}  // namespace forebay::job

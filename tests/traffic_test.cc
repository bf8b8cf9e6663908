// People beside a batch: whatever gives way to whom, each answer is that of one rank, and what was
// asked for has happened.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "base/rng.h"
#include "base/testing/interleavings.h"
#include "runtime/virtual/virtual_runtime.h"
#include "testing/layout_fixture.h"

namespace forebay {
namespace {

using testing_support::ListSink;

// Gives batch requests at once, and an interactive one each few times that a replica asks; or, with
// `asks` 0, all of these as soon as the last batch request is given.
class TrafficSource final : public RequestSource {
 public:
  explicit TrafficSource(const std::vector<Request>& requests, int asks = 3) : asks_(asks) {
    for (const Request& request : requests) {
      (request.service == Service::kInteractive ? people_ : batch_).push_back(request);
    }
  }
  std::optional<Request> NextOf(Service service) override {
    if (service == Service::kBatch)
      return next_ < batch_.size() ? std::optional(Give(batch_[next_++])) : std::nullopt;
    if (next_person_ == people_.size()) return std::nullopt;
    if (asks_ == 0 ? next_ < batch_.size() : ++asked_ % asks_ != 0) return std::nullopt;
    return Give(people_[next_person_++]);
  }
  std::optional<Request> Next(bool) override {
    if (next_ < batch_.size()) return Give(batch_[next_++]);
    if (next_person_ < people_.size()) return Give(people_[next_person_++]);
    return std::nullopt;
  }
  bool ended() const override { return remaining() == 0; }
  int64_t remaining() const override {
    return static_cast<int64_t>(batch_.size() - next_ + people_.size() - next_person_);
  }
  bool in_order() const override { return true; }
  const std::vector<int64_t>& given() const { return given_; }  // ids

 private:
  const Request& Give(const Request& request) {
    given_.push_back(request.id);
    return request;
  }

  const int asks_;
  std::vector<Request> people_, batch_;
  std::vector<int64_t> given_;
  size_t next_ = 0, next_person_ = 0;
  int asked_ = 0;
};

class StepCounter final : public StepObserver {
 public:
  void OnStep(const StepRecord& record) override {
    const int32_t rows = record.decode_rows + record.prefill_rows,
                  people = record.interactive_decode_rows + record.interactive_prefill_rows;
    EXPECT_LE(record.interactive_decode_rows, record.decode_rows);
    EXPECT_LE(record.interactive_prefill_rows, record.prefill_rows);
    people_rows += people;
    mixed += people > 0 && people < rows ? 1 : 0;
  }
  int64_t people_rows = 0, mixed = 0;
};

class TrafficTest : public LayoutTest {
 protected:
  TrafficTest() {
    for (Request& request : requests_) {
      request.sampling.max_tokens += 20;
      if (request.id % 4 == 3) request.service = Service::kInteractive;
      if (request.id % 8 == 0) request.deadline_seconds = 10;
    }
  }

  // `devices` "": as many as the roles have.
  Answers RunMixed(const std::string& devices) {
    options_.policy = *schedule::FindPolicy("interactive");
    options_.machine.devices = *layout::ParseDevices(devices);
    const auto runtime = runtime::CreateRealRuntime();
    device::HazardChecker checker;
    options_.trial.checker = &checker;
    auto engine = choose::CreateEngine(*runtime, options_, files_, nullptr);
    options_.trial.checker = nullptr;
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    if (!engine.ok()) return {};
    steps_ = {};
    (*engine)->SetStepObserver(&steps_);
    TrafficSource source(requests_);
    ListSink sink;
    RunControl control;
    EXPECT_EQ((*engine)->Run(source, sink, control), RunEnd::kComplete);
    EXPECT_EQ(sink.results.size(), requests_.size());
    Answers answers;
    for (const RequestResult& result : sink.results) {
      EXPECT_EQ(result.error_message, "");
      for (const Choice& choice : result.choices)
        answers[{result.id, choice.index}] = {choice.tokens, choice.digest};
    }
    stats_ = (*engine)->stats();
    ExpectAllGivenBack(**engine);
    EXPECT_TRUE(checker.status().ok()) << checker.status().ToString();
    EXPECT_EQ(stats_.interactive_rows, steps_.people_rows);
    EXPECT_EQ(Counter("rows_interactive"), steps_.people_rows);
    EXPECT_GT(steps_.mixed, 0);
    return answers;
  }
  static void ExpectAllGivenBack(const engine::LocalEngine& engine) {
    for (int i = 0; i < engine.num_replicas(); ++i) {
      EXPECT_EQ(engine.replica(i).choices().book().held_blocks(), 0) << "replica " << i;
      EXPECT_EQ(engine.replica(i).choices().num_running(), 0u) << "replica " << i;
    }
  }
  int64_t Counter(const char* name) const { return stats_.counter(name).value_or(0); }

  StepCounter steps_;
};

TEST_P(TrafficTest, EachAnswerIsThatOfOneRank) {
  const Answers expected = Run("cpu", "");
  options_.limits.max_num_seqs = 4;
  int64_t preemptions = 0;
  for (const auto& [devices, layout] : {std::pair("cpu", ""), std::pair("2xcpu", "dp=2"),
                                        std::pair("2xcpu", "sp=2"), std::pair("2xcpu", "pp=2")}) {
    for (const double target_ms : {-1.0, 1e-6}) {
      SCOPED_TRACE(fmt::format("{} target {}", layout, target_ms));
      options_.layout = *layout::ParseLayout(layout);
      options_.limits.target_itl_ms = target_ms;
      options_.trial.shift_every = options_.layout->sp > 1 ? schedule::kFlipAtRandom : 0;
      EXPECT_EQ(RunMixed(devices), expected);
      preemptions += stats_.preemptions;
      if (options_.layout->sp > 1) {
        EXPECT_GT(Counter("steps_sp2tp1"), 0);
        EXPECT_GT(Counter("steps_sp1tp2"), 0);
      }
    }
  }
  EXPECT_GT(preemptions, 0);
}

TEST_P(TrafficTest, WhatGivesWayIsParkedAndComesBack) {
  const Answers expected = Run("cpu", "");
  options_.limits.max_num_seqs = 4;
  options_.limits.kv_blocks = 14;
  options_.tier = {.host_bytes = 64 << 20, .preempt = layout::Preempting::kPark};
  for (const auto& [devices, layout] : {std::pair("cpu", ""), std::pair("2xcpu", "sp=2")}) {
    SCOPED_TRACE(layout);
    options_.layout = *layout::ParseLayout(layout);
    EXPECT_EQ(RunMixed(devices), expected);
    EXPECT_GT(Counter("kv_parks"), 0);
    EXPECT_GT(Counter("kv_returns"), 0);
    EXPECT_EQ(stats_.recomputed_tokens, 0);
  }
}

TEST_P(TrafficTest, AcrossRoles) {
  const Answers expected = Run("cpu", "");
  options_.limits.max_num_seqs = 4;
  options_.layout.reset();
  options_.roles = {*layout::ParseLayout("dp=1"), *layout::ParseLayout("dp=1")};
  EXPECT_EQ(RunMixed("2xcpu"), expected);
  EXPECT_GT(stats_.requests_handed_over, 0);
}

// Arrivals, bursts at a batch's last line, preemption, parking, stealing, handing over, cancels and
// dying groups in each order that a seed gives: whoever is not cancelled has the answer that it has
// alone, and blocks and places come back.
TEST_P(TrafficTest, SeededInterleavings) {
  requests_.resize(12);
  for (Request& request : requests_) request.sampling.max_tokens = 2 + request.id % 7;
  const Answers expected = Run("cpu", "");
  options_.policy = *schedule::FindPolicy("interactive");
  options_.steal = layout::Stealing::kAlways;
  options_.trial.max_virtual_delay = 200;
  int64_t cancelled = 0;
  std::map<std::string, int64_t> counted;
  for (uint64_t seed = 0; seed < base::Interleavings(300); ++seed) {
    base::Rng rng(seed);
    layout::EngineOptions options = options_;
    options.trial.delay_seed = seed;
    options.limits.max_num_seqs = static_cast<int64_t>(2 + rng.Below(3));
    options.limits.target_itl_ms = rng.Below(2) == 0 ? -1 : 1e-6;
    static constexpr const char* kLayouts[] = {"",     "dp=2",  "sp=2",
                                               "pp=2", "roles", "groups=2,tp=2"};
    const std::string layout = kLayouts[rng.Below(std::size(kLayouts))];
    const bool dies = layout.starts_with("groups");
    options.machine.devices = *layout::ParseDevices(layout.empty() ? "cpu"
                                                    : dies         ? "4xcpu"
                                                                   : "2xcpu");
    if (dies) {
      options.trial.fault = {.rank = static_cast<int>(rng.Below(4)),
                             .at_post = static_cast<int64_t>(1 + rng.Below(40))};
    }
    if (layout == "roles") {
      options.roles = {*layout::ParseLayout("dp=1"), *layout::ParseLayout("dp=1")};
    } else {
      options.layout = *layout::ParseLayout(layout);
      options.trial.shift_every = options.layout->sp > 1 ? schedule::kFlipAtRandom : 0;
    }
    if (layout != "roles" && layout != "pp=2" && rng.Below(2) == 0) {
      options.limits.kv_blocks = 14;
      options.tier = {.host_bytes = 64 << 20, .preempt = layout::Preempting::kPark};
    }
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, layout));
    device::HazardChecker checker;
    options.trial.checker = &checker;
    testing_support::ListSink sink;
    runtime::VirtualRuntime runtime(seed);
    const base::Status status = runtime.Run([&] {
      auto engine = choose::CreateEngine(runtime, options, files_, nullptr);
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      TrafficSource source(requests_, static_cast<int>(rng.Below(6)));
      RunControl control;
      bool ended = false;
      const auto cancelling = runtime.Spawn({.name = "cancels"}, [&] {
        for (int i = 0; i < 4 && !ended; ++i) {
          runtime.Sleep(static_cast<runtime::TimeNs>(rng.Below(200'000)));
          if (ended || source.given().empty()) continue;
          const int64_t id = source.given()[rng.Below(source.given().size())];
          const auto of_it = [id](const RequestResult& result) { return result.id == id; };
          if (std::ranges::none_of(sink.results, of_it)) (*engine)->Cancel(id);
        }
      });
      EXPECT_EQ((*engine)->Run(source, sink, control), RunEnd::kComplete);
      ended = true;
      cancelling->Join();
      const EngineStats stats = (*engine)->stats();
      counted["preemptions"] += stats.preemptions;
      counted["stolen"] += stats.requests_stolen;
      counted["handed over"] += stats.requests_handed_over;
      counted["parks"] += stats.counter("kv_parks").value_or(0);
      counted["returned"] += stats.requests_returned;
      if (!(*engine)->failed()) ExpectAllGivenBack(**engine);
    });
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_TRUE(checker.status().ok()) << checker.status().ToString();
    ASSERT_EQ(sink.results.size(), requests_.size());
    for (const RequestResult& result : sink.results) {
      if (result.error_code == engine::kRequestCancelled.name) {
        ++cancelled;
        continue;
      }
      ASSERT_EQ(result.error_message, "");
      for (const Choice& choice : result.choices) {
        const std::pair answer(choice.tokens, choice.digest);
        ASSERT_EQ(answer, expected.at({result.id, choice.index}));
      }
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(cancelled, 3);
  for (const auto& [what, count] : counted) EXPECT_GT(count, 3) << what;
}

// A burst that comes with a batch's last line, while the whole batch is cancelled, and as a group
// dies: each request has one result, and who was not cancelled has the answer that it has alone.
TEST_P(TrafficTest, BurstsAtABatchsEnd) {
  requests_.resize(12);
  for (Request& request : requests_) request.sampling.max_tokens = 2 + request.id % 7;
  const Answers expected = Run("cpu", "");
  options_.policy = *schedule::FindPolicy("interactive");
  options_.limits.max_num_seqs = 3;
  options_.trial.max_virtual_delay = 200;
  int64_t cancelled = 0, returned = 0, preempted = 0;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    enum Trouble { kLastLine, kCancelled, kDies };
    const auto trouble = static_cast<Trouble>(seed % 3);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    layout::EngineOptions options = options_;
    options.trial.delay_seed = seed;
    options.layout = *layout::ParseLayout(trouble == kDies ? "groups=2,tp=2" : "dp=2");
    options.machine.devices = *layout::ParseDevices(trouble == kDies ? "4xcpu" : "2xcpu");
    if (trouble == kDies) {
      options.trial.fault = {.rank = static_cast<int>(seed / 3 % 4),
                             .at_post = static_cast<int64_t>(8 + 5 * seed)};
    }
    ListSink sink;
    runtime::VirtualRuntime runtime(seed);
    const base::Status status = runtime.Run([&] {
      auto engine = choose::CreateEngine(runtime, options, files_, nullptr);
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      TrafficSource source(requests_, 0);
      RunControl control;
      bool ended = false;
      const auto cancels = runtime.Spawn({.name = "cancels"}, [&] {
        while (trouble == kCancelled && !ended && source.remaining() > 0) runtime.Sleep(1000);
        if (trouble != kCancelled || ended) return;
        for (const Request& request : requests_) {
          const auto of_it = [&](const RequestResult& result) { return result.id == request.id; };
          if (request.service == Service::kBatch && std::ranges::none_of(sink.results, of_it))
            (*engine)->Cancel(request.id);
        }
      });
      EXPECT_EQ((*engine)->Run(source, sink, control), RunEnd::kComplete);
      ended = true;
      cancels->Join();
      returned += (*engine)->stats().requests_returned;
      preempted += (*engine)->stats().preemptions;
      if (!(*engine)->failed()) ExpectAllGivenBack(**engine);
    });
    ASSERT_TRUE(status.ok()) << status.ToString();
    ASSERT_EQ(sink.results.size(), requests_.size());
    std::set<int64_t> ids;
    for (const RequestResult& result : sink.results) {
      EXPECT_TRUE(ids.insert(result.id).second) << result.id;
      if (result.error_code == engine::kRequestCancelled.name) {
        ++cancelled;
        EXPECT_EQ(requests_[static_cast<size_t>(result.id)].service, Service::kBatch);
        continue;
      }
      ASSERT_EQ(result.error_message, "");
      for (const Choice& choice : result.choices) {
        const std::pair answer(choice.tokens, choice.digest);
        ASSERT_EQ(answer, expected.at({result.id, choice.index}));
      }
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(cancelled, 0);
  EXPECT_GT(returned, 0);
  EXPECT_GT(preempted, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, TrafficTest, testing::Values("llama3-gqa"));

}  // namespace
}  // namespace forebay

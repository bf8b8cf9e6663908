// A group that dies: its requests go to groups that live, and none is lost, doubled or changed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>

#include "base/rng.h"
#include "runtime/virtual/virtual_runtime.h"
#include "testing/layout_fixture.h"

namespace forebay {
namespace {

// Gives requests a few at a time, and stays open until all have ended.
class SlowSource final : public RequestSource {
 public:
  SlowSource(runtime::Runtime& runtime, std::vector<Request> requests, uint64_t seed)
      : runtime_(runtime), requests_(requests.begin(), requests.end()), rng_(seed) {}

  std::optional<Request> Next(bool wait) override {
    if (wait) runtime_.Sleep(100'000);
    if (requests_.empty() || rng_.Next() % 3 == 0) return std::nullopt;
    Request request = std::move(requests_.front());
    requests_.pop_front();
    return request;
  }
  bool ended() const override { return closed; }

  std::atomic<bool> closed{false};

 private:
  runtime::Runtime& runtime_;
  std::deque<Request> requests_;
  base::Rng rng_;
};

// Results, and what was told of the streams before them. Closes the source after the last one.
class StreamSink final : public testing_support::ListSink {
 public:
  StreamSink(size_t expected, std::atomic<bool>* closed) : expected_(expected), closed_(closed) {}
  void Progress(ChoicePiece piece) override {
    std::vector<int32_t>& tokens = told[{piece.id, piece.choice}];
    tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
  }
  bool Finish(RequestResult result) override {
    ListSink::Finish(std::move(result));
    if (closed_ && results.size() == expected_) *closed_ = true;
    return true;
  }

  std::map<std::pair<int64_t, int32_t>, std::vector<int32_t>> told;

 private:
  const size_t expected_;
  std::atomic<bool>* const closed_;  // null: the source ends by itself
};

struct Trial {
  std::string layout;
  schedule::WantedMode mode;
  fabric::FaultPlan fault;
  bool open = false;
};

Trial TrialOf(uint64_t seed) {
  base::Rng rng(seed);
  const auto below = [&](uint64_t count) { return static_cast<int>(rng.Next() % count); };
  constexpr const char* kLayouts[] = {"groups=2,dp=2,weights=by_layer,pool=3",
                                      "groups=2,dp=2,weights=striped,pool=3", "groups=2,tp=2",
                                      "groups=2,sp=2"};
  const schedule::WantedMode modes[] = {kPull, kShip, std::nullopt};
  const int layout = below(4);
  Trial trial{.layout = kLayouts[layout], .mode = modes[below(3)], .open = below(2) == 0};
  trial.fault.rank = below(4);
  (layout < 2 && below(2) == 0 ? trial.fault.at_pull : trial.fault.at_post) = 1 + below(60);
  return trial;
}

std::vector<Request> SimulatedRequests(uint64_t seed) {
  base::Rng rng(seed);
  std::vector<Request> requests(4 + rng.Next() % 24);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    request.id = request.line = static_cast<int64_t>(i);
    request.prompts = {std::vector<int32_t>(1 + rng.Next() % 60, 5)};
    request.n = rng.Next() % 4 == 0 ? 2 : 1;
    request.sampling.ignore_eos = true;
    request.ends_after = static_cast<int32_t>(1 + rng.Next() % 20);
    request.stream = rng.Next() % 2 == 0;
  }
  return requests;
}

struct Outcome {
  RunEnd end = RunEnd::kAborted;
  bool failed = false;
  int64_t returned = 0;
};

Outcome RunTrial(const Trial& trial, uint64_t seed, const engine::ModelFiles& files) {
  layout::EngineOptions options;
  options.model = golden::Path("models/llama3-gqa");
  options.machine.devices = *layout::ParseDevices("sim:4xh20");
  options.layout = *layout::ParseLayout(trial.layout);
  options.ship.mode = options.layout->pools() ? trial.mode : std::nullopt;
  options.ship.patience = 2;
  options.limits.max_model_len = 128;
  options.limits.max_num_seqs = 4;
  options.trial.fault = trial.fault;
  const std::vector<Request> requests = SimulatedRequests(seed);
  Outcome outcome;
  runtime::VirtualRuntime runtime(seed);
  const base::Status status = runtime.Run([&] {
    auto engine = choose::CreateEngine(runtime, options, files, nullptr);
    ASSERT_TRUE(engine.ok()) << engine.status().ToString();
    testing_support::ListSource all(requests);
    SlowSource slow(runtime, requests, seed);
    StreamSink sink(requests.size(), trial.open ? &slow.closed : nullptr);
    RunControl control;
    RequestSource& source = trial.open ? static_cast<RequestSource&>(slow) : all;
    outcome.end = (*engine)->Run(source, sink, control);
    outcome.failed = (*engine)->failed();
    outcome.returned = (*engine)->stats().requests_returned;
    ASSERT_EQ(sink.results.size(), requests.size());
    std::ranges::sort(sink.results, {}, &RequestResult::id);
    for (size_t i = 0; i < requests.size(); ++i) {
      const RequestResult& result = sink.results[i];
      ASSERT_EQ(result.id, requests[i].id);
      ASSERT_EQ(result.error_code, "");
      ASSERT_EQ(std::ssize(result.choices), requests[i].n);
      for (const Choice& choice : result.choices) {
        ASSERT_EQ(std::ssize(choice.tokens), requests[i].ends_after);
        if (requests[i].stream) {
          ASSERT_EQ((sink.told[{result.id, choice.index}]), choice.tokens);
        }
      }
    }
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return outcome;
}

TEST(DyingGroup, ItsRequestsGoToOthersOver1000Seeds) {
  const auto files = engine::OpenModel(golden::Path("models/llama3-gqa"), true, 0);
  ASSERT_TRUE(files.ok()) << files.status().ToString();
  testing::internal::CaptureStderr();
  int64_t failed = 0, returned = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    const Trial trial = TrialOf(seed);
    SCOPED_TRACE(fmt::format("seed {}: {} {}{}, fault of rank {} at pull {} or post {}", seed,
                             trial.layout, schedule::Name(trial.mode), trial.open ? " open" : "",
                             trial.fault.rank, trial.fault.at_pull, trial.fault.at_post));
    const Outcome outcome = RunTrial(trial, seed, *files);
    ASSERT_EQ(outcome.end, RunEnd::kComplete);
    failed += outcome.failed;
    returned += outcome.returned > 0;
    if (testing::Test::HasFatalFailure()) break;
  }
  testing::internal::GetCapturedStderr();
  EXPECT_GT(failed, 300);
  EXPECT_GT(returned, 200);
}

class DyingGroupTest : public LayoutTest {};

// Real kernels: tokens and digests are those of one rank.
TEST_P(DyingGroupTest, AnswersStayTheSameToTheBit) {
  const Answers expected = Run("cpu", "");
  const std::string layout =
      fmt::format("groups=2,dp=2,weights=by_layer,pool={}", files_.config.num_layers);
  int64_t returned = 0;
  for (const auto& [mode, fault] : {std::pair{kPull, fabric::FaultPlan{.rank = 1, .at_pull = 5}},
                                    {kPull, {.rank = 2, .at_pull = 9}},
                                    {kShip, {.rank = 3, .at_post = 9}}}) {
    options_.ship.mode = mode;
    options_.trial.fault = fault;
    EXPECT_EQ(Run("4xcpu", layout), expected) << fault.rank;
    returned += stats_.requests_returned;
  }
  // A group that dies may hold no request: which it takes depends on real time.
  EXPECT_GT(returned, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, DyingGroupTest, testing::Values("llama3-gqa"));

}  // namespace
}  // namespace forebay

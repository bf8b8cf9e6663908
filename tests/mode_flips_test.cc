// Ranks that change between pulling all experts, those that have rows, and shipping, on the virtual
// runtime with real kernels: whatever the interleaving, and whether ranks pause, are told to stop
// or die, what is finished has the digests of one rank, nobody overwrites what another one reads,
// and nobody waits for ever.
#include <gmock/gmock.h>

#include <algorithm>

#include "base/rng.h"
#include "choose/create_engine.h"
#include "runtime/virtual/virtual_runtime.h"
#include "testing/layout_fixture.h"

namespace forebay {
namespace {

enum class Trouble : uint8_t { kNone, kAbort, kDrain, kFault };

struct Trial {
  int ranks = 2;
  std::string layout;
  schedule::WantedMode mode;
  int flip_every = 0;
  int64_t routed_threshold = 0;
  bool by_matrix = false;
  int64_t look_ahead = 1;
  uint64_t slice_bytes = 4096;
  int32_t expert_rows = 2048;
  Trouble trouble = Trouble::kNone;
  size_t after_results = 0;  // kAbort, kDrain
  fabric::FaultPlan fault;   // kFault
};

Trial TrialOf(uint64_t seed) {
  base::Rng rng(seed);
  const auto below = [&](uint64_t count) { return static_cast<int>(rng.Next() % count); };
  Trial trial{.ranks = 2 + below(3)};
  // The least size, and one with redundancy: of eight experts, or of four where replicas are two
  // ranks that have half of them each.
  const int tp = trial.ranks == 4 && seed % 3 == 0 ? 2 : 1;
  constexpr int kLarger[] = {5, 6, 5};
  trial.layout = fmt::format("dp={},tp={},experts=by_expert", trial.ranks / tp, tp);
  const int larger = tp == 2 ? 3 : kLarger[trial.ranks - 2];
  if (below(2) == 0) trial.layout += fmt::format(",expert-size={}", larger);
  const schedule::WantedMode modes[] = {kRouted, kShip, kShip, kPull, std::nullopt};
  trial.mode = modes[below(5)];
  trial.flip_every = below(4);
  trial.routed_threshold = below(3) * 3;
  trial.by_matrix = below(2) == 0;
  trial.look_ahead = 1 + below(3);
  trial.slice_bytes = below(2) == 0 ? 4096 : 1 << 20;
  trial.expert_rows = below(2) == 0 ? 3 : 2048;
  trial.trouble = static_cast<Trouble>(below(8) < 4 ? 0 : 1 + below(3));
  trial.after_results = static_cast<size_t>(1 + below(5));
  trial.fault.rank = below(static_cast<uint64_t>(trial.ranks));
  (below(2) == 0 ? trial.fault.at_pull : trial.fault.at_post) = 1 + below(60);
  return trial;
}

// What a paused rank's stream does.
struct PauseArgs {
  runtime::Runtime* runtime;
  runtime::TimeNs time;
};
void Pause(const PauseArgs& args, const device::WorkerContext&) { args.runtime->Sleep(args.time); }

// Stops the run after so many results.
class StoppingSink final : public testing_support::ListSink {
 public:
  StoppingSink(const Trial& trial, RunControl& control) : trial_(trial), control_(control) {}
  bool Finish(RequestResult result) override {
    ListSink::Finish(std::move(result));
    if (results.size() == trial_.after_results) {
      if (trial_.trouble == Trouble::kAbort) control_.abort = true;
      if (trial_.trouble == Trouble::kDrain) control_.drain = true;
    }
    return true;
  }

 private:
  const Trial& trial_;
  RunControl& control_;
};

// When results came, and something that is done when the first does.
class TimingSink final : public testing_support::ListSink {
 public:
  TimingSink(runtime::Runtime& runtime, std::function<void()> at_first)
      : runtime_(runtime), at_first_(std::move(at_first)) {}
  bool Finish(RequestResult result) override {
    if (results.empty()) at_first_();
    times.emplace_back(result.id, runtime_.Now());
    return ListSink::Finish(std::move(result));
  }
  std::vector<std::pair<int64_t, runtime::TimeNs>> times;  // by request

 private:
  runtime::Runtime& runtime_;
  const std::function<void()> at_first_;
};

class ModeFlipsTest : public LayoutTest {
 protected:
  struct Outcome {
    base::Status status, hazard;
    RunEnd end = RunEnd::kComplete;
    Answers answers;
    int64_t cancelled = 0;
    EngineStats stats;
  };

  // A rank pauses, or a request that is the engine's is given up.
  void Disturb(runtime::Runtime& runtime, engine::LocalEngine& engine,
               const testing_support::ListSource& source, const StoppingSink& sink,
               base::Rng& rng) {
    const auto replica =
        static_cast<int>(rng.Next() % static_cast<uint64_t>(engine.num_replicas()));
    const auto time = static_cast<runtime::TimeNs>(rng.Next() % 50'000);
    engine.replica(replica).ranks()[0]->device().compute().Enqueue(
        device::MakeOperation<&Pause>({.label = "pause"}, PauseArgs{&runtime, time}));
    const int64_t given = static_cast<int64_t>(requests_.size()) - source.remaining();
    if (given == 0 || rng.Next() % 16 != 0) return;
    const auto id = static_cast<int64_t>(rng.Next() % static_cast<uint64_t>(given));
    const auto of_it = [id](const RequestResult& result) { return result.id == id; };
    if (std::ranges::none_of(sink.results, of_it)) engine.Cancel(id);
  }

  Outcome RunVirtual(const Trial& trial, uint64_t seed) {
    layout::EngineOptions options = options_;
    options.machine.devices = *layout::ParseDevices(fmt::format("{}xcpu", trial.ranks));
    options.layout = *layout::ParseLayout(trial.layout);
    options.ship.mode = trial.mode;
    options.ship.patience = 2;
    options.ship.routed_threshold = trial.routed_threshold;
    options.ship.rounds.expert_rows = trial.expert_rows;
    options.pool.by_matrix = trial.by_matrix;
    options.pool.slots.look_ahead_layers = trial.look_ahead;
    options.pool.slice_bytes = trial.slice_bytes;
    options.steal = layout::Stealing::kAlways;
    options.trial.flip_every = trial.flip_every;
    options.trial.max_virtual_delay = 200;
    options.trial.delay_seed = seed;
    if (trial.trouble == Trouble::kFault) options.trial.fault = trial.fault;
    device::HazardChecker checker;
    options.trial.checker = &checker;
    Outcome outcome;
    runtime::VirtualRuntime runtime(seed);
    outcome.status = runtime.Run([&] {
      auto engine = choose::CreateEngine(runtime, options, files_, nullptr);
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      testing_support::ListSource source(requests_);
      RunControl control;
      StoppingSink sink(trial, control);
      bool ended = false;
      const auto disturbing = runtime.Spawn({.name = "disturbances"}, [&] {
        base::Rng rng(seed);
        for (int i = 0; i < 30 && !ended; ++i) {
          runtime.Sleep(static_cast<runtime::TimeNs>(rng.Next() % 20'000));
          Disturb(runtime, **engine, source, sink, rng);
        }
      });
      outcome.end = (*engine)->Run(source, sink, control);
      ended = true;
      disturbing->Join();
      for (const RequestResult& result : sink.results) {
        const bool cancelled = result.error_code == engine::kRequestCancelled.name;
        outcome.cancelled += cancelled;
        if (!cancelled) {
          EXPECT_EQ(result.error_message, "");
        }
        for (const Choice& choice : result.choices)
          outcome.answers[{result.id, choice.index}] = {choice.tokens, choice.digest};
      }
      outcome.stats = (*engine)->stats();
    });
    outcome.hazard = checker.status();
    return outcome;
  }
};

class PauseTest : public ModeFlipsTest {
 protected:
  static constexpr runtime::TimeNs kPause = 3'000'000'000;
  struct Paused {
    RunEnd end = RunEnd::kComplete;
    Answers answers;
    // When the last result of each rank came, and how long each rank's stream was held.
    std::array<runtime::TimeNs, 2> last{};
    std::array<double, 2> waited{};
  };

  // Rank 1's stream pauses when the first result has come.
  Paused RunPaused(const StepMode& mode, double stall_seconds) {
    layout::EngineOptions options = options_;
    options.machine.devices = *layout::ParseDevices("2xcpu");
    options.layout = *layout::ParseLayout("dp=2,experts=by_expert");
    options.ship.mode = mode;
    options.stall_seconds = stall_seconds;
    options.trial.max_virtual_delay = 200;
    Paused outcome;
    runtime::VirtualRuntime runtime(7);
    const base::Status status = runtime.Run([&] {
      auto engine = choose::CreateEngine(runtime, options, files_, nullptr);
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      (*engine)->ReplayHandOut(&hand_out_);
      const auto stream_of = [&](int rank) {
        device::Device& device = (*engine)->replica(rank).ranks()[0]->device();
        return std::pair<device::Device&, device::Stream&>(device, device.compute());
      };
      TimingSink sink(runtime, [&] {
        stream_of(1).second.Enqueue(
            device::MakeOperation<&Pause>({.label = "pause"}, PauseArgs{&runtime, kPause}));
      });
      testing_support::ListSource source(requests_);
      RunControl control;
      outcome.end = (*engine)->Run(source, sink, control);
      for (const auto& [id, time] : sink.times) outcome.last[static_cast<size_t>(id % 2)] = time;
      for (const int rank : {0, 1}) {
        const auto& [device, stream] = stream_of(rank);
        outcome.waited[static_cast<size_t>(rank)] = device.TimeOf(stream).waits.total();
      }
      for (const RequestResult& result : sink.results) {
        for (const Choice& choice : result.choices)
          outcome.answers[{result.id, choice.index}] = {choice.tokens, choice.digest};
      }
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
    return outcome;
  }
};

// Who ships waits for a rank that pauses, and who pulls does not notice; nothing else changes.
TEST_P(PauseTest, HoldsThoseWhoMeetAlone) {
  requests_.resize(10);
  const Answers expected = Run("cpu", "");
  HandOutInTurn(2);
  for (const StepMode& mode : {kPull, kRouted, kShip}) {
    SCOPED_TRACE(schedule::Name(mode));
    const Paused paused = RunPaused(mode, 60);
    EXPECT_EQ(paused.end, RunEnd::kComplete);
    EXPECT_EQ(paused.answers, expected);
    EXPECT_GT(paused.last[1], kPause);
    const bool meets = mode.meets();
    EXPECT_EQ(paused.last[0] > kPause, meets) << paused.last[0];
    EXPECT_EQ(paused.waited[0] > 1e-9 * kPause - 0.1, meets) << paused.waited[0];
    EXPECT_EQ(paused.waited[0] < 0.1, !meets) << paused.waited[0];
  }
}

TEST_P(PauseTest, TheWatchdogNamesRankAndLayer) {
  requests_.resize(10);
  HandOutInTurn(2);
  testing::internal::CaptureStderr();
  const Paused paused = RunPaused(kShip, 1);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(paused.end, RunEnd::kStalled);
  EXPECT_THAT(said, testing::HasSubstr("did not finish in 1.0s [step_timeout]"));
  EXPECT_THAT(said, testing::HasSubstr(
                        "; rank 0 compute in layer 0 waits for 'rank 1 for rank 0, channel 5'"));
  EXPECT_THAT(said, testing::HasSubstr("; rank 1 compute runs 'pause'"));
}

INSTANTIATE_TEST_SUITE_P(Models, PauseTest, testing::Values("qwen3-moe"));

TEST_P(ModeFlipsTest, SeededInterleavings) {
  requests_.resize(10);
  for (Request& request : requests_) request.sampling.max_tokens = 1 + request.id % 6;
  const Answers expected = Run("cpu", "");
  std::map<std::string, int64_t> steps;
  int64_t faults = 0, stopped = 0, cancelled = 0, parts = 0;
  for (uint64_t seed = 0; seed < 48; ++seed) {
    const Trial trial = TrialOf(seed);
    SCOPED_TRACE(fmt::format("seed {}: {} {}", seed, trial.layout, schedule::Name(trial.mode)));
    Outcome outcome = RunVirtual(trial, seed);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    ASSERT_TRUE(outcome.hazard.ok()) << outcome.hazard.ToString();
    for (const auto& [choice, answer] : outcome.answers) ASSERT_EQ(answer, expected.at(choice));
    if (outcome.end == RunEnd::kComplete && outcome.cancelled == 0) {
      ASSERT_EQ(outcome.answers.size(), expected.size());
    }
    cancelled += outcome.cancelled;
    switch (trial.trouble) {
      case Trouble::kNone: ASSERT_EQ(outcome.end, RunEnd::kComplete); break;
      case Trouble::kFault: faults += outcome.end == RunEnd::kStalled; break;
      default: stopped += outcome.end != RunEnd::kComplete; break;
    }
    for (const StepMode& mode : {kPull, kRouted, kShip})
      steps[std::string(schedule::Name(mode))] +=
          outcome.stats.mode_counters[schedule::StepsCounter(mode)];
    parts += trial.layout.find("tp=2") != std::string::npos;
  }
  for (const auto& [mode, count] : steps) EXPECT_GT(count, 100) << mode;
  EXPECT_GE(faults, 3);
  EXPECT_GT(stopped, 3);
  EXPECT_GT(cancelled, 3);
  EXPECT_GT(parts, 3);
}

INSTANTIATE_TEST_SUITE_P(Models, ModeFlipsTest, testing::Values("qwen3-moe"));

}  // namespace
}  // namespace forebay

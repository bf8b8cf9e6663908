// The simulated CPU makes the plans that the real one made: the same trace and limits give the same
// steps.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/units.h"
#include "choose/create_engine.h"
#include "runtime/real/real_runtime.h"
#include "testing/golden_files.h"
#include "trace/job_lengths.h"
#include "trace/simulation.h"
#include "trace/trace_source.h"

namespace forebay {
namespace {

struct Case {
  const char* name;
  const char* trace;
  int32_t max_num_seqs, max_num_batched_tokens, kv_blocks;
  const char* policy = "continuous";
  const char* layout = nullptr;  // of ranks that decide by zen4's prices, the real ones too
  schedule::WantedMode mode = {};
  // For weights that ranks share: a model with more of them, in so much memory of both ranks, whose
  // job is known before it runs. 0: neither.
  uint64_t memory_bytes = 0;
};

// Twelve layers of which the feed-forward is most.
std::string WideModel() {
  const std::string folder = testing::TempDir() + "/replay_wide";
  std::filesystem::create_directories(folder);
  std::ifstream narrow(golden::Path("models/llama3-gqa/config.json"));
  std::string text{std::istreambuf_iterator<char>(narrow), {}};
  const auto replace = [&](const char* from, const char* to) {
    const size_t at = text.find(from);
    FB_CHECK(at != std::string::npos, "the configuration has no {}", from);
    text.replace(at, std::strlen(from), to);
  };
  replace("\"num_hidden_layers\": 3", "\"num_hidden_layers\": 12");
  replace("\"intermediate_size\": 112", "\"intermediate_size\": 1024");
  std::ofstream(folder + "/config.json") << text;
  return folder;
}

class Steps : public StepObserver {
 public:
  void OnStep(const StepRecord& record) override { records.push_back(record); }
  std::vector<StepRecord> records;
};

struct Outcome {
  std::vector<StepRecord> steps;
  job::JobSummary summary;
};

layout::EngineOptions OptionsOf(const Case& test, const std::string& devices) {
  layout::EngineOptions options;
  options.model = golden::Path("models/llama3-gqa");
  options.machine.devices = *layout::ParseDevices(devices);
  options.machine.memory_bytes = 256 << 20;
  options.limits.max_model_len = 256;
  options.limits.max_num_seqs = test.max_num_seqs;
  options.limits.max_num_batched_tokens = test.max_num_batched_tokens;
  options.limits.kv_blocks = test.kv_blocks;
  options.policy = *schedule::FindPolicy(test.policy);
  options.ship.mode = test.mode;
  if (test.memory_bytes > 0) {
    options.model = WideModel();
    options.random_weights = true;
    options.machine.memory_bytes = test.memory_bytes;
    options.pool.slice_bytes = base::kMiB;
  }
  if (test.layout) {
    options.layout = *layout::ParseLayout(test.layout);
    if (!layout::RequireSimulated(options.machine.devices).ok())
      options.machine.device_profile = "zen4";
  }
  options.machine.threads = 2;
  options.seed = 5;
  return options;
}

Outcome RunReal(const Case& test, const std::string& devices,
                layout::Stealing steal = layout::Stealing::kAuto) {
  const trace::LengthTrace trace = *trace::ReadTrace(test.trace, {});
  layout::EngineOptions options = OptionsOf(test, devices);
  options.steal = steal;
  if (test.memory_bytes > 0) trace::DescribeTrace(trace, &options);
  const auto runtime = runtime::CreateRealRuntime();
  const auto files = engine::OpenModel(options.model, options.random_weights, options.seed);
  const auto engine = choose::CreateEngine(*runtime, options, *files, nullptr);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  Steps steps;
  (*engine)->SetStepObserver(&steps);
  RunControl control;
  trace::TraceSource source(trace, (*engine)->facts(), options.seed, control);
  const auto run = trace::RunCounted(*runtime, **engine, source, control);
  EXPECT_TRUE(run.ok()) << run.status().ToString();
  return {std::move(steps.records), run->summary};
}

Outcome RunSimulated(const Case& test, const std::string& devices, bool full_detail = false,
                     const engine::HandOutLog* hand_out = nullptr) {
  const trace::LengthTrace trace = *trace::ReadTrace(test.trace, {});
  trace::SimulationOptions options{
      .engine = OptionsOf(test, devices), .trace = &trace, .record_steps = true};
  options.engine.machine.full_detail = full_detail;
  options.hand_out = hand_out;
  if (hand_out) options.engine.steal = layout::Stealing::kOff;
  auto result = trace::Simulate(options);
  EXPECT_TRUE(result.ok()) << result.status().ToString();
  return {std::move(result->steps), result->run.summary};
}

// All of a step but its times.
void ExpectSamePlans(const Outcome& real, const Outcome& simulated) {
  ASSERT_EQ(real.steps.size(), simulated.steps.size());
  for (size_t i = 0; i < real.steps.size(); ++i) {
    const StepRecord &a = real.steps[i], &b = simulated.steps[i];
    ASSERT_EQ(a.plan_hash, b.plan_hash) << "step " << i;
    ASSERT_EQ(a.decode_rows, b.decode_rows) << "step " << i;
    ASSERT_EQ(a.prefill_rows, b.prefill_rows) << "step " << i;
    ASSERT_EQ(a.context_tokens, b.context_tokens) << "step " << i;
    ASSERT_EQ(a.kv_blocks_used, b.kv_blocks_used) << "step " << i;
    ASSERT_EQ(a.running, b.running) << "step " << i;
    ASSERT_EQ(a.waiting, b.waiting) << "step " << i;
    ASSERT_EQ(a.admitted, b.admitted) << "step " << i;
    ASSERT_EQ(a.preempted, b.preempted) << "step " << i;
    ASSERT_EQ(a.finished, b.finished) << "step " << i;
    ASSERT_EQ(a.mode, b.mode) << "step " << i;
  }
  EXPECT_EQ(real.summary.prompt_tokens, simulated.summary.prompt_tokens);
  EXPECT_EQ(real.summary.output_tokens, simulated.summary.output_tokens);
  EXPECT_EQ(real.summary.stats.preemptions, simulated.summary.stats.preemptions);
  EXPECT_EQ(real.summary.stats.recomputed_tokens, simulated.summary.stats.recomputed_tokens);
  EXPECT_EQ(real.summary.stats.cached_prompt_tokens, simulated.summary.stats.cached_prompt_tokens);
  EXPECT_EQ(real.summary.stats.prefix_blocks_hit, simulated.summary.stats.prefix_blocks_hit);
}

constexpr Case kCases[] = {
    {"mixed", "synthetic:n=60,prompt=uniform(3,90),output=uniform(1,40),seed=1", 16, 256, 1000},
    {"chunked_prefill", "synthetic:n=30,prompt=uniform(60,200),output=uniform(1,30),seed=2", 8, 32,
     1000},
    {"preempting", "synthetic:n=40,prompt=uniform(20,60),output=uniform(30,120),seed=3", 16, 128,
     24},
    {"prefix_shared",
     "synthetic:n=40,prompt=uniform(100,150),output=uniform(1,20),shared=96,seed=4", 8, 128, 200},
    {"prefix_shared_preempting",
     "synthetic:n=40,prompt=uniform(70,90),output=uniform(60,120),shared=64,seed=5", 12, 128, 18},
    {"choices", "synthetic:n=20,prompt=uniform(40,100),output=uniform(1,40),choices=3,seed=6", 12,
     128, 400},
    {"choices_preempting",
     "synthetic:n=20,prompt=uniform(40,100),output=uniform(30,100),choices=3,seed=7", 12, 128, 28},
    {"batch_of_one", "synthetic:n=6,prompt=uniform(3,90),output=uniform(1,40),seed=8", 1, 64, 100},
    {"static_batch", "synthetic:n=40,prompt=uniform(3,90),output=uniform(1,40),seed=9", 8, 128, 200,
     "static_batch"},
};

class Replay : public testing::TestWithParam<Case> {};

TEST_P(Replay, PlansAreTheRealOnes) {
  const Outcome real = RunReal(GetParam(), "cpu");
  ExpectSamePlans(real, RunSimulated(GetParam(), "sim:zen4"));
  const std::string_view name = GetParam().name;
  // The case tests what its name says.
  EXPECT_EQ(real.summary.stats.preemptions > 0, name.ends_with("preempting"));
  if (name.starts_with("prefix") || name.starts_with("choices")) {
    EXPECT_GT(real.summary.stats.prefix_blocks_hit, 0);
  }
}

TEST_P(Replay, EveryLayerInFullGivesTheSameSteps) {
  const Outcome jump = RunSimulated(GetParam(), "sim:zen4"),
                full = RunSimulated(GetParam(), "sim:zen4", true);
  ExpectSamePlans(full, jump);
  for (size_t i = 0; i < full.steps.size(); ++i) {
    ASSERT_NEAR(full.steps[i].end_seconds, jump.steps[i].end_seconds,
                1e-9 * full.steps[i].end_seconds)
        << "step " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, Replay, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// Two ranks that cut a step's rows, or heads and columns where it has few.
TEST(ReplayModes, EachStepTakesTheRealMode) {
  constexpr Case kTest = {
      "shifting", "synthetic:n=60,prompt=uniform(3,90),output=uniform(1,60),seed=10",
      24,         128,
      1000,       "continuous",
      "sp=2"};
  const Outcome real = RunReal(kTest, "2xcpu");
  ExpectSamePlans(real, RunSimulated(kTest, "sim:2xzen4"));
  const auto steps_in = [&](int sp, int tp) {
    return std::ranges::count(real.steps, StepMode{.degrees = {sp, tp}}, &StepRecord::mode);
  };
  EXPECT_GT(steps_in(2, 1), 5);
  EXPECT_GT(steps_in(1, 2), 5);
  EXPECT_EQ(steps_in(2, 1) + steps_in(1, 2), std::ssize(real.steps));
}

// Runs the same in both details, whose times may differ by so much of the job's; returns the
// counters of the job.
std::map<std::string, int64_t> ExpectTimesOfLayersInFull(const char* lengths, const char* layout,
                                                         schedule::WantedMode mode = {},
                                                         double tolerance = 1e-9) {
  const trace::LengthTrace trace = *trace::ReadTrace(lengths, {});
  trace::SimulationOptions options{.trace = &trace, .record_steps = true};
  options.engine.model = "builtin:Llama-3.1-70B";
  options.engine.layout = *layout::ParseLayout(layout);
  options.engine.machine.devices =
      *layout::ParseDevices(fmt::format("sim:{}xh200", options.engine.layout->ranks_per_group()));
  options.engine.machine.quantization.format = cost::NumberFormat::kFP8;
  options.engine.ship.mode = mode;
  // Which of two replicas whose steps end together takes the next request is drawn anew in each
  // detail: here none is left to take.
  if (mode) {
    options.engine.limits.max_num_seqs = 1;
    options.engine.steal = layout::Stealing::kOff;
  }
  const auto jump = trace::Simulate(options);
  options.engine.machine.full_detail = true;
  const auto full = trace::Simulate(options);
  FB_CHECK(jump.ok() && full.ok(), "{}{}", jump.status().ToString(), full.status().ToString());
  std::map<std::string, int64_t> counters = full->run.summary.stats.mode_counters,
                                 jump_counters = jump->run.summary.stats.mode_counters;
  for (auto* each : {&counters, &jump_counters})
    std::erase_if(
        *each, [](const auto& entry) { return entry.first.find("waited") != std::string::npos; });
  EXPECT_EQ(jump_counters, counters);
  EXPECT_EQ(jump->steps.size(), full->steps.size());
  if (jump->steps.size() != full->steps.size()) return counters;
  if (full->steps.empty()) return counters;
  const double near = tolerance * full->steps.back().end_seconds;
  double jump_waited = 0, full_waited = 0;
  // Steps that end together come in any order.
  std::multiset<uint64_t> jump_plans, full_plans;
  for (size_t i = 0; i < full->steps.size(); ++i) {
    const StepRecord &a = jump->steps[i], &b = full->steps[i];
    jump_plans.insert(a.plan_hash);
    full_plans.insert(b.plan_hash);
    EXPECT_NEAR(a.end_seconds, b.end_seconds, near) << "step " << i;
    // Where steps of stages overlap, one step may be told of what the next has waited.
    jump_waited += a.waits.total();
    full_waited += b.waits.total();
  }
  EXPECT_EQ(jump_plans, full_plans);
  EXPECT_NEAR(jump_waited, full_waited, near * static_cast<double>(full->steps.size()));
  return counters;
}

// Ranks that meet in every layer, requests that come over time.
class MeetingLayers : public testing::TestWithParam<const char*> {};

TEST_P(MeetingLayers, TakeTheTimeOfLayersInFull) {
  const auto counters = ExpectTimesOfLayersInFull(
      "synthetic:n=10,prompt=uniform(100,3000),output=uniform(5,30),rate=12", GetParam());
  EXPECT_GT(counters.at("meetings"), 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, MeetingLayers,
                         testing::Values("tp=8", "sp=8", "sp=4,tp=2", "sp=3,tp=2", "dp=4,tp=2",
                                         "pp=2,sp=2,tp=2"));

// Rows that go to the owners of all layers, of every fourth and of layers in turn; some ranks have
// none. Layers of a rank's own between them are one sum, as if what copies beside did so evenly.
class ShippedLayers : public testing::TestWithParam<std::pair<const char*, double>> {};

TEST_P(ShippedLayers, TakeTheTimeOfLayersInFull) {
  const auto counters = ExpectTimesOfLayersInFull(
      "synthetic:n=9,prompt=uniform(20,200),output=uniform(2,12)", GetParam().first,
      StepMode{.ffn = FfnMode::kShip}, GetParam().second);
  EXPECT_GT(counters.at("steps_ship"), 0);
  EXPECT_GT(counters.at("bytes_shipped"), 0);
}

INSTANTIATE_TEST_SUITE_P(Layouts, ShippedLayers,
                         testing::Values(std::pair{"dp=8,weights=striped,pool=80", 1e-9},
                                         std::pair{"dp=4,weights=striped,pool=20", 1e-4},
                                         std::pair{"dp=4,weights=by_layer,pool=80", 1e-4},
                                         std::pair{"dp=2,tp=2,weights=striped,pool=40", 1e-4}));

std::vector<StepRecord> StepsOf(const Outcome& outcome, int replica) {
  std::vector<StepRecord> steps;
  std::ranges::copy_if(outcome.steps, std::back_inserter(steps),
                       [&](const StepRecord& step) { return step.replica == replica; });
  return steps;
}

// Which rank takes which request depends on the ranks' speeds: the simulator is given what the real
// run did, and makes its plans. Choices are not preempted here: one that comes back may find what
// another has drawn alike, and only the real run knows it.
class ReplayHandOut : public testing::TestWithParam<Case> {};

TEST_P(ReplayHandOut, EachRankMakesTheRealPlans) {
  const Outcome real = RunReal(GetParam(), "2xcpu", layout::Stealing::kOff);
  const engine::HandOutLog log = engine::LogHandOut(real.steps, 2);
  const Outcome simulated = RunSimulated(GetParam(), "sim:2xzen4", false, &log);
  for (int replica = 0; replica < 2; ++replica) {
    SCOPED_TRACE(replica);
    const Outcome of_real{StepsOf(real, replica), real.summary},
        of_simulated{StepsOf(simulated, replica), simulated.summary};
    EXPECT_FALSE(of_real.steps.empty());
    ExpectSamePlans(of_real, of_simulated);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ReplayHandOut,
                         testing::Values(kCases[0], kCases[1], kCases[2], kCases[4], kCases[5],
                                         kCases[8]),
                         [](const auto& info) { return info.param.name; });

// Ranks that share weights: as many layers are pooled by the forecast of the job, and each step
// takes the mode of the real one. All rounds of `--mode ship` are taken together, whichever rank is
// faster, and those with a step of more rows than a round ships pull.
constexpr uint64_t kShortMemory = 24 << 20;
constexpr StepMode kPull{.ffn = FfnMode::kPull}, kShip{.ffn = FfnMode::kShip};
constexpr const char* kStriped = "dp=2,weights=striped,pool=auto";
constexpr Case kPoolCases[] = {
    {"pulling", "synthetic:n=60,prompt=uniform(3,90),output=uniform(1,40),seed=1", 16, 64, 0,
     "continuous", kStriped, kPull, kShortMemory},
    {"left_open",
     "synthetic:n=60,prompt=uniform(3,90),output=uniform(1,40),seed=1",
     16,
     64,
     0,
     "continuous",
     kStriped,
     {},
     kShortMemory},
    {"shipping", "synthetic:n=40,prompt=uniform(3,90),output=uniform(20,60),seed=2", 16, 64, 0,
     "continuous", kStriped, kShip, kShortMemory},
};

// Ranks that go on alone begin to meet at the border that the faster one reaches first: from the
// first step on in which either run's ranks meet their modes are as different as their speeds.
void ForgetModesAfterMeeting(Outcome* real, Outcome* simulated) {
  const auto before = [](const Outcome& outcome) {
    return std::ranges::find_if(outcome.steps,
                                [](const StepRecord& step) { return step.mode.meets(); }) -
           outcome.steps.begin();
  };
  const auto first = static_cast<size_t>(std::min(before(*real), before(*simulated)));
  for (Outcome* each : {real, simulated})
    for (size_t i = first; i < each->steps.size(); ++i) each->steps[i].mode = {};
}

class ReplayPool : public testing::TestWithParam<Case> {};

TEST_P(ReplayPool, LayersAndModesAreTheRealOnes) {
  const Outcome real = RunReal(GetParam(), "2xcpu", layout::Stealing::kOff);
  const engine::HandOutLog log = engine::LogHandOut(real.steps, 2);
  const Outcome simulated = RunSimulated(GetParam(), "sim:2xzen4", false, &log);
  const auto layers = [](const Outcome& outcome) {
    return outcome.summary.stats.mode_counters.at("pool_layers");
  };
  EXPECT_EQ(layers(real), layers(simulated));
  EXPECT_GT(layers(real), 0);
  const auto steps_in = [&](FfnMode ffn) {
    return std::ranges::count(real.steps, ffn,
                              [](const StepRecord& step) { return step.mode.ffn; });
  };
  for (int replica = 0; replica < 2; ++replica) {
    SCOPED_TRACE(replica);
    Outcome of_real{StepsOf(real, replica), real.summary},
        of_simulated{StepsOf(simulated, replica), simulated.summary};
    if (!GetParam().mode) ForgetModesAfterMeeting(&of_real, &of_simulated);
    EXPECT_FALSE(of_real.steps.empty());
    ExpectSamePlans(of_real, of_simulated);
  }
  // The case tests what its name says.
  EXPECT_GT(steps_in(FfnMode::kPull), 5);
  if (GetParam().mode == kShip) {
    EXPECT_GT(steps_in(FfnMode::kShip), 5);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ReplayPool, testing::ValuesIn(kPoolCases),
                         [](const auto& info) { return info.param.name; });

TEST(ReplayGroup, SeveralRanksAgreeInTotals) {
  const Case& test = kCases[0];
  const Outcome real = RunReal(test, "2xcpu"), simulated = RunSimulated(test, "sim:2xzen4"),
                again = RunSimulated(test, "sim:2xzen4");
  EXPECT_EQ(real.summary.done, simulated.summary.done);
  EXPECT_EQ(real.summary.prompt_tokens, simulated.summary.prompt_tokens);
  EXPECT_EQ(real.summary.output_tokens, simulated.summary.output_tokens);
  EXPECT_EQ(real.summary.stats.computed_tokens, simulated.summary.stats.computed_tokens);
  int64_t second = 0;
  for (const StepRecord& step : simulated.steps) second += step.replica;
  EXPECT_GT(second, 0) << "both ranks work";
  ExpectSamePlans(simulated, again);
  for (size_t i = 0; i < again.steps.size(); ++i) {
    ASSERT_EQ(simulated.steps[i].end_seconds, again.steps[i].end_seconds);
    ASSERT_EQ(simulated.steps[i].replica, again.steps[i].replica);
  }
}

}  // namespace
}  // namespace forebay

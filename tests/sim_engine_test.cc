// The engine on simulated devices: the same queue, policy, book and layer program, in virtual time.
#include <gtest/gtest.h>

#include <fstream>

#include "cost/profile_writer.h"
#include "device/hazard_checker.h"
#include "engine/compose.h"
#include "engine/layout_plan.h"
#include "golden_files.h"
#include "runtime/virtual/virtual_runtime.h"
#include "tests_support/list_source.h"

namespace forebay {
namespace {

class Records : public StepObserver {
 public:
  void OnStep(const StepRecord& record) override { records.push_back(record); }
  std::vector<StepRecord> records;
};

Request MakeRequest(int64_t line, int32_t prompt_tokens, int32_t output_tokens) {
  Request request;
  request.line = line;
  request.prompts = {std::vector<int32_t>(static_cast<size_t>(prompt_tokens), 5)};
  request.prompts[0][0] = static_cast<int32_t>(line % 250);
  request.sampling.ignore_eos = true;
  request.ends_after = output_tokens;
  return request;
}

std::vector<Request> MakeRequests(int count) {
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) requests.push_back(MakeRequest(i, 10 + i * 7 % 90, 1 + i * 13 % 50));
  return requests;
}

struct Outcome {
  base::Status status;
  RunEnd end = RunEnd::kAborted;
  std::vector<RequestResult> results;
  std::vector<StepRecord> steps;
  EngineStats stats;
  ModelFacts facts;
  double virtual_seconds = 0;
};

Outcome RunSimulated(engine::EngineOptions options, std::vector<Request> requests) {
  Outcome outcome;
  runtime::VirtualRuntime runtime(options.seed);
  const auto files = engine::OpenModel(options.model, true, 0);
  const base::Status status = runtime.Run([&] {
    auto engine = engine::CreateEngine(runtime, options, *files, nullptr);
    outcome.status = engine.status();
    if (!engine.ok()) return;
    Records records;
    (*engine)->SetStepObserver(&records);
    testing_support::ListSource source(std::move(requests));
    testing_support::ListSink sink;
    RunControl control;
    outcome.end = (*engine)->Run(source, sink, control);
    outcome.results = std::move(sink.results);
    outcome.steps = std::move(records.records);
    outcome.stats = (*engine)->stats();
    outcome.facts = (*engine)->facts();
    outcome.virtual_seconds = static_cast<double>(runtime.Now()) * 1e-9;
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return outcome;
}

engine::EngineOptions Options(const std::string& devices) {
  engine::EngineOptions options;
  options.model = golden::Path("models/llama3-gqa");
  options.devices = devices;
  return options;
}

TEST(SimEngine, EightReplicasShareOneQueue) {
  const Outcome outcome = RunSimulated(Options("sim:8xh200"), MakeRequests(500));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_EQ(outcome.end, RunEnd::kComplete);
  ASSERT_EQ(outcome.results.size(), 500u);
  for (const RequestResult& result : outcome.results) {
    EXPECT_EQ(result.completion_tokens, 1 + result.line * 13 % 50) << result.line;
  }
  std::vector<int64_t> steps(8);
  for (const StepRecord& step : outcome.steps) ++steps[static_cast<size_t>(step.replica)];
  for (const int64_t count : steps) EXPECT_GT(count, 0);
  EXPECT_GT(outcome.virtual_seconds, 0);
}

TEST(SimEngine, TheSameSeedGivesTheSameRun) {
  const Outcome a = RunSimulated(Options("sim:4xa10"), MakeRequests(200));
  const Outcome b = RunSimulated(Options("sim:4xa10"), MakeRequests(200));
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].plan_hash, b.steps[i].plan_hash);
    EXPECT_EQ(a.steps[i].end_seconds, b.steps[i].end_seconds);
    EXPECT_EQ(a.steps[i].replica, b.steps[i].replica);
  }
}

// A long job's requests in random order, some ten times as long as others and one a hundred times: what its requests bound makes
// it shorter, also where they ask for twice what they use.
TEST(SimEngine, BoundsMakeAJobShorter) {
  const auto run = [](int bound) {
    std::vector<Request> requests;
    for (int i = 0; i < 500; ++i) {
      const int32_t output = i == 390 ? 8000 : i * 7 % 10 == 3 ? 2000 : 100 + i * 13 % 150;
      requests.push_back(MakeRequest(i, 300, output));
      if (bound > 0) requests.back().sampling.max_tokens = bound * output;
    }
    engine::EngineOptions options = Options("sim:4xh20");
    options.model = "builtin:Qwen3-32B";
    return RunSimulated(options, std::move(requests));
  };
  const double in_order = run(0).virtual_seconds;
  for (const int bound : {1, 2}) {
    const Outcome outcome = run(bound);
    EXPECT_EQ(outcome.results.size(), 500u);
    EXPECT_LT(outcome.virtual_seconds, 0.95 * in_order) << bound;
  }
}

TEST(SimEngine, KvCapacityIsWhatTheMemoryPlanLeaves) {
  engine::EngineOptions options = Options("sim:h200");
  options.memory_bytes = 8ull << 30;
  options.max_num_seqs = 1 << 16;
  const Outcome outcome = RunSimulated(options, MakeRequests(1));
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  const ModelFacts& facts = outcome.facts;
  const uint64_t runtime_bytes = 3'400'003'584;  // the profile's, in whole pages
  const uint64_t parts = facts.kv_bytes + facts.weight_bytes + facts.workspace_bytes + runtime_bytes;
  EXPECT_LE(parts, options.memory_bytes);
  EXPECT_GT(parts, options.memory_bytes - (1 << 20));
}

TEST(SimEngine, PooledWeightsMakeRoomForKv) {
  engine::EngineOptions options = Options("sim:4xh200");
  options.memory_bytes = 4 * (4ull << 30);
  options.max_num_seqs = 1 << 14;
  options.layout = "dp=4,weights=replicated";
  const Outcome replicated = RunSimulated(options, MakeRequests(100));
  options.layout = "dp=4,weights=by_layer,pool=3";
  const Outcome pooled = RunSimulated(options, MakeRequests(100));
  ASSERT_TRUE(pooled.status.ok()) << pooled.status.ToString();
  EXPECT_EQ(pooled.results.size(), 100u);
  EXPECT_LT(pooled.facts.weight_bytes, replicated.facts.weight_bytes);
  uint64_t pulled = 0;
  for (const StepRecord& step : pooled.steps) pulled += step.bytes_pulled;
  EXPECT_GT(pulled, 0u);
  EXPECT_STREQ(pooled.steps[0].mode, "pull");
}

// Ranks that run freely keep no distance. A stream an owner keeps every link busy nevertheless; pulls from one owner at a time
// end in a row of ranks behind one owner, while the others' links idle.
TEST(SimEngine, PullsFromAllOwnersFillTheLinks) {
  // Of a step, over what the link needs for its bytes.
  const auto ratio = [](bool stream_per_owner, const std::string& layout) {
    engine::EngineOptions options = Options("sim:8xh20");
    options.model = "builtin:Qwen3-32B";
    options.layout = layout;
    options.mode = "pull";
    options.pool.stream_per_owner = stream_per_owner;
    std::vector<Request> requests;
    for (int i = 0; i < 8; ++i) requests.push_back(MakeRequest(i, 100, 40));
    const Outcome outcome = RunSimulated(options, std::move(requests));
    double seconds = 0, bytes = 0;
    for (const StepRecord& step : outcome.steps) {
      if (step.step < 10 || step.step >= 30) continue;
      seconds += step.end_seconds - step.begin_seconds;
      bytes += static_cast<double>(step.bytes_pulled);
    }
    EXPECT_GT(bytes, 0);
    return seconds / (bytes / (0.8 * 450e9));
  };
  EXPECT_LT(ratio(true, "dp=8,pool=64,weights=by_layer"), 1.05);
  EXPECT_LT(ratio(true, "dp=8,pool=64,weights=striped"), 1.05);
  EXPECT_GT(ratio(false, "dp=8,pool=64,weights=by_layer"), 2.5);
}

// With a step a stage in flight no stage waits for another one's rows.
TEST(SimEngine, StepsInFlightFillThePipeline) {
  engine::EngineOptions options = Options("sim:4xh200");
  options.model = "builtin:Qwen3-32B";
  options.layout = "pp=4";
  std::vector<Request> requests;
  for (int i = 0; i < 256; ++i) requests.push_back(MakeRequest(i, 200, 60));
  const auto idle = [](const Outcome& outcome, int stage) {
    const auto counter = [&](const char* what) { return static_cast<double>(outcome.stats.mode_counters.at(fmt::format("stage{}_{}_ms", stage, what))); };
    return counter("idle") / (counter("idle") + counter("busy"));
  };
  const Outcome full = RunSimulated(options, requests);
  options.steps_in_flight = 1;
  const Outcome alone = RunSimulated(options, requests);
  ASSERT_EQ(full.results.size(), 256u);
  EXPECT_LT(full.virtual_seconds, 0.6 * alone.virtual_seconds);
  for (int stage = 0; stage < 4; ++stage) {
    EXPECT_LT(idle(full, stage), stage == 0 ? 0.25 : 0.4) << stage;  // the first has a step's host time too
    EXPECT_GT(idle(alone, stage), 0.65) << stage;
  }
  for (size_t i = 1; i < full.steps.size(); ++i) EXPECT_GE(full.steps[i].begin_seconds, full.steps[i - 1].end_seconds);
}

// A job's tail: fewer rows than ranks can hide the copies of Qwen3-32B behind, and at last fewer choices than ranks.
Outcome RunTail(const std::string& layout, const std::string& mode, const model::ShipOptions& ship = {}) {
  engine::EngineOptions options = Options("sim:8xh200");
  options.model = "builtin:Qwen3-32B";
  options.layout = layout;
  options.mode = mode;
  options.ship = ship;
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(MakeRequest(i, 100, 40 + i * 37 % 100));
  Outcome outcome = RunSimulated(options, std::move(requests));
  EXPECT_TRUE(outcome.status.ok()) << outcome.status.ToString();
  EXPECT_EQ(outcome.results.size(), 12u);
  return outcome;
}

TEST(SimEngine, TheTailShips) {
  for (const std::string placement : {"by_layer", "striped"}) {
    const std::string layout = "dp=8,pool=64,weights=" + placement;
    const Outcome pulls = RunTail(layout, "pull"), ships = RunTail(layout, "ship");
    EXPECT_STREQ(pulls.steps.back().mode, "pull");
    EXPECT_STREQ(ships.steps.back().mode, "ship");
    EXPECT_LT(ships.virtual_seconds, 0.5 * pulls.virtual_seconds);
    EXPECT_GT(ships.stats.mode_counters.at("rows_skipped"), 0);
    const Outcome once_more = RunTail(layout, "ship");
    ASSERT_EQ(once_more.steps.size(), ships.steps.size());
    for (size_t i = 0; i < ships.steps.size(); ++i) EXPECT_EQ(once_more.steps[i].end_seconds, ships.steps[i].end_seconds);
  }
}

// Each of the paper's steps (SiDP, figure 14) makes the tail shorter.
TEST(SimEngine, FusionAndSkippingPay) {
  const std::string layout = "dp=8,weights=by_layer,pool=64";
  const double rank_by_rank = RunTail(layout, "ship", {.fuse = false, .skip_idle = false}).virtual_seconds;
  const double fused = RunTail(layout, "ship", {.fuse = true, .skip_idle = false}).virtual_seconds;
  const double skipping = RunTail(layout, "ship").virtual_seconds;
  EXPECT_LT(fused, rank_by_rank);
  EXPECT_LE(skipping, fused);
}

// Faster compute hides less of the same copies. An owner of whole layers computes with everybody's rows, which takes longer.
TEST(SimEngine, TheThresholdFollowsTheDevice) {
  const auto threshold = [](const std::string& devices, const std::string& layout) {
    engine::EngineOptions options = Options(devices);
    options.model = "builtin:Qwen3-32B";
    options.layout = layout;
    options.ship.rows = 1 << 20;
    options.max_num_seqs = options.max_num_batched_tokens = 1 << 14;
    const auto files = engine::OpenModel(options.model, true, 0);
    const auto plan = engine::PlanLayout(options, files->config);
    EXPECT_TRUE(plan.ok() && plan->group) << plan.status().ToString();
    const double rows = plan.ok() && plan->group ? plan->group->threshold : 0;
    RecordProperty("rows_" + devices.substr(6) + (layout.back() == 'r' ? "_by_layer" : "_striped"), std::to_string(rows));
    return rows;
  };
  for (const char* devices : {"sim:8xh20", "sim:8xh200"}) {
    const double by_layer = threshold(devices, "dp=8,weights=by_layer,pool=64"), striped = threshold(devices, "dp=8,weights=striped,pool=64");
    EXPECT_GT(by_layer, 1) << devices;
    EXPECT_GT(striped, by_layer) << devices;
    EXPECT_LT(striped, 1 << 14) << devices;
  }
  EXPECT_GT(threshold("sim:8xh200", "dp=8,weights=striped,pool=64"), threshold("sim:8xh20", "dp=8,weights=striped,pool=64"));
}

TEST(SimEngine, AutoSwitchesToShippingInTheTail) {
  const Outcome outcome = RunTail("dp=8,weights=by_layer,pool=64", "auto");
  EXPECT_STREQ(outcome.steps.front().mode, "pull");
  EXPECT_STREQ(outcome.steps.back().mode, "ship");
}

// Nobody overwrites what another one still reads, in whatever way weights are reached and requests are handed on.
TEST(SimEngine, LayoutsRunCleanUnderTheChecker) {
  struct Trial {
    std::string devices, layout, mode = "pull";
    int flip_every = 0;
  };
  // Links so slow that KV cache which is handed on is under way for many steps, and few blocks, which come into use again soon.
  cost::DeviceProfile slow = cost::LoadProfile("h20").value();
  slow.link_bytes_per_s = 1e6;
  slow.link_efficiency = 0.05;
  slow.tables.clear();
  const std::string path = testing::TempDir() + "/slow_links.json";
  std::ofstream(path) << cost::WriteProfile(slow);
  const Trial trials[] = {
      {"sim:2x" + path, "dp=2"},
      {"sim:3x" + path, "dp=3,weights=by_layer,pool=3"},
      {"sim:4x" + path, "dp=2,pp=2"},
      {"sim:h20", ""},
      {"sim:3xh20", "tp=3"},
      {"sim:6xh20", "dp=2,tp=3,weights=by_layer,pool=3"},
      {"sim:8xh20", "dp=8,weights=by_layer,pool=3"},
      {"sim:4xh20", "dp=4,weights=by_layer,pool=3,pool-attention=on"},
      {"sim:3xh20", "dp=3,weights=striped,pool=3"},
      {"sim:4xh20", "dp=4,weights=sharded,pool=2"},
      {"sim:4xh20", "groups=2,dp=2,weights=by_layer,pool=3"},
      {"sim:4xh20", "dp=4,weights=by_layer,pool=3", "ship"},
      {"sim:3xh20", "dp=3,weights=striped,pool=3", "ship", 2},
      {"sim:4xh20", "dp=2,pp=2,weights=by_layer,pool=3", "ship", 3},
      {"sim:4xh20", "dp=4,weights=sharded,pool=3", "gather"},
  };
  std::vector<Request> requests;
  for (int i = 0; i < 32; ++i) requests.push_back(MakeRequest(i, 20 + i * 7 % 30, i % 2 == 0 ? 60 + i : 1 + i % 9));
  int64_t stolen = 0;
  for (const Trial& trial : trials) {
    SCOPED_TRACE(fmt::format("{} {} {}", trial.devices, trial.layout, trial.mode));
    device::HazardChecker checker;
    engine::EngineOptions options = Options(trial.devices);
    options.layout = trial.layout;
    options.mode = trial.mode;
    options.ship_flip_every = trial.flip_every;
    options.steal = "always";
    options.max_model_len = 128;
    options.max_num_seqs = 8;
    options.kv_blocks = 16;
    options.prefix_caching = false;
    options.checker = &checker;
    const Outcome outcome = RunSimulated(options, requests);
    ASSERT_TRUE(outcome.status.ok()) << outcome.status.ToString();
    EXPECT_EQ(outcome.results.size(), requests.size());
    EXPECT_TRUE(checker.status().ok()) << checker.status().ToString();
    EXPECT_GT(checker.num_operations(), outcome.stats.steps);
    const auto counter = [&](const char* name) {
      const auto found = outcome.stats.mode_counters.find(name);
      return found == outcome.stats.mode_counters.end() ? 0 : found->second;
    };
    const bool pools = options.layout.find("pool=") != std::string::npos, ships = options.mode == "ship";
    if (pools && (!ships || trial.flip_every > 0)) {
      EXPECT_GT(counter("bytes_pulled"), 0);
    }
    if (ships) {
      EXPECT_GT(counter("rows_shipped"), 0);
    }
    stolen += outcome.stats.kv_bytes_stolen;
  }
  EXPECT_GT(stolen, 0);
}

TEST(SimEngine, AModelThatDoesNotFitIsRefused) {
  engine::EngineOptions options = Options("sim:a10");
  options.memory_bytes = 1 << 20;
  const Outcome outcome = RunSimulated(options, MakeRequests(1));
  EXPECT_EQ(outcome.status.code(), engine::kMemoryTooSmall);
}

}  // namespace
}  // namespace forebay

// Which experts the rows of a real run chose, laid on simulated ranks: as many rows reach as many
// experts there, in any layout, and where the steps are the same, as many at once.
#include "model/recorded_routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <tuple>

#include "base/json.h"
#include "choose/create_engine.h"
#include "choose/decide.h"
#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"
#include "schedule/step_mode.h"
#include "testing/golden_files.h"
#include "testing/list_source.h"
#include "weights/formats/testing/weight_files.h"

namespace forebay {
namespace {

std::vector<Request> Requests() {
  std::vector<Request> requests(12);
  for (int32_t line = 0; line < 12; ++line) {
    Request& request = requests[static_cast<size_t>(line)];
    request.id = request.line = line;
    request.n = 1 + line % 2;
    request.prompts.emplace_back();
    for (int32_t i = 0; i < 3 + 7 * line % 40; ++i)
      request.prompts[0].push_back((5 * i + 29 * line) % 250);
    request.sampling = {.temperature = 1, .max_tokens = 1 + 5 * line % 17};
    request.sampling.ignore_eos = true;
  }
  return requests;
}

layout::EngineOptions Options(const char* model, const char* devices, const char* layout,
                              const char* mode) {
  layout::EngineOptions options;
  options.model = golden::Path(fmt::format("models/{}", model));
  options.machine = {
      .devices = *layout::ParseDevices(devices), .threads = 2, .memory_bytes = 256 << 20};
  options.limits = {.max_model_len = 256, .max_num_seqs = 6, .max_num_batched_tokens = 64};
  if (*layout != 0) options.layout = *layout::ParseLayout(layout);
  options.ship.mode = *schedule::ParseWantedMode(mode);
  options.prefix_caching = false;
  return options;
}

// Each step's plan and what experts had.
struct Steps : StepObserver {
  void OnStep(const StepRecord& record) override {
    all.emplace_back(record.plan_hash, record.rows_routed, record.experts_touched,
                     record.expert_busiest_rows, record.expert_imbalance);
  }
  std::vector<std::tuple<uint64_t, int64_t, int64_t, int64_t, double>> all;
};

// What a run says of itself.
struct Told {
  EngineStats stats;
  Steps steps;
  std::vector<int64_t> expert_rows;  // of the first rank

  int64_t counter(const std::string& name) const { return stats.mode_counters.at(name); }
};

Told Run(runtime::Runtime& runtime, const layout::EngineOptions& options, bool shapes,
         std::vector<Request> requests) {
  Told told;
  const auto files = engine::OpenModel(options.model, shapes, 0);
  const auto engine = choose::CreateEngine(runtime, options, *files, nullptr);
  EXPECT_TRUE(engine.ok()) << engine.status().ToString();
  if (!engine.ok()) return {};
  const size_t expected = requests.size();
  (*engine)->SetStepObserver(&told.steps);
  EXPECT_EQ(testing_support::RunAll(**engine, std::move(requests)).size(), expected);
  told.stats = (*engine)->stats();
  told.expert_rows = (*engine)->Reports()[0].expert_rows;
  return told;
}

Told RunReal(const layout::EngineOptions& options) {
  const auto runtime = runtime::CreateRealRuntime();
  return Run(*runtime, options, false, Requests());
}

Told RunSimulated(const layout::EngineOptions& options, std::vector<Request> requests) {
  runtime::VirtualRuntime runtime(3);
  Told told;
  const base::Status status =
      runtime.Run([&] { told = Run(runtime, options, true, std::move(requests)); });
  EXPECT_TRUE(status.ok()) << status.ToString();
  return told;
}

class RecordedRouting : public testing::TestWithParam<const char*> {};

TEST_P(RecordedRouting, RowsGoToTheSameExperts) {
  const char* const model = GetParam();
  const base::TemporaryFolder folder;
  const auto record = [&](const char* devices, const char* layout, const char* mode, Told* told) {
    layout::EngineOptions options = Options(model, devices, layout, mode);
    options.machine.record_routing = folder.path() + "/chosen.routing";
    *told = RunReal(options);
    return *base::ReadFile(options.machine.record_routing);
  };
  Told real, other;
  const std::string alone = record("cpu", "", "auto", &real);
  const int64_t rows = real.counter("rows_routed");
  EXPECT_GT(rows, real.stats.computed_tokens);
  const auto routing = model::ParseRecordedRouting(alone, "alone");
  ASSERT_TRUE(routing.ok()) << routing.status().ToString();

  const auto simulate = [&](const char* devices, const char* layout, const char* mode) {
    layout::EngineOptions options = Options(model, devices, layout, mode);
    options.machine.routing = *routing;
    return RunSimulated(options, Requests());
  };
  const Told simulated = simulate("sim:zen4", "", "auto");
  EXPECT_EQ(std::ssize(real.steps.all), real.stats.steps);
  EXPECT_EQ(simulated.steps.all, real.steps.all);
  EXPECT_EQ(simulated.expert_rows, real.expert_rows);
  EXPECT_EQ(std::accumulate(real.expert_rows.begin(), real.expert_rows.end(), int64_t{0}), rows);
  for (const char* counter : {"rows_routed", "experts_touched", "expert_groups",
                              "experts_in_groups", "expert_busiest_rows"}) {
    EXPECT_EQ(simulated.counter(counter), real.counter(counter)) << counter;
  }
  std::vector<std::tuple<const char*, const char*, const char*>> layouts = {
      {"sim:2xzen4", "dp=2", "auto"},
      {"sim:2xzen4", "pp=2", "auto"},
      {"sim:2xzen4", "dp=2,experts=by_expert", "pull"},
      {"sim:2xzen4", "dp=2,experts=by_expert", "ship"},
      {"sim:4xzen4", "dp=2,pp=2,experts=by_expert", "ship"},
      {"sim:4xzen4", "groups=2,dp=2,experts=by_expert", "ship"}};
  if (std::string_view(model) != "deepseek-v3") {
    layouts.emplace_back("sim:4xzen4", "dp=2,tp=2,experts=by_expert", "pull");
    layouts.emplace_back("sim:4xzen4", "dp=2,tp=2,experts=by_expert", "ship");
  }
  for (const auto& [devices, layout, mode] : layouts) {
    EXPECT_EQ(simulate(devices, layout, mode).counter("rows_routed"), rows)
        << layout << " " << mode;
  }

  // A file says one thing of a row, so what other layouts record fits behind it.
  const auto files = engine::OpenModel(golden::Path(fmt::format("models/{}", model)), true, 0);
  const auto layers = static_cast<size_t>(std::ranges::count(files->config.moe->has_experts, 1));
  const size_t header = 8 + 6 * 4 + 4 * layers;
  for (const auto& [devices, layout, mode] :
       {std::tuple{"2xcpu", "pp=2", "auto"}, std::tuple{"2xcpu", "dp=2,experts=by_expert", "pull"},
        std::tuple{"2xcpu", "dp=2,experts=by_expert", "ship"}}) {
    const std::string again = record(devices, layout, mode, &other);
    EXPECT_EQ(other.counter("rows_routed"), rows);
    const auto both = model::ParseRecordedRouting(alone + again.substr(header), "both");
    EXPECT_TRUE(both.ok()) << layout << " " << mode << ": " << both.status().ToString();
  }
}
INSTANTIATE_TEST_SUITE_P(Models, RecordedRouting,
                         testing::Values("qwen3-moe", "deepseek-v3", "llama4-text"));

struct Routed : StepObserver {
  void OnStep(const StepRecord& record) override {
    ++steps;
    rows += record.rows_routed;
    touched += record.experts_touched;
    busiest += record.expert_busiest_rows;
    EXPECT_GE(record.rows_routed, record.decode_rows + record.prefill_rows);
    EXPECT_GE(record.expert_imbalance, 1);
    weighted += record.expert_imbalance * static_cast<double>(record.rows_routed);
  }
  double weighted = 0;  // sum of each step's imbalance times its rows
  int64_t steps = 0, rows = 0, touched = 0, busiest = 0;
};

TEST(RoutingCounters, StepsAddUpToTheSummary) {
  const auto runtime = runtime::CreateRealRuntime();
  const layout::EngineOptions options = Options("deepseek-v3", "cpu", "", "auto");
  const auto files = engine::OpenModel(options.model, false, 0);
  const auto engine = choose::CreateEngine(*runtime, options, *files, nullptr);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  Routed sum;
  (*engine)->SetStepObserver(&sum);
  EXPECT_EQ(testing_support::RunAll(**engine, Requests()).size(), Requests().size());
  const EngineStats all = (*engine)->stats();
  EXPECT_EQ(sum.steps, all.steps);
  EXPECT_EQ(sum.rows, all.mode_counters.at("rows_routed"));
  EXPECT_EQ(sum.touched, all.mode_counters.at("experts_touched"));
  EXPECT_EQ(sum.busiest, all.mode_counters.at("expert_busiest_rows"));
  const int64_t groups = all.mode_counters.at("expert_groups");
  EXPECT_EQ(all.mode_counters.at("experts_in_groups"), groups * files->config.moe->num_experts);
  EXPECT_NEAR(
      ExpertImbalance(sum.busiest, sum.rows, all.mode_counters.at("experts_in_groups"), groups) *
          static_cast<double>(sum.rows),
      sum.weighted, 1e-6 * sum.weighted);
  EXPECT_TRUE((*engine)->CheckCounters().ok());
}

TEST(RoutingCounters, ARunThatReachesNoExpertIsAnError) {
  struct Nowhere : model::Routing {
    void Count(const Draw&, std::span<int32_t> counts) const override {
      std::ranges::fill(counts, 0);
    }
  };
  layout::EngineOptions options = Options("mixtral", "sim:zen4", "", "auto");
  runtime::VirtualRuntime runtime(3);
  const auto files = engine::OpenModel(options.model, true, 0);
  const auto check = [&] {
    base::Status found;
    const base::Status status = runtime.Run([&] {
      const auto engine = choose::CreateEngine(runtime, options, *files, nullptr);
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      testing_support::RunAll(**engine, Requests());
      found = (*engine)->CheckCounters();
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
    return found;
  };
  EXPECT_TRUE(check().ok());
  options.machine.routing = std::make_shared<Nowhere>();
  EXPECT_EQ(check().code(), engine::kExpertsNotReached);
}

TEST(RecordedRoutingTest, ARunBeyondItEndsWithTheRow) {
  const base::TemporaryFolder folder;
  layout::EngineOptions options = Options("qwen3-moe", "cpu", "", "auto");
  options.machine.record_routing = folder.path() + "/chosen.routing";
  RunReal(options);
  options = Options("qwen3-moe", "sim:zen4", "", "auto");
  options.machine.routing = *model::ParseRouting(folder.path() + "/chosen.routing", options.seed);
  std::vector<Request> requests = Requests();
  requests[4].sampling.max_tokens = 40;
  runtime::VirtualRuntime runtime(3);
  const auto files = engine::OpenModel(options.model, true, 0);
  const base::Status status = runtime.Run([&] {
    const auto engine = choose::CreateEngine(runtime, options, *files, nullptr);
    ASSERT_TRUE(engine.ok());
    testing_support::ListSource source(requests);
    testing_support::ListSink sink;
    RunControl control;
    EXPECT_EQ((*engine)->Run(source, sink, control), RunEnd::kStalled);
  });
  EXPECT_TRUE(status.ok()) << status.ToString();
}

TEST(RecordedRoutingTest, WhatCannotBeRecordedOrReplayedIsRefused) {
  const auto refusal = [](const layout::EngineOptions& options) {
    const auto files = engine::OpenModel(options.model, true, 0);
    return choose::Decide(options, files->config).status();
  };
  layout::EngineOptions options = Options("qwen3-moe", "sim:zen4", "", "auto");
  options.machine.record_routing = "/tmp/unused.routing";
  EXPECT_EQ(refusal(options).code(), base::kInvalidArgument);  // no data
  options = Options("llama3-gqa", "cpu", "", "auto");
  options.machine.record_routing = "/tmp/unused.routing";
  EXPECT_EQ(refusal(options).code(), base::kInvalidArgument);  // no experts
  options = Options("qwen3-moe", "cpu", "", "auto");
  options.machine.record_routing = "/tmp/unused.routing";
  options.prefix_caching = true;
  EXPECT_EQ(refusal(options).code(), base::kInvalidArgument);  // rows would be missing
  const base::TemporaryFolder folder;
  options = Options("qwen3-moe", "cpu", "", "auto");
  options.machine.record_routing = folder.path() + "/chosen.routing";
  RunReal(options);
  options = Options("mixtral", "sim:zen4", "", "auto");
  options.machine.routing = *model::ParseRouting(folder.path() + "/chosen.routing", options.seed);
  EXPECT_EQ(refusal(options).code(), model::kRoutingInvalid);  // another model's
}

}  // namespace
}  // namespace forebay

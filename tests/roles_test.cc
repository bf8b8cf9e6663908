// Context and generation groups: the same answers, digests included, as one rank gives; what goes
// over is counted to the byte, and no block stays lent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/rng.h"
#include "choose/create_engine.h"
#include "choose/decide_job.h"
#include "runtime/virtual/virtual_runtime.h"
#include "testing/layout_fixture.h"

namespace forebay {
namespace {

// Some requests end with their prompts.
int32_t ShortAnswers(int i) { return 1 + i % 12; }

int64_t GoOver(const std::vector<Request>& requests) {
  return std::ranges::count_if(
      requests, [](const Request& request) { return request.sampling.max_tokens > 1; });
}

class RolesTest : public LayoutTest {
 protected:
  RolesTest() { requests_ = MakeRequests(ShortAnswers); }

  bool HasStates() const { return files_.config.states.has_value(); }

  Answers RunAlone() {
    options_.roles.reset();
    options_.machine.devices = *layout::ParseDevices("cpu");
    return Run();
  }

  Answers RunRoles(const std::string& context, const std::string& generation) {
    options_.roles = {*layout::ParseLayout(context), *layout::ParseLayout(generation)};
    const int devices =
        options_.roles->context.num_devices() + options_.roles->generation.num_devices();
    options_.machine.devices = *layout::ParseDevices(fmt::format("{}xcpu", devices));
    return Run();
  }

  Answers Run() {
    const auto runtime = runtime::CreateRealRuntime();
    device::HazardChecker checker;
    options_.trial.checker = &checker;
    auto engine = choose::CreateEngine(*runtime, options_, files_, nullptr);
    options_.trial.checker = nullptr;
    EXPECT_TRUE(engine.ok()) << engine.status().ToString();
    if (!engine.ok()) return {};
    if (!hand_out_.replicas.empty()) (*engine)->ReplayHandOut(&hand_out_);
    testing_support::ListSource source(requests_);
    testing_support::ListSink sink;
    RunControl control;
    end_ = (*engine)->Run(source, sink, control);
    Answers answers;
    for (const RequestResult& result : sink.results) {
      EXPECT_EQ(result.error_message, "");
      EXPECT_GE(result.admitted_ns, 0);
      EXPECT_GE(result.first_token_ns, result.admitted_ns);
      for (const Choice& choice : result.choices)
        answers[{result.id, choice.index}] = {choice.tokens, choice.digest};
    }
    stats_ = (*engine)->stats();
    mode_status_ = (*engine)->CheckCounters();
    prefilled_there_ = preempted_there_ = 0;
    for (int i = 0; i < (*engine)->num_replicas(); ++i) {
      const engine::Replica& replica = (*engine)->replica(i);
      if (end_ != RunEnd::kComplete && replica.role() != spared_) continue;
      EXPECT_EQ(replica.choices().book().held_blocks(), 0) << "replica " << i;
      EXPECT_EQ(replica.choices().loans().count(), 0) << "replica " << i;
      if (replica.role() == GroupRole::kGeneration) {
        prefilled_there_ += replica.choices().stats().prefill_rows;
        preempted_there_ += replica.choices().stats().preemptions;
      }
      if (replica.role() == GroupRole::kContext) {
        EXPECT_EQ(replica.choices().stats().requests_handed_over, 0);
      }
    }
    EXPECT_TRUE(checker.status().ok()) << checker.status().ToString();
    return answers;
  }

  RunEnd end_ = RunEnd::kComplete;
  // The role that goes on where the other one is lost, and holds nothing at its end.
  std::optional<GroupRole> spared_;
  int64_t prefilled_there_ = 0, preempted_there_ = 0;  // by generation replicas: rows, choices
};

TEST_P(RolesTest, EveryPairGivesTheDigestsOfOneRank) {
  const Answers expected = RunAlone();
  ASSERT_EQ(expected.size(), static_cast<size_t>(kRequests + (kRequests + 4) / 5));
  EXPECT_FALSE(stats_.mode_counters.contains("requests_handed_over"));
  const bool experts = files_.config.moe.has_value();
  const std::string pooled =
      experts ? "dp=2,experts=by_expert"
              : fmt::format("dp=2,weights=by_layer,pool={}", files_.config.num_layers);
  const std::pair<std::string, std::string> layouts[] = {
      {"dp=1", "dp=1"},      {"dp=2", "dp=2"}, {"groups=2", "dp=2"},
      {"dp=1", "groups=2"},  {pooled, "dp=1"}, {"dp=1", pooled},
      {"tp=2", "dp=2,tp=2"}, {"pp=2", "pp=2"}, {"groups=2," + pooled, pooled},
      {"tp=2", "dp=1"},      {"dp=1", "tp=2"}, {"pp=2", "dp=2"},
      {"dp=2", "pp=2"},      {"tp=2", "pp=2"}, {"dp=2,pp=2", "tp=2"},
      {"sp=2", "dp=1"},      {"dp=1", "sp=2"}, {"sp=2", "tp=2"}};
  int ran = 0;
  for (const auto& [context, generation] : layouts) {
    SCOPED_TRACE(context + " to " + generation);
    bool valid = true;
    for (const std::string& text : {context, generation}) {
      const auto parsed = layout::ParseLayout(text);
      valid &= layout::ValidateLayout(*parsed, files_.config, parsed->num_devices()).ok();
    }
    if (!valid) continue;
    EXPECT_EQ(RunRoles(context, generation), expected);
    EXPECT_EQ(end_, RunEnd::kComplete);
    EXPECT_EQ(stats_.requests_handed_over, GoOver(requests_));
    EXPECT_EQ(stats_.mode_counters["requests_handed_over"], stats_.requests_handed_over);
    EXPECT_GT(stats_.kv_bytes_handed_over, 0);
    // But for the siblings' last blocks, prompts are computed where they belong.
    EXPECT_LE(prefilled_there_, 5 * 32);
    ++ran;
  }
  EXPECT_GE(ran, 6);
}

// The blocks of each prompt, once; of a group with windows or chunks those that the next row sees.
TEST_P(RolesTest, WhatGoesOverIsCountedToTheByte) {
  for (Request& request : requests_) request.n = 1;
  const Answers expected = RunAlone();
  for (const char* layout : {"dp=2", "dp=2,tp=2"}) {
    const auto parsed = layout::ParseLayout(layout);
    if (!layout::ValidateLayout(*parsed, files_.config, parsed->num_devices()).ok()) continue;
    options_.steal = layout::Stealing::kOff;
    EXPECT_EQ(RunRoles(layout, layout), expected);
    const auto roles = choose::DecideJob(options_, files_.config);
    ASSERT_TRUE(roles.ok());
    uint64_t bytes = 0;
    for (const Request& request : requests_) {
      if (request.sampling.max_tokens <= 1) continue;
      const auto tokens = static_cast<int32_t>(request.prompts[0].size());
      for (const layout::RankPlan& rank : roles->front().plan.ranks) {
        for (const kv::KvGroup& group : rank.memory.kv_groups) {
          const int32_t blocks = (tokens + 31) / 32 - group.spec.reach.First(tokens) / 32;
          bytes += static_cast<uint64_t>(blocks) * kv::KvBlockBytes(std::span(&group, 1), true);
        }
        for (const kv::StateSpec& state : rank.memory.states) bytes += state.bytes();
      }
    }
    EXPECT_EQ(stats_.kv_bytes_handed_over, static_cast<int64_t>(bytes)) << layout;
    EXPECT_EQ(prefilled_there_, 0);
    EXPECT_EQ(stats_.preemptions, 0);
  }
}

// Codes of the KV cache and their scales go over as they are, to ranks with other heads too.
TEST_P(RolesTest, ACacheOfCodesGoesOver) {
  RunRoles("dp=1", "dp=1");
  const int64_t plain = stats_.kv_bytes_handed_over;
  options_.machine.kv_cache_format = cost::NumberFormat::kInt8;
  const auto draft = layout::DraftLayout(options_, files_.config);
  if (files_.config.mla) {
    EXPECT_EQ(draft.status().code(), layout::kKvCacheDtype);
    return;
  }
  const Answers expected = RunAlone();
  for (const auto& [context, generation] :
       {std::pair{"dp=1", "dp=1"}, {"tp=2", "dp=1"}, {"dp=1", "tp=2"}, {"sp=2", "pp=2"}}) {
    EXPECT_EQ(RunRoles(context, generation), expected) << context << " to " << generation;
    EXPECT_GT(stats_.kv_bytes_handed_over, 0);
    // States are in fp32 whatever the cache is of.
    EXPECT_TRUE(HasStates() || stats_.kv_bytes_handed_over < plain * 3 / 4);
    EXPECT_LT(stats_.kv_bytes_handed_over, plain);
  }
}

// Few blocks: loans stay where nobody has room, choices are preempted where they grow, and all come
// to their end.
TEST_P(RolesTest, WithoutRoomTheContextWaits) {
  // A request of so many prompts never goes over whole: the context replica goes on with them.
  for (Request& request : requests_) {
    request.sampling.max_tokens = 60;
    if (request.id % 7 != 3) continue;
    request.prompts.resize(8, request.prompts[0]);
    for (int32_t i = 0; i < 8; ++i) request.prompts[static_cast<size_t>(i)][0] = i;
  }
  const int64_t single = std::ranges::count_if(
      requests_, [](const Request& request) { return request.prompts.size() == 1; });
  const Answers expected = RunAlone();
  options_.limits.kv_blocks = 10;
  int64_t context = 0, generation = 0;
  for (const char* policy : {"continuous", "vllm"}) {
    options_.policy = *schedule::FindPolicy(policy);
    for (const bool caching : {true, false}) {
      options_.prefix_caching = caching;
      for (const auto& [from, to] : {std::pair("dp=2", "dp=1"), std::pair("dp=1", "groups=2")}) {
        SCOPED_TRACE(fmt::format("{} {} {}", policy, from, to));
        EXPECT_EQ(RunRoles(from, to), expected);
        EXPECT_GE(stats_.requests_handed_over, single);
        context += stats_.preemptions - preempted_there_;
        generation += preempted_there_;
      }
    }
  }
  EXPECT_GT(context, 0);
  EXPECT_GT(generation, 0);
}

TEST_P(RolesTest, PromptsThatBeginAlikeAreFoundInBothRoles) {
  for (Request& request : requests_) {
    for (int t = 0; t < 40; ++t) request.prompts[0].insert(request.prompts[0].begin(), t);
    request.prompts.push_back(request.prompts[0]);
    request.prompts.back().push_back(7);
  }
  options_.limits.max_num_seqs = 4;
  const Answers expected = RunAlone();
  EXPECT_EQ(RunRoles("dp=1", "dp=1"), expected);
  EXPECT_EQ(stats_.requests_handed_over, GoOver(requests_));
  if (GetParam() != "mistral") {
    EXPECT_GT(stats_.cached_prompt_tokens, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RolesTest,
                         testing::Values("llama3-gqa", "mistral", "qwen3-moe", "deepseek-v3",
                                         "mixtral", "llama4-text", "qwen3.5", "qwen3-next"));

class RolesModeTest : public RolesTest {};

// Prompts pull experts, and decoding ships rows to them; where nothing decodes, a mode was forced
// for nothing.
TEST_P(RolesModeTest, EachRoleHasItsMode) {
  const Answers expected = RunAlone();
  const auto run = [&] {
    options_.ship.mode = StepMode{.ffn = FfnMode::kPull};
    options_.roles = {*layout::ParseLayout("dp=2,experts=by_expert"),
                      *layout::ParseLayout("dp=2,experts=by_expert"),
                      schedule::WantedMode(StepMode{.ffn = FfnMode::kShip})};
    options_.machine.devices = *layout::ParseDevices("4xcpu");
    return Run();
  };
  EXPECT_EQ(run(), expected);
  EXPECT_GT(stats_.mode_counters["steps_pull"], 0);
  EXPECT_GT(stats_.mode_counters["steps_ship"], 0);
  EXPECT_EQ(stats_.requests_handed_over, GoOver(requests_));
  EXPECT_TRUE(mode_status_.ok()) << mode_status_.ToString();
  for (Request& request : requests_) request.sampling.max_tokens = request.n = 1;
  run();
  EXPECT_GT(stats_.mode_counters["steps_pull"], 0);
  EXPECT_EQ(stats_.mode_counters["steps_ship"], 0);
  EXPECT_EQ(mode_status_.code(), engine::kModeNotTaken);
  EXPECT_THAT(mode_status_.message(),
              testing::StartsWith("--mode or --generation-mode ship: none of"));
}

INSTANTIATE_TEST_SUITE_P(Models, RolesModeTest,
                         testing::Values("qwen3-moe", "deepseek-v3", "mixtral", "llama4-text"));

class RolesFaultTest : public RolesTest {};

// The others go on with what it had, and give the same answers.
TEST_P(RolesFaultTest, ADeadGroupStopsAlone) {
  const Answers expected = RunAlone();
  // The second generation group dies when it takes its second request.
  options_.trial.fault = {.rank = 2, .at_pull = 2};
  const Answers spared = RunRoles("dp=1", "groups=2");
  EXPECT_EQ(end_, RunEnd::kComplete);
  EXPECT_EQ(spared, expected);
  EXPECT_GT(stats_.requests_returned, 0);
}

TEST_P(RolesFaultTest, ARoleWithoutGroupsEndsTheRun) {
  options_.trial.fault = {.rank = 2, .at_pull = 3};
  const Answers spared = RunRoles("dp=2", "dp=1");
  EXPECT_EQ(end_, RunEnd::kStalled);
  EXPECT_LT(spared.size(), requests_.size());
}

// What was handed over before goes on to its end, and its loans end though their giver is dead.
TEST_P(RolesFaultTest, WithoutContextGroupsTheOthersFinishWhatTheyHave) {
  const Answers expected = RunAlone();
  const std::string pooled = fmt::format("dp=2,weights=by_layer,pool={}", files_.config.num_layers);
  spared_ = GroupRole::kGeneration;
  options_.limits.max_num_seqs = 4;
  // Else the other replica may take all, and the first meets its fault with nothing left to do.
  HandOutInTurn(2);
  hand_out_.replicas.emplace_back();  // of the generation group
  for (const int64_t pull : {4, 7}) {
    options_.trial.fault = {.rank = 0, .at_pull = pull};
    const Answers spared = RunRoles(pooled, "dp=1");
    EXPECT_EQ(end_, RunEnd::kStalled);
    EXPECT_LT(spared.size(), expected.size());
    EXPECT_GT(stats_.requests_handed_over, 0);
    EXPECT_GE(static_cast<int64_t>(spared.size()), stats_.requests_handed_over);
    for (const auto& [choice, answer] : spared) EXPECT_EQ(answer, expected.at(choice));
  }
}

// Cancels requests while the first results come.
TEST_P(RolesFaultTest, CancelledRequestsGiveTheirBlocksBack) {
  options_.roles = {*layout::ParseLayout("dp=2"), *layout::ParseLayout("dp=1")};
  options_.machine.devices = *layout::ParseDevices("3xcpu");
  options_.limits.kv_blocks = 10;
  class Sink : public testing_support::ListSink {
   public:
    bool Finish(RequestResult result) override {
      if (results.size() == 2) {
        for (int64_t id = 4; id < kRequests; id += 2) {
          if (std::ranges::count(results, id, &RequestResult::id) == 0 && id != result.id)
            engine->Cancel(id);
        }
      }
      return ListSink::Finish(std::move(result));
    }
    engine::LocalEngine* engine = nullptr;
  };
  const auto runtime = runtime::CreateRealRuntime();
  const auto engine = choose::CreateEngine(*runtime, options_, files_, nullptr);
  ASSERT_TRUE(engine.ok()) << engine.status().ToString();
  testing_support::ListSource source(requests_);
  Sink sink;
  sink.engine = engine->get();
  RunControl control;
  EXPECT_EQ((*engine)->Run(source, sink, control), RunEnd::kComplete);
  EXPECT_EQ(sink.results.size(), requests_.size());
  EXPECT_GT(std::ranges::count(sink.results, 499, &RequestResult::http_status), 0);
  for (int i = 0; i < (*engine)->num_replicas(); ++i)
    EXPECT_EQ((*engine)->replica(i).choices().book().held_blocks(), 0) << "replica " << i;
}

INSTANTIATE_TEST_SUITE_P(Models, RolesFaultTest, testing::Values("llama3-gqa"));

// Simulated devices, on many seeds: KV crosses the links between groups, and no block stays lent.
class SimRoles : public testing::TestWithParam<const char*> {};

TEST_P(SimRoles, EverySeedEndsAndIsReplayed) {
  layout::EngineOptions options;
  options.model = golden::Path("models/" + std::string(GetParam()));
  options.roles = {*layout::ParseLayout("dp=2"), *layout::ParseLayout("groups=2")};
  options.machine.devices = *layout::ParseDevices("sim:4xh20");
  options.limits.max_model_len = 128;
  options.limits.max_num_seqs = 8;
  options.limits.kv_blocks = 16;
  const auto files = engine::OpenModel(options.model, true, 0);
  struct Outcome {
    EngineStats stats;
    double seconds = 0;
    size_t results = 0;
  };
  const auto run = [&](uint64_t seed) {
    Outcome outcome;
    options.seed = seed;
    runtime::VirtualRuntime runtime(seed);
    device::HazardChecker checker;
    options.trial.checker = &checker;
    const base::Status status = runtime.Run([&] {
      const auto engine = choose::CreateEngine(runtime, options, *files, nullptr);
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      std::vector<Request> requests = MakeRequests(ShortAnswers);
      for (Request& request : requests) request.ends_after = request.sampling.max_tokens;
      outcome.results = testing_support::RunAll(**engine, requests).size();
      outcome.stats = (*engine)->stats();
      outcome.seconds = static_cast<double>(runtime.Now()) * 1e-9;
      for (int i = 0; i < (*engine)->num_replicas(); ++i) {
        const engine::Replica& replica = (*engine)->replica(i);
        EXPECT_EQ(replica.choices().book().held_blocks(), 0) << "replica " << i;
      }
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_TRUE(checker.status().ok()) << checker.status().ToString();
    return outcome;
  };
  const uint64_t seeds = files->config.states ? 12 : 40;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    SCOPED_TRACE(seed);
    const Outcome outcome = run(seed);
    EXPECT_EQ(outcome.results, static_cast<size_t>(kRequests));
    EXPECT_EQ(outcome.stats.requests_handed_over, GoOver(MakeRequests(ShortAnswers)));
    EXPECT_GT(outcome.stats.kv_bytes_handed_over, 0);
    EXPECT_EQ(run(seed).seconds, outcome.seconds);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SimRoles, testing::Values("llama3-gqa", "qwen3-next"));

// Forecasts of roles are those of the engine's own rules in virtual time: a simulation takes as
// long.
TEST(RoleForecast, IsNearTheSimulation) {
  struct Case {
    const char *model, *devices, *context, *generation;
    int choices, prompt, output;  // tokens; outputs differ
  };
  const Case cases[] = {
      {"Llama-3-8B", "sim:2xh20", "dp=1", "dp=1", 40, 600, 60},
      {"Qwen3-32B", "sim:8xh20", "sp=4", "dp=4", 100, 1024, 256},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(fmt::format("{} {} {} {}", c.model, c.devices, c.context, c.generation));
    layout::EngineOptions options;
    options.model = fmt::format("builtin:{}", c.model);
    options.machine.devices = *layout::ParseDevices(c.devices);
    options.roles = {*layout::ParseLayout(c.context), *layout::ParseLayout(c.generation)};
    auto files = *engine::OpenModel(options.model, true, 0);
    files.random_weights = false;
    base::Rng rng(3);
    std::vector<layout::ChoiceShape> job;
    std::vector<Request> requests;
    for (int i = 0; i < c.choices; ++i) {
      const auto output = c.output / 2 + static_cast<int32_t>(rng.Below(c.output));
      job.push_back({.prompt = c.prompt, .output = output, .bound = output});
      Request& request = requests.emplace_back();
      request.id = request.line = i;
      request.prompts = {std::vector<int32_t>(static_cast<size_t>(c.prompt), i)};
      request.sampling.max_tokens = request.ends_after = output;
    }
    options.job = std::make_shared<const std::vector<layout::ChoiceShape>>(std::move(job));
    const choose::LayoutTrial trial = choose::ForeseeRoles(options, files.config);
    ASSERT_TRUE(trial.plan) << trial.refused.ToString();
    double seconds = 0;
    runtime::VirtualRuntime runtime(0);
    const base::Status status = runtime.Run([&] {
      const auto engine = choose::CreateEngine(runtime, options, files, nullptr);
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      const runtime::TimeNs began = runtime.Now();
      EXPECT_EQ(testing_support::RunAll(**engine, requests).size(), requests.size());
      seconds = runtime::SecondsOf(runtime.Now() - began);
      EXPECT_EQ((*engine)->stats().requests_handed_over, c.choices);
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
    EXPECT_NEAR(trial.plan->forecast->seconds, seconds, 0.03 * seconds);
  }
}

TEST(RolePlanTest, WhatCannotGoOverIsRefused) {
  layout::EngineOptions options;
  options.model = golden::Path("models/llama3-gqa");
  const auto files = engine::OpenModel(options.model, true, 0);
  const auto refusal = [&](const char* devices, const char* context, const char* generation) {
    options.machine.devices = *layout::ParseDevices(devices);
    options.roles = {*layout::ParseLayout(context), *layout::ParseLayout(generation)};
    return choose::DecideJob(options, files->config).status();
  };
  EXPECT_TRUE(refusal("3xcpu", "dp=1", "dp=2").ok());
  const base::Status devices = refusal("4xcpu", "dp=1", "dp=2");
  EXPECT_EQ(devices.code(), layout::kLayoutDevices);
  EXPECT_THAT(devices.message(), testing::HasSubstr("there are 4"));
  EXPECT_TRUE(refusal("3xcpu", "dp=1", "tp=2").ok());
}

// One sum of each rank comes back of a row, instead of a row of each expert.
TEST(ExpertWire, ReducedMovesLessAndIsRefusedOnRealDevices) {
  layout::EngineOptions options;
  options.model = golden::Path("models/qwen3-moe");
  options.machine.devices = *layout::ParseDevices("sim:2xh20");
  options.layout = *layout::ParseLayout("dp=2,experts=by_expert");
  options.ship.mode = StepMode{.ffn = FfnMode::kShip};
  options.limits.max_model_len = 128;
  const auto files = engine::OpenModel(options.model, true, 0);
  const auto counters = [&](bool reduced) {
    options.ship.rounds.reduced_wire = reduced;
    std::map<std::string, int64_t> counted;
    runtime::VirtualRuntime runtime(0);
    const base::Status status = runtime.Run([&] {
      const auto engine = choose::CreateEngine(runtime, options, *files, nullptr);
      ASSERT_TRUE(engine.ok()) << engine.status().ToString();
      std::vector<Request> requests = MakeRequests(ShortAnswers);
      for (Request& request : requests) request.ends_after = request.sampling.max_tokens;
      EXPECT_EQ(testing_support::RunAll(**engine, requests).size(), requests.size());
      counted = (*engine)->stats().mode_counters;
    });
    EXPECT_TRUE(status.ok()) << status.ToString();
    return counted;
  };
  auto exact = counters(false), reduced = counters(true);
  EXPECT_GT(exact["expert_rows_returned"], exact["expert_rows_sent"]);
  EXPECT_EQ(reduced["expert_rows_returned"], reduced["expert_rows_sent"]);
  EXPECT_EQ(reduced["expert_rows_sent"], exact["expert_rows_sent"]);
  EXPECT_LT(reduced["bytes_shipped"], exact["bytes_shipped"]);
  // Nothing is digested where nothing has data.
  options.digest = true;
  runtime::VirtualRuntime runtime(0);
  EXPECT_TRUE(runtime
                  .Run([&] {
                    const auto refused = choose::CreateEngine(runtime, options, *files, nullptr);
                    EXPECT_EQ(refused.status().code(), base::kInvalidArgument);
                    EXPECT_THAT(refused.status().message(), testing::StartsWith("--digest"));
                  })
                  .ok());
  options.machine.devices = *layout::ParseDevices("2xcpu");
  const base::Status real = choose::DecideJob(options, files->config).status();
  EXPECT_EQ(real.code(), share::kCannotShip);
  EXPECT_THAT(real.message(), testing::HasSubstr("--expert-wire reduced"));
}

// Answers end where the role that holds less has no more room.
TEST(RolePlanTest, RolesHaveOneLength) {
  layout::EngineOptions options;
  options.model = golden::Path("models/llama3-gqa");
  const auto files = engine::OpenModel(options.model, true, 0);
  options.machine.devices = *layout::ParseDevices("3xcpu");
  options.roles = {*layout::ParseLayout("dp=1"), *layout::ParseLayout("dp=2")};
  const auto roles = choose::DecideJob(options, files->config);
  ASSERT_TRUE(roles.ok()) << roles.status().ToString();
  ASSERT_EQ(roles->size(), 2u);
  EXPECT_EQ((*roles)[0].plan.ranks[0].memory.max_model_len,
            (*roles)[1].plan.ranks[0].memory.max_model_len);
  std::vector<std::pair<GroupRole, layout::Layout>> layouts;
  for (const choose::RoleDecision& role : *roles) layouts.emplace_back(role.role, role.plan.layout);
  const std::vector<layout::JobGroup> groups = layout::GroupsOf(layouts);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[1].role, GroupRole::kGeneration);
  EXPECT_EQ(groups[1].first_device, 1);
  EXPECT_EQ(groups[1].first_replica, 1);
  options.roles.reset();
  EXPECT_EQ(choose::DecideJob(options, files->config)->size(), 1u);
}

}  // namespace
}  // namespace forebay

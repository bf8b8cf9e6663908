#include "choose/layout_search.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "choose/decide_job.h"
#include "layout/job_plan.h"
#include "model/builtin_configs.h"

namespace forebay::choose {
namespace {

using testing::HasSubstr;

layout::EngineOptions Options(const char* devices, int choices) {
  layout::EngineOptions options;
  options.machine.devices = *layout::ParseDevices(devices);
  options.job =
      std::make_shared<std::vector<layout::ChoiceShape>>(choices, layout::ChoiceShape{512, 64, 64});
  options.layout_by_job = true;
  return options;
}

TEST(LayoutSearch, TheFirstIsTaken) {
  struct Case {
    const char *what, *model, *devices;
    int choices;
    const char* layout;  // begins so
  };
  const Case cases[] = {
      {"a choice a rank: all ranks on each, in the mode of each step", "Qwen3-32B", "sim:4xh200", 4,
       "groups=1,dp=1,sp=4,tp=1,pp=1"},
      {"choices for all, and a link that is slow: stages", "Llama-3-8B", "sim:2xrtx4090", 400,
       "groups=1,dp=1,tp=1,pp=2"},
      {"memory for all choices: copies, of which stages come within 2 %", "Llama-3-8B",
       "sim:2xh200", 2000, "groups=1,dp=2,tp=1,pp=1,weights=replicated"},
  };
  for (const Case& c : cases) {
    const layout::EngineOptions options = Options(c.devices, c.choices);
    const model::ModelConfig config = *model::LoadBuiltinConfig(c.model);
    const auto trials = RankLayouts(options, config);
    ASSERT_TRUE(trials.ok()) << trials.status().ToString();
    EXPECT_TRUE(std::ranges::is_sorted(*trials, {}, [](const LayoutTrial& trial) {
      if (!trial.plan) return 1e300;
      return trial.plan->forecast->stopped ? 1e299 : trial.plan->forecast->seconds;
    })) << c.what;
    EXPECT_TRUE(std::ranges::any_of(
        *trials, [](const LayoutTrial& trial) { return trial.plan && trial.plan->layout.sp > 1; }))
        << c.what << ": no ranks cut rows";
    const auto plan = DecideLayout(options, config);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    EXPECT_THAT(layout::FormatLayout(plan->layout), testing::StartsWith(c.layout)) << c.what;
    const double best = trials->front().plan->forecast->seconds;
    EXPECT_LE(plan->forecast->seconds, 1.02 * best) << c.what;
  }
}

TEST(LayoutSearch, TellsOfEachTrial) {
  std::vector<SearchProgress> told;
  const auto trials =
      RankLayouts(Options("sim:2xh200", 400), *model::LoadBuiltinConfig("Llama-3-8B"),
                  [&](const SearchProgress& progress) { told.push_back(progress); });
  ASSERT_TRUE(trials.ok()) << trials.status().ToString();
  ASSERT_GT(told.size(), 1u);
  EXPECT_TRUE(told.back().done);
  told.pop_back();
  for (size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(told[i].layouts, told.back().tried);
    EXPECT_EQ(told[i].tried + told[i].further, static_cast<int64_t>(i) + 1);
    if (i > 0 && told[i - 1].best_seconds > 0) {
      EXPECT_LE(told[i].best_seconds, told[i - 1].best_seconds);
    }
  }
  EXPECT_GT(told.back().further, 0);
  EXPECT_EQ(told.back().best_seconds, trials->front().plan->forecast->seconds);
}

// What the search finds does not depend on how many threads forecast, and when each is done.
TEST(LayoutSearch, AnyNumberOfThreadsFindsTheSame) {
  for (const char* const model : {"Llama-3-8B", "Qwen3-30B-A3B"}) {
    const layout::EngineOptions options = Options("sim:4xh20", 30);
    const model::ModelConfig config = *model::LoadBuiltinConfig(model);
    const auto table = [&](int threads) {
      const auto trials = RankLayouts(options, config, {}, threads);
      std::vector<std::string> lines;
      for (const LayoutTrial& trial : *trials) {
        lines.push_back(trial.layout + " " + trial.flags + " " + trial.refused.ToString());
        if (!trial.plan) continue;
        lines.back() +=
            fmt::format(" {} {}", FormatJob(*trial.plan->forecast), trial.plan->forecast->seconds);
      }
      return lines;
    };
    const std::vector<std::string> one = table(1);
    EXPECT_GT(one.size(), 10u);
    EXPECT_EQ(table(5), one) << model;
  }
}

// Few candidates are foreseen of a layout that cannot win, and what is taken is what all of them
// come to.
TEST(LayoutSearch, TheBestIsThatOfAllCandidates) {
  layout::EngineOptions options = Options("sim:4xa10", 200);
  options.machine.memory_per_rank_bytes = uint64_t{15} << 30;  // less than a copy of the model
  options.limits.max_num_batched_tokens = 1024;
  const model::ModelConfig config = *model::LoadBuiltinConfig("Llama-3-8B");
  const auto trials = RankLayouts(options, config);
  ASSERT_TRUE(trials.ok()) << trials.status().ToString();
  options.layout_by_job = false;
  int stopped = 0;
  double best = 1e300;
  for (const LayoutTrial& trial : *trials) {
    if (!trial.plan || !trial.flags.empty()) continue;
    options.layout = trial.plan->layout;
    if (options.layout->pools()) options.layout->pool_layers.reset();
    const double seconds = Decide(options, config)->forecast->seconds;
    best = std::min(best, seconds);
    if (!trial.plan->forecast->stopped) continue;
    ++stopped;
    EXPECT_GT(seconds, trial.plan->forecast->seconds) << trial.layout;
    EXPECT_THAT(trial.layout, HasSubstr("pool=auto"));
  }
  // These are tried where stripes come near the best alone.
  for (const char* whole : {"dp=4", "dp=2,tp=2", "dp=2,pp=2"}) {
    options.layout = *layout::ParseLayout(std::string(whole) + ",weights=by_layer");
    best = std::min(best, Decide(options, config)->forecast->seconds);
  }
  const auto first = std::ranges::find(*trials, "", &LayoutTrial::flags);
  EXPECT_FALSE(first->plan->forecast->stopped);
  EXPECT_EQ(first->plan->forecast->seconds, best);
  EXPECT_GT(stopped, 0);
}

// A model with experts shares these; how many a rank holds is chosen, too. Ranks along sp share
// them where copies lack room for all choices at once.
TEST(LayoutSearch, ExpertsAreShared) {
  layout::EngineOptions options = Options("sim:4xh20", 100);
  const auto cuts = [&] {
    const auto trials = RankLayouts(options, *model::LoadBuiltinConfig("Qwen3-30B-A3B"));
    std::set<std::string> shared;
    for (const LayoutTrial& trial : *trials) {
      if (trial.layout.empty()) continue;  // roles, which share nothing
      EXPECT_THAT(trial.layout, HasSubstr("weights=replicated"));
      if (!trial.plan || !trial.plan->layout.pools_experts()) continue;
      const layout::Layout& cut = trial.plan->layout;
      shared.insert(fmt::format("dp={},sp={},tp={},pp={}", cut.dp, cut.sp, cut.tp, cut.pp));
      if (cut.sp == 1) {
        EXPECT_GT(cut.expert_size, 0) << trial.layout;
      }
      EXPECT_GT(trial.plan->forecast->steps, 0) << trial.layout;
    }
    return shared;
  };
  using testing::ElementsAre;
  EXPECT_THAT(cuts(),
              ElementsAre("dp=2,sp=1,tp=1,pp=2", "dp=2,sp=1,tp=2,pp=1", "dp=4,sp=1,tp=1,pp=1"));
  options.machine.memory_per_rank_bytes = uint64_t{50} << 30;  // less than a copy of the model
  EXPECT_THAT(cuts(),
              ElementsAre("dp=1,sp=4,tp=1,pp=1", "dp=2,sp=1,tp=1,pp=2", "dp=2,sp=1,tp=2,pp=1",
                          "dp=2,sp=2,tp=1,pp=1", "dp=4,sp=1,tp=1,pp=1"));
}

// The default rows of a step take half of a small card's room for KV cache.
TEST(LayoutSearch, StepsOfASmallCardLeaveRoomForKv) {
  layout::EngineOptions options = Options("sim:a10", 40);
  options.job = std::make_shared<std::vector<layout::ChoiceShape>>(
      40, layout::ChoiceShape{.prompt = 2500, .output = 200, .bound = 200});
  const model::ModelConfig config = *model::LoadBuiltinConfig("Llama-3-8B");
  const Decision plan = *DecideLayout(options, config);
  EXPECT_THAT(plan.flags, testing::StartsWith("--max-num-batched-tokens "));
  EXPECT_LT(plan.machine.max_num_batched_tokens, 8192);
  layout::EngineOptions asked = options;
  asked.layout_by_job = false;
  EXPECT_LT(plan.forecast->seconds, 0.7 * Decide(asked, config)->forecast->seconds);
  asked.limits.max_num_batched_tokens = plan.machine.max_num_batched_tokens;
  EXPECT_EQ(plan.forecast->seconds, Decide(asked, config)->forecast->seconds) << plan.flags;
  // What is given holds.
  options.limits.max_num_batched_tokens = 4096;
  EXPECT_EQ(DecideLayout(options, config)->machine.max_num_batched_tokens, 4096);
  // Choices that no room is left for come before seconds.
  options.limits.max_num_batched_tokens = 0;
  options.job = std::make_shared<std::vector<layout::ChoiceShape>>(
      4, layout::ChoiceShape{.prompt = 5000, .output = 20, .bound = 20});
  EXPECT_EQ(Decide(asked = options, config)->forecast->left_out, 4);
  EXPECT_EQ(DecideLayout(options, config)->forecast->left_out, 0);
}

// Slots for two layers ahead leave no room for a mixture's experts, slots for one do.
TEST(LayoutSearch, SlotsAreAsSmallAsTheModelNeeds) {
  const Decision plan =
      *DecideLayout(Options("sim:8xh200", 400), *model::LoadBuiltinConfig("DeepSeek-R1-FP8"));
  EXPECT_TRUE(plan.layout.pools_experts()) << layout::FormatLayout(plan.layout);
  EXPECT_THAT(plan.flags, HasSubstr("--pool-look-ahead 1 --pool-parts matrix"));
}

// Steps that are all shipped pull nothing while each replica lives.
TEST(LayoutSearch, WhoShipsKeepsTheFewestSlots) {
  layout::EngineOptions options = Options("sim:8xh200", 1);
  options.layout_by_job = false;
  options.layout = *layout::ParseLayout("dp=8,experts=by_expert");
  const auto slots = [&] {
    const Decision plan = *Decide(options, *model::LoadBuiltinConfig("DeepSeek-R1-FP8"));
    return plan.ranks[0].request.pool[0].slots_bytes();
  };
  const uint64_t pulls = slots();
  options.ship.mode = StepMode{.ffn = FfnMode::kShip};
  EXPECT_LT(4 * slots(), pulls);
  options.pool.slots.look_ahead_layers = 2;  // as given
  EXPECT_EQ(slots(), pulls);
}

// Where copies leave little room for KV cache, or none, sequence parallel ranks share weights, and
// so do replicas of several stages: here no two stages hold a copy.
TEST(LayoutSearch, WhoLacksRoomSharesWeights) {
  layout::EngineOptions options = Options("sim:8xh100", 100);
  options.job = std::make_shared<std::vector<layout::ChoiceShape>>(
      100, layout::ChoiceShape{.prompt = 1024, .output = 256, .bound = 256});
  const auto trials = RankLayouts(options, *model::LoadBuiltinConfig("Llama-3.1-70B"));
  ASSERT_TRUE(trials.ok()) << trials.status().ToString();
  const Decision& first = *trials->front().plan;
  EXPECT_EQ(first.layout.sp, 8) << trials->front().layout;
  EXPECT_GT(first.layout.pool_layers, 0);
  const auto plan_of = [&](auto cut) {
    const auto found = std::ranges::find_if(*trials, [&](const LayoutTrial& trial) {
      return trial.plan && trial.flags.empty() && cut(trial.plan->layout);
    });
    EXPECT_NE(found, trials->end());
    return *found->plan;
  };
  // The best of those that share none.
  const Decision copies = plan_of([](const layout::Layout& layout) {
    return layout.sp == 2 && layout.tp == 4 && !layout.pools();
  });
  EXPECT_LT(first.forecast->seconds, 0.97 * copies.forecast->seconds);
  const Decision stages = plan_of([](const layout::Layout& layout) {
    return layout.pp == 2 && layout.tp == 1 && layout.pools();
  });
  EXPECT_EQ(stages.layout.dp, 4);
  EXPECT_GT(stages.forecast->steps, 0);
}

// Roles are tried where their bound leaves them a chance, and taken where they are far sooner: a
// policy of whole batches leaves places empty, which a context replica fills again.
TEST(LayoutSearch, RolesAreTakenWhereTheyAreFarSooner) {
  layout::EngineOptions options = Options("sim:2xh200", 0);
  std::vector<layout::ChoiceShape> job;
  for (int i = 0; i < 120; ++i) {
    job.push_back({.prompt = 512, .output = i % 16 == 0 ? 1000 : 100});
  }
  options.job = std::make_shared<const std::vector<layout::ChoiceShape>>(std::move(job));
  options.limits.max_num_seqs = 16;
  const model::ModelConfig config = *model::LoadBuiltinConfig("Llama-3-8B");
  const auto plan = DecideJob(options, config);
  ASSERT_TRUE(plan.ok()) << plan.status().ToString();
  EXPECT_EQ(plan->size(), 1u);
  EXPECT_EQ(plan->front().role, GroupRole::kAll);
  options.policy = *schedule::FindPolicy("static_batch");
  const auto roles = DecideJob(options, config);
  ASSERT_TRUE(roles.ok()) << roles.status().ToString();
  ASSERT_EQ(roles->size(), 2u);
  EXPECT_EQ(roles->front().role, GroupRole::kContext);
  EXPECT_EQ(roles->front().plan.flags, "--context dp=1 --generation dp=1");
  EXPECT_EQ(roles->back().role, GroupRole::kGeneration);
  EXPECT_FALSE(roles->back().plan.forecast);
  const auto trials = RankLayouts(options, config);
  const LayoutTrial &first = (*trials)[0], &second = (*trials)[1];
  EXPECT_EQ(first.layout, "");
  EXPECT_EQ(first.flags, roles->front().plan.flags);
  EXPECT_EQ(first.plan->forecast->seconds, roles->front().plan.forecast->seconds);
  EXPECT_LT(1.05 * first.plan->forecast->seconds, second.plan->forecast->seconds);
  // What is given holds, and nothing is known of roles beside it.
  options.tier.host_bytes = uint64_t{8} << 30;
  EXPECT_EQ(DecideJob(options, config)->size(), 1u);
  options.roles = {layout::Layout(), layout::Layout()};
  EXPECT_EQ(ForeseeRoles(options, config).refused.code(), layout::kRolesInvalid);
  options.tier.host_bytes = 0;
  EXPECT_EQ(ForeseeRoles(options, config).plan->forecast->seconds, first.plan->forecast->seconds);
}

TEST(LayoutSearch, ALayoutIsLeftOpenWhereStepsCanBeForeseen) {
  const model::ModelConfig dense = *model::LoadBuiltinConfig("Llama-3-8B"),
                           experts = *model::LoadBuiltinConfig("Qwen3-30B-A3B");
  layout::EngineOptions options = Options("sim:2xh20", 1);
  EXPECT_FALSE(LeavesLayoutOpen(options, dense));  // asked for already
  options.layout_by_job = false;
  EXPECT_TRUE(LeavesLayoutOpen(options, dense));
  EXPECT_TRUE(LeavesLayoutOpen(options, experts));
  options.layout = *layout::ParseLayout("dp=2");
  EXPECT_FALSE(LeavesLayoutOpen(options, dense));
  options.layout.reset();
  options.job = nullptr;
  EXPECT_TRUE(LeavesLayoutOpen(options, dense));  // until the job is known
  options.machine.devices = *layout::ParseDevices("sim:h20");
  EXPECT_TRUE(LeavesLayoutOpen(options, dense));  // rows of a step are
  options.machine.devices = *layout::ParseDevices("2xcpu");
  EXPECT_TRUE(LeavesLayoutOpen(options, dense));
  EXPECT_FALSE(LeavesLayoutOpen(options, experts));
  options.machine.devices = *layout::ParseDevices("cpu");
  EXPECT_FALSE(LeavesLayoutOpen(options, dense));
  options.machine.devices = *layout::ParseDevices("sim:2xh20");
  options.layout_by_job = true;
  EXPECT_THAT(DecideLayout(options, dense).status().message(),
              HasSubstr("--layout auto: the job is not known before it runs"));
}

}  // namespace
}  // namespace forebay::choose

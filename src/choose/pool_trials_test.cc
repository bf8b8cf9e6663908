#include "choose/pool_trials.h"
#include "choose/decide.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/builtin_configs.h"

namespace forebay::choose {
namespace {

// What was not tried comes out as it would have in the choice, with a job and without one, also of
// stages.
TEST(PoolTrials, EveryNumberIsTriedAlike) {
  struct Case {
    const char *devices, *layout;
    int choices;
  };
  for (const Case& c :
       {Case{"sim:8xa10", "dp=8,weights=striped", 40}, Case{"sim:8xa10", "dp=8,weights=striped", 0},
        Case{"sim:4xa10", "dp=2,pp=2,weights=striped", 40}}) {
    layout::EngineOptions options;
    options.limits.max_num_batched_tokens = 1024;  // memory for few choices
    options.machine.devices = *layout::ParseDevices(c.devices);
    options.layout = *layout::ParseLayout(c.layout);
    if (c.choices > 0) {
      options.job = std::make_shared<std::vector<layout::ChoiceShape>>(
          c.choices, layout::ChoiceShape{512, 32, 32});
    }
    const model::ModelConfig config = *model::LoadBuiltinConfig("Llama-3-8B");
    base::Result<Decision> plan = Decide(options, config);
    ASSERT_TRUE(plan.ok()) << plan.status().ToString();
    const PoolChoice before = *plan->choice;
    ASSERT_LT(before.trials.size(), 33u);
    // Little more than the last, so that those that were tried are tried anew.
    plan->choice->trials.erase(plan->choice->trials.begin(), plan->choice->trials.end() - 2);
    const PoolChoice all = TryEveryCount(options, config, *plan, [] { return true; });
    EXPECT_EQ(all.layers, before.layers);
    ASSERT_EQ(all.trials.size(), 33u);
    for (int64_t layers = 0; layers <= 32; ++layers)
      EXPECT_EQ(all.trials[static_cast<size_t>(layers)].layers, layers);
    for (const PoolTrial& trial : before.trials) {
      const PoolTrial& again = all.trials[static_cast<size_t>(trial.layers)];
      EXPECT_EQ(again.batch, trial.batch) << c.layout << " " << trial.layers;
      EXPECT_NEAR(again.tokens_per_s(), trial.tokens_per_s(), 1e-6 * trial.tokens_per_s())
          << c.layout << " " << trial.layers;
    }
    int asked = 0;
    const PoolChoice some = TryEveryCount(options, config, *plan, [&] { return ++asked <= 3; });
    EXPECT_EQ(some.trials.size(), 5u);
    EXPECT_TRUE(std::ranges::is_sorted(some.trials, {}, &PoolTrial::layers));
  }
}

}  // namespace
}  // namespace forebay::choose

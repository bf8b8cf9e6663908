#include "choose/role_choice.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "choose/job_price.h"
#include "model/builtin_configs.h"

namespace forebay::choose {
namespace {

TEST(RoleChoice, EachRoleHasTheCutThatServesItSoonest) {
  struct Cut {
    int sp, tp;
    double context;                  // seconds of one replica
    std::vector<double> generation;  // of one, two and so on
  };
  struct Case {
    const char* what;
    int devices;
    std::vector<Cut> cuts;
    std::vector<std::pair<std::string, double>> splits;
  };
  const Cut single{1, 1, 30, {30, 15, 10}};
  const Case cases[] = {
      {"half and half",
       4,
       {single},
       {{"--context dp=2 --generation dp=2", 15}, {"--context dp=1 --generation dp=3", 30}}},
      {"two ranks on each step of decoding are sooner",
       4,
       {single, {1, 2, 40, {5}}},
       {{"--context dp=2 --generation tp=2", 15}, {"--context dp=1 --generation dp=3", 30}}},
      {"prompts are most of the job, and ranks that cut rows read them sooner",
       4,
       {{1, 1, 90, {10, 5, 4}}, {2, 1, 20, {40}}},
       {{"--context sp=2 --generation dp=2", 20}, {"--context dp=3 --generation dp=1", 30}}},
      {"a replica on all devices leaves none for another", 4, {{1, 4, 9, {}}}, {}},
      {"no role is left for one device", 1, {{1, 1, 30, {}}}, {}},
      {"nothing is generated", 2, {{1, 1, 30, {}}}, {}},
  };
  for (const Case& c : cases) {
    std::vector<JobForecast> jobs(c.cuts.size());
    std::vector<CopiesForecast> copies;
    for (size_t i = 0; i < c.cuts.size(); ++i) {
      jobs[i].context_seconds = c.cuts[i].context;
      jobs[i].generation_seconds = c.cuts[i].generation;
      layout::Layout layout{.dp = 1 + static_cast<int>(c.cuts[i].generation.size()),
                            .tp = c.cuts[i].tp};
      layout.sp = c.cuts[i].sp;
      copies.push_back({layout, &jobs[i]});
    }
    std::vector<std::pair<std::string, double>> splits;
    for (const RoleSplit& split : SplitDevices(c.devices, copies)) {
      EXPECT_EQ(split.roles.context.num_devices() + split.roles.generation.num_devices(), c.devices)
          << c.what;
      splits.emplace_back(FormatRoles(split.roles), split.least_seconds);
    }
    EXPECT_EQ(splits, c.splits) << c.what;
  }
}

// No forecast of roles comes below the bound by which most of them are left out, but for what
// prices differ between numbers of rows.
TEST(RoleChoice, RolesTakeNoLessThanTheSlowerOneAlone) {
  layout::EngineOptions options;
  options.machine.devices = *layout::ParseDevices("sim:4xh20");
  const model::ModelConfig config = *model::LoadBuiltinConfig("Llama-3-8B");
  for (const layout::ChoiceShape shape :
       {layout::ChoiceShape{.prompt = 3000, .output = 20, .bound = 20},
        {.prompt = 200, .output = 300, .bound = 300},
        {.prompt = 1000, .output = 100, .bound = 100}}) {
    options.job = std::make_shared<std::vector<layout::ChoiceShape>>(100, shape);
    std::vector<Decision> plans;
    for (const char* const layout : {"dp=4", "dp=2,tp=2", "dp=2,sp=2"}) {
      options.layout = *layout::ParseLayout(layout);
      plans.push_back(*Decide(options, config));
      EXPECT_GT(plans.back().forecast->context_seconds, 0);
      EXPECT_EQ(std::ssize(plans.back().forecast->generation_seconds), plans.back().layout.dp - 1);
    }
    std::vector<CopiesForecast> copies;
    for (const Decision& plan : plans) copies.push_back({plan.layout, &*plan.forecast});
    const std::vector<RoleSplit> splits = SplitDevices(4, copies);
    ASSERT_EQ(splits.size(), 2u);
    for (const RoleSplit& split : splits) {
      options.roles = split.roles;
      const auto roles = DecideRoles(options, config);
      ASSERT_TRUE(roles.ok()) << roles.status().ToString();
      const JobForecast job =
          ForecastOfRoles(options, config, roles->front().plan, roles->back().plan);
      EXPECT_GT(job.seconds, 0.98 * split.least_seconds) << FormatRoles(split.roles);
      EXPECT_LT(job.seconds, 3 * split.least_seconds) << FormatRoles(split.roles);
      EXPECT_EQ(job.output_tokens, 100 * shape.output);
    }
    options.roles.reset();
  }
}

}  // namespace
}  // namespace forebay::choose

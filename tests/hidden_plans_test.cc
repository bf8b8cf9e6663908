// What the walk through a steady cycle of slots (kv::JudgeOffload) takes to be hidden behind the
// step is hidden where it is simulated: the same job on a link that takes no time is hardly faster.
#include <gtest/gtest.h>

#include "cost/profile.h"
#include "layout/stream_choice.h"
#include "trace/simulation.h"

namespace forebay::trace {
namespace {

struct Plan {
  const char *device, *model;
  layout::Offloading offload;
  int32_t blocks;  // of the device
};

struct Times {
  double seconds = 0;
  std::map<std::string, int64_t> counters;
};

// The job on a link of so many times the rate of the device's.
base::Result<Times> Run(const Plan& plan, const LengthTrace& trace, double host_link) {
  SimulationOptions options;
  options.engine.model = plan.model;
  options.engine.machine.devices = *layout::ParseDevices(std::string("sim:") + plan.device);
  options.engine.limits.max_model_len = 1024;
  options.engine.limits.max_num_batched_tokens = 512;
  options.engine.limits.kv_blocks = plan.blocks;
  options.engine.tier = {.host_bytes = uint64_t{8} << 30, .offload = plan.offload};
  options.engine.trial.host_link = host_link;
  options.trace = &trace;
  FB_ASSIGN_OR_RETURN(const SimulationResult result, Simulate(options));
  return Times{result.run.summary.stats.step_seconds, result.run.summary.stats.mode_counters};
}

TEST(HiddenPlans, AreHiddenWhereTheyAreSimulated) {
  const LengthTrace trace =
      std::move(*ReadTrace("synthetic:n=40,prompt=uniform(100,400),output=uniform(150,350)", {}));
  using enum layout::Offloading;
  const Plan plans[] = {{"a10", "builtin:Llama-3-8B", kUniform, 100},
                        {"a10", "builtin:Llama-3-8B", kUniform, 200},
                        {"a10", "builtin:Llama-3-8B", kUniform, 400},
                        {"a40", "builtin:Llama-3-8B", kUniform, 100},
                        {"a40", "builtin:Llama-3-8B", kUniform, 300},
                        {"rtx4090", "builtin:Llama-3-8B", kUniform, 100},
                        {"rtx4090", "builtin:Llama-3-8B", kUniform, 300},
                        {"h100", "builtin:Llama-3-8B", kUniform, 100},
                        {"h200", "builtin:Qwen3-32B", kUniform, 100},
                        {"h200", "builtin:Qwen3-30B-A3B", kUniform, 100},
                        {"gb200-nvl72", "builtin:Llama-3-8B", kUniform, 100},
                        {"gb200-nvl72", "builtin:Llama-3-8B", kUniform, 300},
                        {"gb200-nvl72", "builtin:Qwen3-32B", kUniform, 200},
                        {"gb200-nvl72", "builtin:Llama-3-8B", kAlg2, 64},
                        {"gb200-nvl72", "builtin:Qwen3-32B", kAlg2, 64},
                        {"zen4", "builtin:Llama-3-8B", kUniform, 64}};
  int hidden_plans = 0;
  for (const Plan& plan : plans) {
    SCOPED_TRACE(testing::Message() << plan.device << " " << plan.model << " " << Name(plan.offload)
                                    << " " << plan.blocks);
    const auto real = Run(plan, trace, 1);
    // The judge takes nothing to be hidden there, or all fits.
    if (real.status().code() == layout::kCannotStream) continue;
    ASSERT_TRUE(real.ok()) << real.status().ToString();
    const auto free = Run(plan, trace, 1e6);
    ASSERT_TRUE(free.ok()) << free.status().ToString();
    const double copies = static_cast<double>(real->counters.at("kv_bytes_streamed")) /
                          cost::HostRate(*cost::LoadProfile(plan.device));
    const double hidden = 1 - (real->seconds - free->seconds) / copies;
    EXPECT_GE(hidden, 0.9) << real->seconds << " s, " << free->seconds << " on a free link, copies "
                           << copies;
    RecordProperty(plan.device, std::to_string(hidden));
    ++hidden_plans;
  }
  EXPECT_GE(hidden_plans, 10);
}

}  // namespace
}  // namespace forebay::trace

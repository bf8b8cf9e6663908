// What the walk through a steady cycle of slots (kv::JudgeOffload) takes to be hidden behind the
// step is hidden where it is simulated: the same job on a link that takes no time is hardly faster.
#include <gtest/gtest.h>

#include <optional>

#include "choose/stream_choice.h"
#include "cost/profile.h"
#include "trace/simulation.h"

namespace forebay::trace {
namespace {

struct Plan {
  const char *device, *model;
  layout::Offloading offload;
  int32_t blocks;  // of the device
};

// The job on a link of so many times the rate of the device's, where as much is streamed as was
// planned.
base::Result<SimulationResult> StepsOf(const Plan& plan, const LengthTrace& trace,
                                       double host_link) {
  SimulationOptions options;
  options.engine.model = plan.model;
  options.engine.machine.devices = *layout::ParseDevices(std::string("sim:") + plan.device);
  options.engine.limits.max_model_len = 1024;
  options.engine.limits.max_num_batched_tokens = 512;
  options.engine.limits.kv_blocks = plan.blocks;
  options.engine.tier = {.host_bytes = uint64_t{8} << 30, .offload = plan.offload};
  options.engine.trial.host_link = host_link;
  options.engine.trial.fixed_streaming = true;
  options.trace = &trace;
  options.record_steps = true;
  return Simulate(options);
}

double Seconds(const StepRecord& step) { return step.end_seconds - step.begin_seconds; }

// The part of the copies that is hidden; nothing: the judge takes none to be, or all fits. Of steps
// of the steady cycle: what goes below or comes back is waited for once, and no part of it.
std::optional<double> HiddenPart(const Plan& plan) {
  const LengthTrace trace =
      std::move(*ReadTrace("synthetic:n=40,prompt=uniform(100,400),output=uniform(150,350)", {}));
  const auto real = StepsOf(plan, trace, 1), free = StepsOf(plan, trace, 1e6);
  if (real.status().code() == choose::kCannotStream) return {};
  EXPECT_TRUE(real.ok() && free.ok()) << real.status().ToString() << free.status().ToString();
  if (!real.ok() || !free.ok()) return {};
  EXPECT_EQ(real->steps.size(), free->steps.size());
  auto counters = real->run.summary.stats.mode_counters;
  const double block_seconds = static_cast<double>(counters["kv_bytes_streamed"]) /
                               static_cast<double>(counters["kv_blocks_streamed"]) /
                               cost::HostRate(*cost::LoadProfile(plan.device));
  double exposed = 0, copies = 0;
  for (size_t i = 1; i < std::min(real->steps.size(), free->steps.size()); ++i) {
    const StepRecord &step = real->steps[i], &last = real->steps[i - 1];
    EXPECT_EQ(step.plan_hash, free->steps[i].plan_hash) << i;
    if (step.kv_blocks_down + step.kv_blocks_up + last.kv_blocks_down + last.kv_blocks_up > 0)
      continue;
    exposed += Seconds(step) - Seconds(free->steps[i]);
    copies += static_cast<double>(step.kv_blocks_streamed) * block_seconds;
  }
  EXPECT_GT(copies, 0);
  return 1 - exposed / copies;
}

TEST(HiddenPlans, AreHiddenWhereTheyAreSimulated) {
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
    const std::optional<double> hidden = HiddenPart(plan);
    if (!hidden) continue;
    EXPECT_GE(*hidden, 0.9) << plan.device << " " << plan.model << " " << Name(plan.offload) << " "
                            << plan.blocks;
    ++hidden_plans;
  }
  EXPECT_GE(hidden_plans, 10);
  EXPECT_LT(HiddenPart({"a10", "builtin:Llama-3-8B", kAlways, 100}), 0.85);
}

}  // namespace
}  // namespace forebay::trace

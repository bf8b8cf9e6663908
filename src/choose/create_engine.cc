#include "choose/create_engine.h"

#include <cmath>
#include <utility>

#include "base/log.h"
#include "choose/decide_job.h"
#include "choose/least_steps.h"
#include "layout/job_plan.h"
#include "layout/platform.h"

namespace forebay::choose {
namespace {

int64_t LeastStepsOf(const layout::EngineOptions& options, const layout::LayoutPlan& plan) {
  const layout::MemoryPlan& memory = plan.ranks[0].memory;
  // Windows let go of what they have passed.
  const bool keeps_all = memory.kv_groups.size() == 1 && memory.kv_groups[0].spec.reach.all();
  return LeastSteps(*options.job,
                    {.max_num_seqs = plan.machine.max_num_seqs,
                     .max_num_batched_tokens = plan.machine.max_num_batched_tokens,
                     .total_blocks = keeps_all ? memory.num_blocks + memory.streamed_blocks : 0},
                    memory.max_model_len);
}

// What was left open, and what was chosen.
void LogChoices(const layout::EngineOptions& options, const RoleDecision& role) {
  const Decision& decision = role.plan;
  const auto log = [](std::string_view line) { base::Log(base::LogLevel::kInfo, line); };
  if (decision.choice) log(FormatChoice(decision));
  if (decision.expert_choice) log(FormatExpertChoice(decision));
  if (!decision.streaming.empty()) log(decision.streaming);
  if (options.layout_by_job) {
    const std::string layout = role.role == GroupRole::kAll ? FormatLayout(decision.layout) : "";
    // The context groups' flags name both roles.
    if (role.role != GroupRole::kGeneration) {
      log(fmt::format("--layout auto: {}{}{}", layout,
                      layout.empty() || decision.flags.empty() ? "" : " ", decision.flags));
    }
  }
  if ((decision.choice || options.layout_by_job) && decision.forecast)
    log(FormatForecast(decision));
  const std::string uneven = layout::FormatUneven(decision.layout, decision.config);
  if (!uneven.empty()) log(uneven);
}

base::Status CheckFits(const RoleDecision& role) {
  const base::Status fits = role.plan.Fits();
  return fits.ok() || role.role == GroupRole::kAll ? fits : fits.WithContext(Name(role.role));
}

}  // namespace

base::Result<std::unique_ptr<engine::LocalEngine>> CreateEngine(
    runtime::Runtime& runtime, const layout::EngineOptions& options,
    const engine::ModelFiles& files, const text::Tokenizer* tokenizer, const TellSearch& tell) {
  FB_ASSIGN_OR_RETURN(std::vector<RoleDecision> roles, DecideJob(options, files.config, tell));
  layout::JobPlan plan;
  const Decision& first = roles.front().plan;
  if (first.forecast)
    plan.expected = {std::llround(1e3 * first.forecast->seconds), first.forecast->origins};
  if (options.job_exact && roles.size() == 1) plan.least_steps = LeastStepsOf(options, first);
  for (RoleDecision& role : roles) {
    FB_RETURN_IF_ERROR(CheckFits(role));
    LogChoices(options, role);
    plan.roles.push_back({role.role, std::move(role.plan), role.mode});
  }
  auto engine = engine::CreateEngine(runtime, options, plan, files, tokenizer);
  if (engine.ok() || engine.status().code() != kernels::kNumericsUnavailable ||
      options.machine.kernels != nullptr)
    return engine;
  base::Log(base::LogLevel::kWarning,
            fmt::format("{}; --numerics auto takes class pair", engine.status().message()));
  layout::EngineOptions pair = options;
  FB_ASSIGN_OR_RETURN(pair.machine.kernels,
                      options.machine.devices.platform->Kernels("auto", "pair"));
  return CreateEngine(runtime, pair, files, tokenizer);
}

}  // namespace forebay::choose

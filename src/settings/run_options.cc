#include "settings/run_options.h"

#include <tuple>
#include <utility>

#include "kernels/kernel_set.h"
#include "layout/job_plan.h"
#include "layout/platform.h"
#include "layout/shift_plan.h"
#include "model/routing.h"
#include "settings/table.h"

namespace forebay::settings {
namespace {

base::Status Invalid(std::string message) { return {base::kInvalidArgument, std::move(message)}; }

// vLLM's sizes become a layout, and as many devices as they multiply to.
base::Status ResolveParallel(RunOptions* options) {
  const ParallelSizes& given = options->parallel;
  std::string text;
  int ranks = 1;
  for (const auto& [key, size] : {std::pair("dp", given.data), std::pair("pp", given.pipeline),
                                  std::pair("sp", given.sequence), std::pair("tp", given.tensor)}) {
    if (size == 0) continue;
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, size);
    ranks *= size;
  }
  if (text.empty()) return {};
  if (!options->layout.empty()) {
    return Invalid(
        fmt::format("--layout {} and --tensor-parallel-size or the like are both given; expected "
                    "one of them, say --layout {}",
                    options->layout, text));
  }
  options->layout = text;
  // `cpu` alone names no number of devices.
  layout::DevicesSpec& devices = options->engine.machine.devices;
  if (devices.text == "cpu" && ranks > 1) {
    FB_ASSIGN_OR_RETURN(devices, layout::ParseDevices(fmt::format("{}xcpu", ranks)));
  }
  return {};
}

// --context, --generation and --generation-mode.
base::Status ResolveRoles(RunOptions* options) {
  const RunOptions& given = *options;
  const auto refuse = [](std::string message) {
    return base::Status(layout::kRolesInvalid, std::move(message));
  };
  options->engine.roles.reset();
  if (given.context.empty() && given.generation.empty()) {
    if (given.generation_mode.empty()) return {};
    return refuse(fmt::format("--generation-mode {} without --generation; expected both",
                              given.generation_mode));
  }
  if (given.context.empty()) {
    return refuse(
        fmt::format("--generation {} without --context; expected both", given.generation));
  }
  if (given.generation.empty())
    return refuse(fmt::format("--context {} without --generation; expected both", given.context));
  if (!given.layout.empty()) {
    return refuse(
        fmt::format("--layout {} beside --context {} and --generation {}; expected either",
                    given.layout, given.context, given.generation));
  }
  layout::RoleLayouts& roles = options->engine.roles.emplace();
  for (const auto& [flag, text, role] :
       {std::tuple("--context", &given.context, &roles.context),
        std::tuple("--generation", &given.generation, &roles.generation)}) {
    auto parsed = layout::ParseLayout(*text);
    if (!parsed.ok()) return parsed.status().WithContext(flag);
    *role = *std::move(parsed);
  }
  if (!given.generation_mode.empty()) {
    FB_ASSIGN_OR_RETURN(roles.generation_mode, schedule::ParseWantedMode(given.generation_mode));
  }
  return {};
}

// --[no-]enable-shift-parallel, which is for layouts with sp, and beside other settings of modes
// would say the same again or the opposite.
base::Status ResolveShifts(RunOptions* options) {
  if (!options->shifts) return {};
  layout::EngineOptions& engine = options->engine;
  layout::ShiftOptions& shift = engine.shift;
  const auto refuse = [&](std::string_view why) {
    return base::Status(layout::kShiftInvalid, fmt::format("--{}enable-shift-parallel {}",
                                                           *options->shifts ? "" : "no-", why));
  };
  if (!engine.layout || engine.layout->sp == 1)
    return refuse("of a layout with sp=1, which has one mode; expected sp of at least 2");
  if (*options->shifts && shift.mode) {
    return refuse(fmt::format("and --shift-mode {} are both given; expected one of them",
                              layout::FormatMode(*shift.mode)));
  }
  if (*options->shifts) return {};
  if (shift.mode || shift.among != layout::ModeChoice::kDefault || shift.threshold > 0) {
    return refuse(
        "and --shift-mode, --shift-modes or --shift-parallel-threshold are both given; expected "
        "one of them");
  }
  shift.mode = engine.layout->degrees();
  return {};
}

// What is said of KV below the device needs a place below it.
base::Status CheckTier(const RunOptions& options) {
  const layout::TierOptions& tier = options.engine.tier;
  if (!tier.in_file() && (tier.file_bytes > 0 || tier.keep_file)) {
    return Invalid(fmt::format("{} is given without --kv-file; expected its path beside it",
                               tier.keep_file ? "--kv-file-keep" : "--kv-file-size"));
  }
  if (tier.preempt == layout::Preempting::kAuto || tier.in_file() || tier.in_memory()) return {};
  const Setting& preempt = *Find("--kv-preempt", kRun);
  return Invalid(fmt::format(
      "{} {}: there is nothing below the device; expected --kv-offloading-size or --kv-file "
      "beside it",
      preempt.name(), preempt.value.print(options)));
}

// What bounds steps by who waits needs a policy that knows it.
base::Status CheckBounds(const RunOptions& options) {
  if (options.engine.policy->make()->orders_services()) return {};
  const RunOptions defaults;
  for (const char* const name : {"--target-itl-ms", "--max-step-ms"}) {
    const Setting& setting = *Find(name, kRun);
    if (setting.value.print(options) == setting.value.print(defaults)) continue;
    return Invalid(fmt::format(
        "{} {} with --scheduling-policy {}: it does not know who waits; expected interactive", name,
        setting.value.print(options), options.engine.policy->name));
  }
  return {};
}

}  // namespace

base::Status SetLayout(const std::string& text, layout::EngineOptions* engine) {
  engine->layout.reset();
  engine->layout_by_job = text == "auto";
  if (text.empty() || engine->layout_by_job) return {};
  FB_ASSIGN_OR_RETURN(engine->layout, layout::ParseLayout(text));
  return {};
}

base::Status Resolve(RunOptions* options) {
  FB_RETURN_IF_ERROR(ResolveParallel(options));
  FB_RETURN_IF_ERROR(SetLayout(options->layout, &options->engine));
  FB_RETURN_IF_ERROR(ResolveRoles(options));
  FB_RETURN_IF_ERROR(ResolveShifts(options));
  FB_RETURN_IF_ERROR(CheckTier(*options));
  FB_RETURN_IF_ERROR(CheckBounds(*options));
  if (options->isa != "auto" || options->numerics != "auto") {
    const layout::Platform& platform = *options->engine.machine.devices.platform;
    const auto kernels = platform.Kernels(options->isa, options->numerics);
    if (!kernels.ok()) return kernels.status().WithContext("--isa and --numerics");
    options->engine.machine.kernels = *kernels;
  }
  if (!options->routing.empty()) {
    auto routing = model::ParseRouting(options->routing, options->engine.seed);
    if (!routing.ok()) return routing.status().WithContext("--routing");
    options->engine.machine.routing = *std::move(routing);
  }
  const auto now = ParseNow(options->now);
  if (!now.ok()) return now.status().WithContext("--now");
  options->text.now = *now;
  return {};
}

base::Result<std::tm> ParseNow(const std::string& text) {
  if (!text.empty()) return text::ParseClock(text);
  const std::time_t now = std::time(nullptr);
  std::tm local = {};
  localtime_r(&now, &local);
  return local;
}

}  // namespace forebay::settings

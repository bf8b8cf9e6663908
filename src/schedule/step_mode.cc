#include "schedule/step_mode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace forebay::schedule {
namespace {

constexpr StepMode kModes[] = {{.ffn = FfnMode::kLocal},
                               {.ffn = FfnMode::kPull},
                               {.ffn = FfnMode::kShip},
                               {.ffn = FfnMode::kGather}};
// By FfnMode.
constexpr std::string_view kNames[] = {"local", "pull", "ship", "gather"};
static_assert(std::size(kModes) == std::size(kNames));

constexpr std::string_view kByLoad = "auto";

}  // namespace

std::span<const StepMode> AllModes() { return kModes; }

std::string_view Name(const StepMode& mode) { return kNames[static_cast<size_t>(mode.ffn)]; }

base::Result<StepMode> ParseMode(std::string_view name) {
  const auto* const found = std::ranges::find(kNames, name);
  if (found != std::end(kNames)) return kModes[found - kNames];
  return base::Status(
      base::kInvalidArgument,
      fmt::format("mode \"{}\" is unknown; expected one of {}", name, fmt::join(kNames, ", ")));
}

std::string_view Name(const WantedMode& wanted) { return wanted ? Name(*wanted) : kByLoad; }

base::Result<WantedMode> ParseWantedMode(std::string_view name) {
  if (name == kByLoad) return WantedMode();
  FB_ASSIGN_OR_RETURN(const StepMode mode, ParseMode(name));
  if (mode.ffn != FfnMode::kLocal) return WantedMode(mode);
  return base::Status(base::kInvalidArgument,
                      fmt::format("mode \"{}\" cannot be asked for; expected one of {}", name,
                                  fmt::join(WantedModeNames(), ", ")));
}

std::vector<std::string> WantedModeNames() {
  std::vector<std::string> names = {std::string(kByLoad)};
  for (const StepMode& mode : kModes) {
    if (mode.ffn != FfnMode::kLocal) names.emplace_back(Name(mode));
  }
  return names;
}

std::string StepsCounter(const StepMode& mode) { return fmt::format("steps_{}", Name(mode)); }

std::string DegreesCounter(const StepMode& mode) {
  return fmt::format("steps_sp{}tp{}", mode.sp, mode.tp);
}

}  // namespace forebay::schedule

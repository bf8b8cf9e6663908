#include "schedule/step_mode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "forebay/counter_names.h"

namespace forebay::schedule {
namespace {

struct ModeRow {
  StepMode mode;
  std::string_view name;
  std::string_view what;  // for whoever may ask for it
};

// By FfnMode.
constexpr ModeRow kModes[] = {
    {{.ffn = FfnMode::kLocal}, "local", ""},
    {{.ffn = FfnMode::kPull}, "pull", "weights come"},
    {{.ffn = FfnMode::kShip}, "ship", "rows go to the owners"},
    {{.ffn = FfnMode::kGather}, "gather", "pull in lockstep, as FSDP does"},
    {{.ffn = FfnMode::kRouted}, "routed", "of experts those come that have rows"}};

constexpr bool RowsAreInOrder() {
  for (size_t i = 0; i < std::size(kModes); ++i) {
    if (kModes[i].mode.ffn != static_cast<FfnMode>(i)) return false;
  }
  return std::size(kModes) == kNumFfnModes;
}
static_assert(RowsAreInOrder());

constexpr std::string_view kByLoad = "auto";

}  // namespace

std::vector<StepMode> AllModes() {
  std::vector<StepMode> modes;
  for (const ModeRow& row : kModes) modes.push_back(row.mode);
  return modes;
}

std::string_view Name(const StepMode& mode) { return kModes[static_cast<size_t>(mode.ffn)].name; }

base::Result<StepMode> ParseMode(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ModeRow& row : kModes) {
    if (row.name == name) return row.mode;
    names.push_back(row.name);
  }
  return base::Status(
      base::kInvalidArgument,
      fmt::format("mode \"{}\" is unknown; expected one of {}", name, fmt::join(names, ", ")));
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
  for (const ModeRow& row : kModes) {
    if (!row.what.empty()) names.emplace_back(row.name);
  }
  return names;
}

std::string WantedModeHelp() {
  std::string help;
  for (const ModeRow& row : kModes) {
    if (!row.what.empty()) help += fmt::format("{} ({}), ", row.name, row.what);
  }
  return fmt::format("{}or {} (by each step's load)", help, kByLoad);
}

std::string StepsCounter(const StepMode& mode) { return fmt::format("steps_{}", Name(mode)); }

std::string DegreesCounter(const Degrees& degrees) {
  return fmt::format("{}{}tp{}", counter_names::kStepsByDegrees, degrees.sp, degrees.tp);
}

}  // namespace forebay::schedule

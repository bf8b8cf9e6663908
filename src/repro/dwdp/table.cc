#include "repro/dwdp/table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "layout/memory_plan.h"
#include "repro/dwdp/context_steps.h"

namespace forebay::repro {
namespace {

constexpr int32_t kLessRoundRows = 2048;  // where staging for more does not fit
constexpr double kNearlyBest = 0.98, kWins = 1.03;

// Nothing: it does not fit.
using MaybeTimes = std::optional<ContextTimes>;
base::Result<MaybeTimes> Try(const ContextSteps& setting, Lab& lab) {
  base::Result<ContextTimes> times = RunContext(setting, lab);
  if (times.ok()) return MaybeTimes(*times);
  if (times.status().code() == layout::kMemoryTooSmall) return MaybeTimes();
  return times.status();
}

struct Device {
  const char *name, *model;
};
constexpr Device kTableDevices[] = {{"gb200-nvl72", "DeepSeek-R1-NVFP4"},
                                    {"b200", "DeepSeek-R1-NVFP4"},
                                    {"h200", "DeepSeek-R1-FP8"}};

// Where it is told what pulls over the border of a step bring: one prompt a step, whose compute
// hides the pulls hardly or not.
constexpr int64_t kBorderTokens = 8192, kBorderSteps = 4;

struct Totals {
  int cells = 0, dwdp_wins = 0, auto_near = 0, larger = 0;
  std::vector<std::string> colder;  // cells, and by how much steps that begin cold are slower
};

base::Status AddColder(ContextSteps setting, Lab& lab, Totals* totals) {
  setting.steps = kBorderSteps;
  FB_ASSIGN_OR_RETURN(const ContextTimes warm, RunContext(setting, lab));
  setting.begins_cold = true;
  FB_ASSIGN_OR_RETURN(const ContextTimes cold, RunContext(setting, lab));
  const double percent = 100 * (warm.tokens_per_s() / cold.tokens_per_s() - 1);
  totals->colder.push_back(fmt::format("{} x{} {:.1f}", setting.device, setting.ranks,
                                       std::abs(percent) < 0.05 ? 0 : percent));
  return {};
}

// "": the cell fits in no way.
base::Result<std::string> Line(ContextSteps setting, Lab& lab, Totals* totals) {
  setting.steps = 2;
  const ContextSteps first = setting;
  FB_ASSIGN_OR_RETURN(const MaybeTimes rotated, Try(setting, lab));
  ContextSteps parts = setting;
  parts.by_part = true;
  FB_ASSIGN_OR_RETURN(const MaybeTimes by_part, Try(parts, lab));
  setting.mode = kShip;
  FB_ASSIGN_OR_RETURN(MaybeTimes exact, Try(setting, lab));
  if (!exact) {
    setting.round_rows = kLessRoundRows;
    FB_ASSIGN_OR_RETURN(exact, Try(setting, lab));
  }
  setting.mode = std::nullopt;
  setting.round_rows = 0;  // as the plan has it
  FB_ASSIGN_OR_RETURN(const MaybeTimes chosen, Try(setting, lab));
  if (!rotated || !by_part || !exact || !chosen) return std::string();
  const ContextTimes dep = WithSums(setting, *exact);
  const bool part_wins = by_part->tokens_per_s() > rotated->tokens_per_s();
  const ContextTimes& dwdp = part_wins ? *by_part : *rotated;
  if (setting.prompt == kBorderTokens && setting.rows == kBorderTokens)
    FB_RETURN_IF_ERROR(AddColder(part_wins ? parts : first, lab, totals));
  ContextSteps sized = part_wins ? parts : first;
  sized.auto_size = true;
  FB_ASSIGN_OR_RETURN(const MaybeTimes larger, Try(sized, lab));
  const double by_size = larger ? larger->tokens_per_s() / dwdp.tokens_per_s() : 0;
  const double gain = dwdp.tokens_per_s() / dep.tokens_per_s(),
               bound = dwdp.tokens_per_s() * (dep.step - dep.exchange) / 1e3 / dep.rows,
               best = std::max(dwdp.tokens_per_s(), exact->tokens_per_s()),
               auto_part = chosen->tokens_per_s() / best;
  ++totals->cells;
  totals->dwdp_wins += gain > 1;
  totals->auto_near += auto_part >= kNearlyBest;
  totals->larger += by_size >= kWins;
  return fmt::format(
      "| {} | {} | {}K | {}K | {:.2f} | {:.1f} | {} | {:.2f} | {:.1f} | {:.2f}{} | {:.2f} | {:.2f} "
      "|",
      setting.device, setting.ranks, setting.prompt / 1024, setting.rows / 1024,
      dwdp.compute() / dwdp.fetch, dwdp.tokens_per_s() / 1e3, part_wins ? "part" : "rotated",
      by_size, dep.tokens_per_s() / 1e3, gain, gain >= kWins ? " *" : "", bound, auto_part);
}

// A job's rates in each forced mode, in the order of kMixedModes, and in the modes that prices
// choose. Nothing: it does not fit.
constexpr FfnMode kMixedModes[] = {FfnMode::kPull, FfnMode::kRouted, FfnMode::kShip,
                                   FfnMode::kGather};
struct MixedRates {
  std::array<double, std::size(kMixedModes)> forced{};
  double chosen = 0;
};
base::Result<std::optional<MixedRates>> TryMixed(ContextSteps setting, Lab& lab) {
  MixedRates rates;
  const auto run = [&](schedule::WantedMode mode, double* rate) -> base::Result<bool> {
    setting.mode = mode;
    const base::Result<double> found = RunMixed(setting, lab);
    if (found.ok()) *rate = *found;
    if (found.ok() || found.status().code() == layout::kMemoryTooSmall) return found.ok();
    return found.status();
  };
  for (size_t i = 0; i < rates.forced.size(); ++i) {
    FB_ASSIGN_OR_RETURN(const bool fits, run(StepMode{.ffn = kMixedModes[i]}, &rates.forced[i]));
    if (!fits) return std::optional<MixedRates>();
  }
  FB_ASSIGN_OR_RETURN(const bool fits, run(std::nullopt, &rates.chosen));
  return fits ? std::optional(rates) : std::nullopt;
}

}  // namespace

base::Status PrintContextTable(Lab& lab, const PrintLine& print) {
  std::vector<Device> devices(std::begin(kTableDevices), std::end(kTableDevices));
  std::vector<int> ranks = {2, 3, 4, 8};
  std::vector<int64_t> prompts = {1024, 8192, 32768}, rows = {8192, 16384, 32768};
  if (lab.quick()) {
    devices.resize(1);
    ranks = {4};
    prompts = {8192};
    rows = {8192, 32768};
  }
  print(
      "| device | ranks | prompts | rows a step | compute / fetch | DWDP K tok/s a rank | | "
      "`expert-size=auto` / least | DEP | DWDP / DEP | / DEP whose exchange is free | `auto` / "
      "best "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|");
  Totals totals;
  for (const Device& device : devices) {
    for (const int count : ranks) {
      for (const int64_t prompt : prompts) {
        for (const int64_t most : rows) {
          FB_ASSIGN_OR_RETURN(const std::string line, Line({.device = device.name,
                                                            .model = device.model,
                                                            .ranks = count,
                                                            .prompt = prompt,
                                                            .rows = most},
                                                           lab, &totals));
          if (!line.empty()) print(line);
        }
      }
    }
  }
  print(fmt::format(
      "\n{} cells fit. DWDP is faster than DEP in {}, by 3 % and more in those with a star; --mode "
      "auto has at least {} of the best forced mode's rate in {}. expert-size=auto is by 3 % and "
      "more "
      "faster than the least size in {}.\n",
      totals.cells, totals.dwdp_wins, kNearlyBest, totals.auto_near, totals.larger));
  print(
      fmt::format("Were no pull to run over the border of a step, as in public code, steps of one "
                  "prompt of {}K would be slower by, %: {}.\n",
                  kBorderTokens / 1024, fmt::join(totals.colder, ", ")));
  return {};
}

base::Status PrintMixedTable(Lab& lab, const PrintLine& print) {
  std::vector<Device> devices(std::begin(kTableDevices), std::end(kTableDevices));
  std::vector<int> ranks = {4, 8};
  std::vector<int64_t> prompts = {1024, 8192}, outputs = {32, 256};
  if (lab.quick()) {
    devices.resize(1);
    ranks = {4};
    prompts = {8192};
    outputs = {32};
  }
  print(
      "| device | ranks | prompts | outputs | pull K tok/s a rank | routed | ship | gather | "
      "`auto` "
      "| `auto` / best |\n|---|---|---|---|---|---|---|---|---|---|");
  int cells = 0, near = 0, wins = 0;
  for (const Device& device : devices) {
    for (const int count : ranks) {
      for (const int64_t prompt : prompts) {
        for (const int64_t output : outputs) {
          FB_ASSIGN_OR_RETURN(const std::optional<MixedRates> rates,
                              TryMixed({.device = device.name,
                                        .model = device.model,
                                        .ranks = count,
                                        .prompt = prompt,
                                        .rows = 16384,
                                        .round_rows = 0,
                                        .steps = 4,
                                        .output = output},
                                       lab));
          if (!rates) continue;
          const double part = rates->chosen / std::ranges::max(rates->forced);
          ++cells;
          near += part >= kNearlyBest;
          wins += part >= kWins;
          std::string line =
              fmt::format("| {} | {} | {}K | {} |", device.name, count, prompt / 1024, output);
          for (const double rate : rates->forced) line += fmt::format(" {:.2f} |", rate / 1e3);
          print(line + fmt::format(" {:.2f} | {:.2f}{} |", rates->chosen / 1e3, part,
                                   part >= kWins ? " *" : ""));
        }
      }
    }
  }
  print(fmt::format(
      "\n{} cells fit. --mode auto has at least {} of the best forced mode's rate in {}, "
      "and is ahead of all of them by 3 % and more in {}, those with a star.\n",
      cells, kNearlyBest, near, wins));
  return {};
}

}  // namespace forebay::repro

#include "repro/dwdp/table.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "layout/memory_plan.h"
#include "repro/dwdp/context_steps.h"

namespace forebay::repro {
namespace {

constexpr StepMode kShips{.ffn = FfnMode::kShip};
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

struct Totals {
  int cells = 0, dwdp_wins = 0, auto_near = 0;
};

// "": the cell fits in no way.
base::Result<std::string> Line(ContextSteps setting, Lab& lab, Totals* totals) {
  setting.steps = 2;
  FB_ASSIGN_OR_RETURN(const MaybeTimes rotated, Try(setting, lab));
  ContextSteps parts = setting;
  parts.by_part = true;
  FB_ASSIGN_OR_RETURN(const MaybeTimes by_part, Try(parts, lab));
  setting.mode = kShips;
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
  const double gain = dwdp.tokens_per_s() / dep.tokens_per_s(),
               bound = dwdp.tokens_per_s() * (dep.step - dep.exchange) / 1e3 / dep.rows,
               best = std::max(dwdp.tokens_per_s(), exact->tokens_per_s()),
               auto_part = chosen->tokens_per_s() / best;
  ++totals->cells;
  totals->dwdp_wins += gain > 1;
  totals->auto_near += auto_part >= kNearlyBest;
  return fmt::format(
      "| {} | {} | {}K | {}K | {:.2f} | {:.1f} | {} | {:.1f} | {:.2f}{} | {:.2f} | {:.2f} |",
      setting.device, setting.ranks, setting.prompt / 1024, setting.rows / 1024,
      dwdp.compute() / dwdp.fetch, dwdp.tokens_per_s() / 1e3, part_wins ? "part" : "rotated",
      dep.tokens_per_s() / 1e3, gain, gain >= kWins ? " *" : "", bound, auto_part);
}

}  // namespace

base::Status PrintContextTable(Lab& lab, const std::function<void(const std::string&)>& print) {
  struct Device {
    const char *name, *model;
  };
  std::vector<Device> devices = {{"gb200-nvl72", "DeepSeek-R1-NVFP4"},
                                 {"b200", "DeepSeek-R1-NVFP4"},
                                 {"h200", "DeepSeek-R1-FP8"}};
  std::vector<int> ranks = {2, 3, 4, 8};
  std::vector<int64_t> prompts = {1024, 8192, 32768}, rows = {8192, 16384, 32768};
  if (lab.quick()) {
    devices.resize(1);
    ranks = {4};
    prompts = {8192};
    rows = {8192, 32768};
  }
  print(
      "| device | ranks | prompts | rows a step | compute / fetch | DWDP K tok/s a rank | | DEP | "
      "DWDP / DEP | / DEP whose exchange is free | `auto` / best |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|");
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
      "auto has at least {} of the best forced mode's rate in {}.\n",
      totals.cells, totals.dwdp_wins, kNearlyBest, totals.auto_near));
  return {};
}

}  // namespace forebay::repro

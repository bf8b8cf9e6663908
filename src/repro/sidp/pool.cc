// What the paper lacks: some layers pooled, striped over the ranks, as many as pool=auto takes,
// pulled by matrices.
#include <fmt/core.h>

#include <algorithm>

#include "repro/sidp/rows.h"

namespace forebay::repro {
namespace {

// The part of the best layout's tokens a second from which another counts as good.
constexpr double kAsGood = 0.98;

// A cell of the grid: nothing pooled, what is chosen, all layers; and what is chosen beside all
// layouts of the devices.
struct Cell {
  Decoding dp, chosen, all;
  LayoutsCompared compared;

  double best_other() const { return std::max(dp.tokens_per_s, all.tokens_per_s); }
  bool both_fit() const { return dp.batch > 0 && all.batch > 0; }
};

base::Result<Cell> RunCell(GroupSetting setting, Lab& lab) {
  Cell cell;
  FB_ASSIGN_OR_RETURN(cell.dp, lab.Decode(setting));
  setting.weights = kStriped;
  setting.by_matrix = true;
  FB_ASSIGN_OR_RETURN(cell.all, lab.Decode(setting));
  setting.pool = kAutoLayers;
  FB_ASSIGN_OR_RETURN(cell.chosen, lab.Decode(setting));
  FB_ASSIGN_OR_RETURN(cell.compared, lab.CompareLayouts(setting));
  if (cell.best_other() == 0) {
    return base::Status(
        base::kInvalidArgument,
        fmt::format("{} TP{}DP{} fits in no way", setting.model, setting.tp, setting.dp()));
  }
  return cell;
}

Account TermsOf(const Decoding& decoding) {
  return {{"n", static_cast<double>(decoding.pool_layers)},
          {"batch", decoding.batch},
          {"step ms", decoding.step_ms},
          {"fetch ms", decoding.fetch_ms},
          {"exposed ms", decoding.exposed_ms},
          {"K tok/s", decoding.tokens_per_s / 1e3}};
}

}  // namespace

FindingOr PoolChoice(const GroupSetting& key, double, Lab& lab) {
  FB_ASSIGN_OR_RETURN(const Cell cell, RunCell(key, lab));
  Finding finding{.calibrated = cell.chosen.tokens_per_s / cell.best_other()};
  Append("", TermsOf(cell.chosen), &finding.account);
  Append("DP: ", TermsOf(cell.dp), &finding.account);
  Append("all: ", TermsOf(cell.all), &finding.account);
  const LayoutsCompared& compared = cell.compared;
  Append("a job foreseen: ",
         {{"output K tok/s", compared.own / 1e3},
          {fmt::format("best of all layouts, {}", compared.best_layout), compared.best / 1e3},
          {"part of the best", compared.part()}},
         &finding.account);
  return finding;
}

FindingOr PoolGains(const std::vector<Cells>& grids, double, Lab& lab) {
  Finding finding{.shortened = lab.quick()};
  double both = 0, least = 10, best = 0, least_of_best = 1;
  for (const Cells& cells : grids) {
    for (const GroupSetting& each : std::span(cells).first(lab.quick() ? 1 : cells.size())) {
      FB_ASSIGN_OR_RETURN(const Cell cell, RunCell(each, lab));
      least = std::min(least, cell.chosen.tokens_per_s / cell.best_other());
      least_of_best = std::min(least_of_best, cell.compared.part());
      best += cell.compared.part() >= kAsGood;
      if (!cell.both_fit()) continue;
      ++both;
      finding.calibrated += cell.chosen.tokens_per_s >= 1.05 * cell.best_other();
    }
  }
  finding.account = {{"cells where both fit", both},
                     {"least of all cells", least},
                     {"cells whose job is foreseen within 2 % of the best of all layouts", best},
                     {"least part of these", least_of_best}};
  return finding;
}

}  // namespace forebay::repro

// What the paper lacks: some layers pooled, striped over the ranks, as many as pool=auto takes,
// pulled by matrices.
#include <algorithm>

#include "repro/sidp/rows.h"

namespace forebay::repro {
namespace {

// A cell of the grid: nothing pooled, what is chosen, all layers.
struct Cell {
  Decoding dp, chosen, all;

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
  return finding;
}

FindingOr PoolGains(const std::vector<Cells>& grids, double, Lab& lab) {
  Finding finding{.shortened = lab.quick()};
  double both = 0, least = 10;
  for (const Cells& cells : grids) {
    for (const GroupSetting& each : std::span(cells).first(lab.quick() ? 1 : cells.size())) {
      FB_ASSIGN_OR_RETURN(const Cell cell, RunCell(each, lab));
      least = std::min(least, cell.chosen.tokens_per_s / cell.best_other());
      if (!cell.both_fit()) continue;
      ++both;
      finding.calibrated += cell.chosen.tokens_per_s >= 1.05 * cell.best_other();
    }
  }
  finding.account = {{"cells where both fit", both}, {"least of all cells", least}};
  return finding;
}

}  // namespace forebay::repro

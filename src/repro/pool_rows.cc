// What the paper lacks: some layers pooled, striped over the ranks, as many as pool=auto takes, pulled by matrices.
#include <algorithm>

#include "base/check.h"
#include "repro/grid.h"
#include "repro/rows.h"

namespace forebay::repro {
namespace {

// A cell of the grid: nothing pooled, what is chosen, all layers.
struct Cell {
  Decoding dp, chosen, all;

  double best_other() const { return std::max(dp.tokens_per_s, all.tokens_per_s); }
  bool both_fit() const { return dp.batch > 0 && all.batch > 0; }
};

base::Result<Cell> RunCell(std::string_view label, const Setting& base, Lab& lab) {
  Setting setting = ReadLabel(label, base);
  Cell cell;
  FB_ASSIGN_OR_RETURN(cell.dp, lab.Decode(setting));
  setting.weights = "striped";
  setting.by_matrix = true;
  FB_ASSIGN_OR_RETURN(cell.all, lab.Decode(setting));
  setting.pool = kAutoLayers;
  FB_ASSIGN_OR_RETURN(cell.chosen, lab.Decode(setting));
  if (cell.best_other() == 0) return base::Status(base::kInvalidArgument, fmt::format("{} fits in no way", label));
  return cell;
}

void AddTerms(const Decoding& decoding, const std::array<std::string_view, 6>& names, std::vector<Term>* account) {
  const double values[] = {static_cast<double>(decoding.pool_layers), decoding.batch, decoding.step_ms, decoding.fetch_ms,
                           decoding.exposed_ms, decoding.tokens_per_s / 1e3};
  for (size_t i = 0; i < names.size(); ++i) account->push_back({names[i], values[i]});
}

}  // namespace

Findings PoolChoices(const Claim& claim, Lab& lab) {
  std::vector<Finding> findings;
  const Setting base = ReadLabel(claim.id.substr(claim.id.find('.') + 1));
  for (const ClaimedValue& value : claim.values) {
    FB_ASSIGN_OR_RETURN(const Cell cell, RunCell(value.label, base, lab));
    Finding finding{.calibrated = cell.chosen.tokens_per_s / cell.best_other()};
    AddTerms(cell.chosen, {"n", "batch", "step ms", "fetch ms", "exposed ms", "K tok/s"}, &finding.account);
    AddTerms(cell.dp, {"DP: n", "batch", "step ms", "fetch ms", "exposed ms", "K tok/s"}, &finding.account);
    AddTerms(cell.all, {"all: n", "batch", "step ms", "fetch ms", "exposed ms", "K tok/s"}, &finding.account);
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings PoolGains(const Claim& claim, Lab& lab) {
  std::vector<Finding> findings;
  for (size_t i = 0; i < claim.values.size(); ++i) {
    Finding finding;
    double both = 0, least = 10;
    for (const Claim& grid : Claims()) {
      if (!grid.id.starts_with("POOL.") || grid.id == claim.id) continue;
      const Claim cells = lab.quick() ? Reduced(grid) : grid;
      for (const ClaimedValue& value : cells.values) {
        FB_ASSIGN_OR_RETURN(const Cell cell, RunCell(value.label, ReadLabel(grid.id.substr(5)), lab));
        least = std::min(least, cell.chosen.tokens_per_s / cell.best_other());
        if (!cell.both_fit()) continue;
        ++both;
        finding.calibrated += cell.chosen.tokens_per_s >= 1.05 * cell.best_other();
      }
    }
    finding.account = {{"cells where both fit", both}, {"least of all cells", least}};
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace forebay::repro

#include "repro/scenario.h"

#include <algorithm>

namespace forebay::repro {
namespace {

// What precedes the dot of "model.Qwen3-32B".
std::string_view Group(std::string_view id) { return id.substr(0, id.find('.')); }

bool Names(std::string_view row, const Paper& paper, const Claim& claim) {
  return row == claim.id || row == Group(claim.id) || row == paper.name;
}

std::string KnownRows() {
  std::string known;
  std::string_view last;
  for (const Paper& paper : Papers()) {
    for (const Claim& claim : paper.claims) {
      const std::string_view group = Group(claim.id);
      if (group != last) known += (known.empty() ? "" : ", ") + std::string(group);
      last = group;
    }
  }
  return known;
}

}  // namespace

base::Result<std::vector<const Claim*>> SelectClaims(std::span<const std::string> rows) {
  std::vector<const Claim*> selected;
  std::vector<bool> known(rows.size());
  for (const Paper& paper : Papers()) {
    for (const Claim& claim : paper.claims) {
      bool named = rows.empty();
      for (size_t i = 0; i < rows.size(); ++i) {
        if (!Names(rows[i], paper, claim)) continue;
        named = known[i] = true;
      }
      if (named) selected.push_back(&claim);
    }
  }
  if (const auto unknown = std::ranges::find(known, false); unknown != known.end()) {
    return base::Status(
        kRowUnknown,
        fmt::format("row \"{}\" is unknown; expected one of {}, or of what --list shows",
                    rows[static_cast<size_t>(unknown - known.begin())], KnownRows()));
  }
  return selected;
}

Claim Reduced(const Claim& claim) {
  Claim reduced = claim;
  if (claim.kind == Kind::kOrder) reduced.values = {claim.values.front()};
  if (claim.kind == Kind::kBand && claim.values.size() > 2)
    reduced.values = {claim.values.front(), claim.values.back()};
  return reduced;
}

base::Result<RowResult> RunRow(const Claim& claim, Lab& lab) {
  RowResult row{.claim = lab.quick() ? Reduced(claim) : claim};
  if (row.claim.values.size() < claim.values.size())
    row.shortened = fmt::format("{} of {} values", row.claim.values.size(), claim.values.size());
  bool less = false;
  for (const ClaimedValue& value : row.claim.values) {
    FindingOr finding = value.measure(lab);
    if (!finding.ok()) return finding.status().WithContext(claim.id);
    row.verdicts.push_back(finding->shortened ? Verdict::kNotJudged
                           : !finding->not_reached.empty()
                               ? Verdict::kNotReached
                               : Judge(claim, value, finding->calibrated));
    row.verdict = std::max(row.verdict, row.verdicts.back());
    less = less || finding->shortened;
    if (finding->more && !lab.quick() &&
        (row.verdicts.back() == Verdict::kNotReproduced || claim.account_all))
      FB_RETURN_IF_ERROR(finding->more(&finding->account).WithContext(claim.id));
    row.findings.push_back(*std::move(finding));
  }
  if (less) row.shortened += (row.shortened.empty() ? "" : ", ") + std::string("parts of each");
  if (!row.shortened.empty()) row.verdict = std::max(row.verdict, Verdict::kNotJudged);
  return row;
}

}  // namespace forebay::repro

#include "repro/scenario.h"

#include <algorithm>

#include "base/check.h"
#include "repro/rows.h"

namespace forebay::repro {
namespace {

struct Entry {
  std::string_view id;  // of a claim, or the group of several ("model")
  Scenario run;
};

constexpr Entry kEntries[] = {
    {"model", &ModelFigures},
    {"DW3", &PullContention},
    {"SI4.DP8", &BatchScaling},
    {"VA7", &MemoryAndChunks},
};

// What precedes the dot of "model.Qwen3-32B".
std::string_view Group(std::string_view id) { return id.substr(0, id.find('.')); }

std::string KnownRows() {
  std::string known;
  std::string_view last;
  for (const Claim& claim : Claims()) {
    const std::string_view group = Group(claim.id);
    if (group != last) known += (known.empty() ? "" : ", ") + std::string(group);
    last = group;
  }
  return known;
}

}  // namespace

Scenario FindScenario(std::string_view id) {
  for (const Entry& entry : kEntries) {
    if (entry.id == id || entry.id == Group(id)) return entry.run;
  }
  return nullptr;
}

base::Result<std::vector<const Claim*>> SelectClaims(std::span<const std::string> rows) {
  std::vector<const Claim*> selected;
  for (const Claim& claim : Claims()) {
    const auto names = [&](const std::string& row) { return row == claim.id || row == Group(claim.id); };
    if (rows.empty() || std::ranges::any_of(rows, names)) selected.push_back(&claim);
  }
  for (const std::string& row : rows) {
    const auto named = [&](const Claim* claim) { return row == claim->id || row == Group(claim->id); };
    if (std::ranges::none_of(selected, named)) {
      return base::Status(kRowUnknown, fmt::format("row \"{}\" is unknown; expected one of {}, or of what --list shows", row,
                                                   KnownRows()));
    }
  }
  return selected;
}

base::Result<RowResult> RunRow(const Claim& claim) {
  const Scenario scenario = FindScenario(claim.id);
  FB_CHECK(scenario != nullptr, "claim {} has no scenario", claim.id);
  auto findings = scenario(claim);
  if (!findings.ok()) return findings.status().WithContext(claim.id);
  FB_CHECK(findings->size() == claim.values.size(), "{}: {} findings for {} values", claim.id, findings->size(),
           claim.values.size());
  RowResult row{.claim = &claim, .findings = std::move(*findings)};
  for (size_t i = 0; i < claim.values.size(); ++i) {
    row.verdicts.push_back(Judge(claim, claim.values[i], row.findings[i].calibrated));
    row.verdict = std::max(row.verdict, row.verdicts.back());
  }
  return row;
}

}  // namespace forebay::repro

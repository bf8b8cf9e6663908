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
    {"SI0", &PrefetchOfALayer},
    {"SI1.fits", &LayoutsFit},
    {"SI1", &KvCapacity},
    {"SI2", &KvByLayout},
    {"SI3", &LessMemory},
    {"SI4.DP8", &BatchScaling},
    {"SI4.TP8", &BatchScalingTp},
    {"SI5", &Throughput},
    {"SI6.fetch", &FetchOfAllLayers},
    {"SI6", &StepAgainstFetch},
    {"SI7", &PeakShifting},
    {"SI8", &ModesByBatch},
    {"SI9", &ModeSwitch},
    {"SI10", &TailSteps},
    {"SI11", &StepsThatPull},
    {"SI12", &Throughput},
    {"POOL.gains", &PoolGains},
    {"POOL", &PoolChoices},
    {"VA7", &MemoryAndChunks},
};

// What precedes the dot of "model.Qwen3-32B".
std::string_view Group(std::string_view id) { return id.substr(0, id.find('.')); }

// Of SiDP: "SI..." and what goes beyond it.
bool IsSidp(const Claim& claim) { return claim.id.starts_with("SI") || claim.id.starts_with("POOL"); }

bool Names(std::string_view row, const Claim& claim) {
  return row == claim.id || row == Group(claim.id) || (row == "sidp" && IsSidp(claim));
}

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
    const auto names = [&](const std::string& row) { return Names(row, claim); };
    if (rows.empty() || std::ranges::any_of(rows, names)) selected.push_back(&claim);
  }
  for (const std::string& row : rows) {
    const auto named = [&](const Claim* claim) { return Names(row, *claim); };
    if (std::ranges::none_of(selected, named)) {
      return base::Status(kRowUnknown, fmt::format("row \"{}\" is unknown; expected one of {}, or of what --list shows", row,
                                                   KnownRows()));
    }
  }
  return selected;
}

Claim Reduced(const Claim& claim) {
  Claim reduced = claim;
  if (claim.kind == Kind::kOrder) reduced.values = {claim.values.front()};
  if (claim.kind == Kind::kBand && claim.values.size() > 2) reduced.values = {claim.values.front(), claim.values.back()};
  return reduced;
}

base::Result<RowResult> RunRow(const Claim& claim, Lab& lab) {
  const Scenario scenario = FindScenario(claim.id);
  FB_CHECK(scenario != nullptr, "claim {} has no scenario", claim.id);
  auto findings = scenario(claim, lab);
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

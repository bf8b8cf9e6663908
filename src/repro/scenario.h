// Scenarios: functions that compute what a claim says, from configurations, device profiles and the simulated engine alone.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "repro/claim.h"
#include "repro/lab.h"
#include "repro/verdict.h"

namespace forebay::repro {

inline constexpr base::ErrorCode kRowUnknown{"repro_row_unknown"};

// A part of the account of a figure: "step, ms".
struct Term {
  std::string_view name;
  double value = 0;
};

// One of a claim's values, ours.
struct Finding {
  double calibrated = 0;
  std::optional<double> uncalibrated;  // where prices matter: the roofline's, without measured kernels
  std::vector<Term> account;           // what the figure is made of
};

// Findings in the order of claim.values. What several rows run is in the lab.
using Scenario = base::Result<std::vector<Finding>> (*)(const Claim& claim, Lab& lab);

// Null: no scenario has this id.
Scenario FindScenario(std::string_view id);

struct RowResult {
  const Claim* claim = nullptr;
  std::vector<Finding> findings;
  std::vector<Verdict> verdicts;  // of each finding
  Verdict verdict = Verdict::kReproduced;
};

// The claims that `rows` name: an id, or what precedes a dot in several ids ("model"), or "sidp"; none: all. kRowUnknown lists them.
base::Result<std::vector<const Claim*>> SelectClaims(std::span<const std::string> rows);

// What a quick run is content with: of a band the first and the last value, of an order the first.
Claim Reduced(const Claim& claim);

base::Result<RowResult> RunRow(const Claim& claim, Lab& lab);

}  // namespace forebay::repro

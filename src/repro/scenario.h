// Runs the papers' claims: what is computed for each value, from configurations, device profiles
// and the simulated engine alone, and how it compares.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "repro/claim.h"
#include "repro/lab.h"
#include "repro/verdict.h"

namespace forebay::repro {

inline constexpr base::ErrorCode kRowUnknown{"repro_row_unknown"};

struct RowResult {
  Claim claim;            // with the values that were run
  std::string shortened;  // What a quick run left out; empty: nothing.
  std::string setting;    // Of a lab with substitutes: whether they reach the row. Else empty.
  bool reached = false;   // They do.
  std::vector<Finding> findings;
  std::vector<Verdict> verdicts;  // one for each finding
  Verdict verdict = Verdict::kReproduced;
};

// The claims that `rows` name: an id, or what precedes a dot in several ids ("SI4"), or a paper
// ("sidp"), or words of the source ("Shift 9": "Shift Parallelism, Figure 9"); in any case of
// letters. None: all. kRowUnknown lists them.
base::Result<std::vector<const Claim*>> SelectClaims(std::span<const std::string> rows);

// What a quick run is content with: of a band the first and the last value, of an order the first.
Claim Reduced(const Claim& claim);

// A quick lab runs the claim reduced. Its verdicts are those of the full run, or kNotJudged. A lab
// with substitutes judges nothing and accounts for nothing: the claim is of another setting.
base::Result<RowResult> RunRow(const Claim& claim, Lab& lab);

}  // namespace forebay::repro

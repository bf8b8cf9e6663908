// Rows for people and for programs.
#pragma once

#include <span>
#include <string>

#include "repro/scenario.h"

namespace forebay::repro {

// A heading and a line a value; below, what was assumed, what contradicts, and the account of what
// is not reproduced.
std::string RowText(const RowResult& row);

// "7 rows: 6 reproduced, 1 contradiction".
std::string TotalsText(std::span<const RowResult> rows);

// A line a value, with a heading: row, source, value, claimed, ours, uncalibrated, verdict. What is
// not reached is empty.
std::string RowsCsv(std::span<const RowResult> rows);

// A picture of bars, claimed beside ours, a group a value; each row has a scale of its own. What is
// not reached has no bar.
std::string RowsSvg(std::span<const RowResult> rows);

// One object: {"rows": [{"id", "source", "claim", "assumed", "kind", "band", "verdict", "values":
// [{"label", "claimed", "calibrated", "uncalibrated", "verdict", "not_reached", "contradiction",
// "account": {term: value}}]}]}, in one line. What is not reached has no figure: null.
std::string RowsJson(std::span<const RowResult> rows);

}  // namespace forebay::repro

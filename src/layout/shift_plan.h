// In which modes a replica may take a step where the layout cuts rows (Shift Parallelism, arXiv
// 2509.16495), and which of them a step of so many rows takes.
#pragma once

#include <string>
#include <vector>

#include "layout/options.h"
#include "model/activations.h"
#include "schedule/shift_table.h"

namespace forebay::layout {

inline constexpr base::ErrorCode kShiftInvalid{"shift_invalid"};

struct ShiftPlan {
  schedule::ShiftTable table;         // empty: the layout has one mode
  std::vector<model::Degrees> modes;  // the layout's first, then by growing tp

  // The modes that steps may take, with the most rows of each.
  std::vector<model::ModeRows> ModesInUse(int64_t max_rows) const;
};

// The modes of a layout: all s' x t' = s t with t dividing t', or its two ends alone.
std::vector<model::Degrees> ModesOf(const model::Degrees& layout, bool ends);
std::string FormatMode(const model::Degrees& mode);  // "4x2"

// The entry of a table whose steps of up to `most_rows` rows take the mode.
schedule::ShiftEntry ShiftEntryOf(const model::Degrees& mode, int64_t most_rows);

// What the options say: the layout's modes, and the table where a mode or a threshold is forced.
// The table stays empty where the layout has several modes and the options leave open which step
// takes which. kShiftInvalid: modes or thresholds of a layout with sp=1, a mode that the layout
// does not have.
base::Result<ShiftPlan> AskedShift(const EngineOptions& options, const Layout& layout);
// Whether --kv-replication and --shift-weights are of use to steps by the plan's table.
// kShiftInvalid.
base::Status CheckShift(const EngineOptions& options, const model::ModelConfig& config,
                        const Layout& layout, const ShiftPlan& plan);

}  // namespace forebay::layout

// What `forebay profile` measures: each function adds its numbers and tables to the profile.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cost/profile.h"
#include "profile/bench.h"

namespace forebay::profile {

// One line of progress.
using ProgressFn = std::function<void(std::string_view)>;

// Adds or replaces a number with where it comes from.
void SetNumber(cost::DeviceProfile* profile, std::string_view key, double value, cost::Mark mark,
               std::string source);

// Arithmetic from registers and reads of memory, all workers at once: the unit of every table.
void MeasurePeaks(Bench& bench, cost::DeviceProfile* profile);
// What all usable cores read at once, where the profile is of some of them.
base::Status MeasureMachine(runtime::Runtime& runtime, BenchOptions options,
                            cost::DeviceProfile* profile);
void MeasureLinears(Bench& bench, const ProgressFn& progress, cost::DeviceProfile* profile);
// The time of an expert's share of grouped ones at all points of the axes. `format`: kBF16, kInt4
// (Q4_0) or kInt8.
cost::UtilisationTable MeasureExpertTable(Bench& bench, cost::NumberFormat format,
                                          const std::array<std::vector<double>, 3>& axes,
                                          int held_out);
void MeasureExperts(Bench& bench, const ProgressFn& progress, cost::DeviceProfile* profile);
void MeasureAttention(Bench& bench, const ProgressFn& progress, cost::DeviceProfile* profile);
// Norms, rope, embedding and sampling.
void MeasureRows(Bench& bench, const ProgressFn& progress, cost::DeviceProfile* profile);
void MeasureCopies(Bench& bench, cost::DeviceProfile* profile);
// The disk on which `path` lies, by a file that has no name. Errors: it cannot serve a KV file.
base::Status MeasureDisk(Bench& bench, const std::string& path, cost::DeviceProfile* profile);
// What a step of a very small model takes beside its operations.
base::Status MeasureStepOverhead(const BenchOptions& options, runtime::Runtime& runtime,
                                 cost::DeviceProfile* profile);

}  // namespace forebay::profile

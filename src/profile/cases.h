// What `forebay profile` measures: each function adds its numbers and tables to the profile.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "cost/profile.h"
#include "profile/bench.h"

namespace forebay::profile {

// Adds or replaces a number with where it comes from.
void SetNumber(cost::DeviceProfile* profile, std::string_view key, double value, cost::Mark mark,
               std::string source);

// Seconds of linear layers of bf16 weights with one leaf, at a point of their table.
double LinearSeconds(Bench& bench, const cost::Point& point);
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
// The disk on which `path` lies, by a file that has no name. Errors: it cannot serve a KV file.
base::Status MeasureDisk(Bench& bench, const std::string& path, cost::DeviceProfile* profile);
// What a step of a very small model takes beside its operations.
base::Status MeasureStepOverhead(const Subject& subject, runtime::Runtime& runtime,
                                 cost::DeviceProfile* profile);

}  // namespace forebay::profile

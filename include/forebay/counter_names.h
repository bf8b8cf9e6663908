// Names of counters in EngineStats::mode_counters that code looks up. The table of all counters is
// engine/counters.cc.
#pragma once

namespace forebay::counter_names {

inline constexpr char kExpectedMs[] = "expected_ms";
// Percentages of that time, by the source of its prices.
inline constexpr char kPricedMeasured[] = "priced_measured_percent";
inline constexpr char kPricedDerived[] = "priced_derived_percent";
inline constexpr char kPricedDatasheet[] = "priced_datasheet_percent";
inline constexpr char kLeastSteps[] = "least_steps";
inline constexpr char kRowsRouted[] = "rows_routed";
inline constexpr char kExpertsTouched[] = "experts_touched";
inline constexpr char kExpertGroups[] = "expert_groups";
inline constexpr char kExpertsInGroups[] = "experts_in_groups";
inline constexpr char kExpertBusiestRows[] = "expert_busiest_rows";
inline constexpr char kBytesAllToAll[] = "bytes_all_to_all";
inline constexpr char kBytesAllReduce[] = "bytes_all_reduce";
inline constexpr char kKvBlocksStreamed[] = "kv_blocks_streamed";
inline constexpr char kOffloadUnused[] = "kv_offload_unused";
// Prefix of the counter of each mode that cuts rows or heads; degrees follow: "steps_sp8tp1".
inline constexpr char kStepsByDegrees[] = "steps_sp";

}  // namespace forebay::counter_names

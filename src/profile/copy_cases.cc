#include <algorithm>

#include "profile/cases.h"
#include "profile/measure_table.h"

namespace forebay::profile {

void MeasureCopies(Bench& bench, cost::DeviceProfile* profile) {
  constexpr double kSmall = 4096, kLarge = 16 << 20;
  const double small = bench.CopySeconds(static_cast<int64_t>(kSmall), 1),
               large = bench.CopySeconds(static_cast<int64_t>(kLarge), 1);
  const double rate = (kLarge - kSmall) / std::max(large - small, 1e-9);
  constexpr cost::Mark kMark = cost::Mark::kMeasured;
  SetNumber(profile, "copy_bytes_per_core_s", rate, kMark, "copies of 16 MiB on one copy stream");
  SetNumber(profile, "link_bytes_per_s", rate, kMark,
            "a copy stream; between ranks of a CPU there is no other link");
  SetNumber(profile, "link_efficiency", 1, cost::Mark::kDerived,
            "the link is measured as it is used");
  SetNumber(profile, "link_latency_s", std::max(small - kSmall / rate, 0.0), kMark,
            "copies of 4 KiB on one copy stream");
  TableSpec spec;
  spec.op = cost::TableOp::kCopy;
  spec.axes = {{{kSmall, 65536, 1 << 20, kLarge}, {1, 2, 3}, {1}}};
  spec.grain = {64, 0, 0};
  spec.seconds = [&](const cost::Point& point) {
    return bench.CopySeconds(static_cast<int64_t>(point[0]), static_cast<int>(point[1]));
  };
  profile->tables.push_back(MeasureTable(spec, bench.quick() ? 3 : 8));
}

}  // namespace forebay::profile

#include "cost/all_reduce.h"

namespace forebay::cost {

double AllReduceSeconds(const AllReduceShape& shape, int64_t rows, int meetings,
                        const DeviceProfile& device, Calibration calibration) {
  const auto seconds = [&](Collective collective, int element_bytes) {
    const OpDesc desc{.kind = OpKind::kCollective,
                      .read_bytes = static_cast<double>(rows) * static_cast<double>(shape.columns) *
                                    element_bytes,
                      .collective = collective,
                      .ranks = shape.ranks};
    return Price(desc, device, calibration).seconds;
  };
  if (meetings == 1) return seconds(Collective::kAllReduce, shape.wire_bytes);
  return seconds(Collective::kReduceScatter, shape.wire_bytes) +
         seconds(Collective::kAllGather, shape.sum_bytes);
}

int64_t RowsOfOneMeeting(const AllReduceShape& shape, int64_t max_rows, const DeviceProfile& device,
                         Calibration calibration) {
  const auto once = [&](int64_t rows) {
    return AllReduceSeconds(shape, rows, 1, device, calibration) <=
           AllReduceSeconds(shape, rows, 2, device, calibration);
  };
  if (shape.ranks == 1 || once(max_rows)) return max_rows;
  int64_t one = 0, two = max_rows;
  while (two - one > 1) {
    const int64_t middle = one + (two - one) / 2;
    (once(middle) ? one : two) = middle;
  }
  return one;
}

}  // namespace forebay::cost

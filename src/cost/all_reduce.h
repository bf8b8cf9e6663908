// The number of meetings in which ranks add their partial sums of the same rows. With one, each
// rank reads the sums of all others and adds all rows. With two, each adds its part of the rows,
// then copies the others' rounded parts: less traffic, two waits. Pure.
//
// One meeting is priced as an all-reduce, which accelerators' tables have measured as one call of
// their libraries.
#pragma once

#include "cost/model.h"

namespace forebay::cost {

// The sums of a row.
struct AllReduceShape {
  int64_t columns = 0;
  int ranks = 1;
  int wire_bytes = 4;  // an element's before it is rounded
  int sum_bytes = 2;   // and after
};

// Seconds of all meetings together. REQUIRES: one meeting or two.
double AllReduceSeconds(const AllReduceShape& shape, int64_t rows, int meetings,
                        const DeviceProfile& device, Calibration calibration);

// The rows up to which one meeting takes no longer; found by halving, at most `max_rows`.
int64_t RowsOfOneMeeting(const AllReduceShape& shape, int64_t max_rows, const DeviceProfile& device,
                         Calibration calibration);

}  // namespace forebay::cost

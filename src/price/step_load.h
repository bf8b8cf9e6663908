// A step's rows, as far as its price depends on them.
#pragma once

#include <cstdint>

#include "kernels/step_batch.h"

namespace forebay::price {

struct StepLoad {
  kernels::ContextSums sums;
  int64_t sampled = 0;  // rows whose token is drawn

  int64_t rows() const { return sums.prefill_rows + sums.decode_rows; }
};

// Rows of all ranks that take a step together, and how many of these have some.
struct RowsOfAll {
  int64_t rows = 0, ranks = 0;
};

// Rows that decode, each with `context` positions before it.
inline StepLoad Decoding(int64_t rows, int64_t context) {
  StepLoad load{.sampled = rows};
  load.sums.decode_rows = rows;
  load.sums.decode_context = rows * context;
  return load;
}

}  // namespace forebay::price

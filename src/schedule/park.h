// What becomes of KV that loses its place: it goes to the tier below and comes back, or it is
// computed again, whichever takes less. Pure.
#pragma once

#include <cstdint>

namespace forebay::schedule {

// By the device's profile. With prices of 0 nothing goes below.
struct ParkPrices {
  bool preempted = true;             // whether that of preempted choices may, too
  double row_seconds = 0;            // added to a step by one more row of a prompt
  double context_token_seconds = 0;  // by one more token that such a row sees
  double block_seconds = 0;          // a block's way down
  double block_up_seconds = 0;       // and its way up
  double far_block_seconds = 0;      // the same of the far level, where there are two
  double far_block_up_seconds = 0;
  double move_seconds = 0;  // to move anything at all, one way
};

struct ParkView {
  int64_t rows = 0;              // positions that would be computed again
  int64_t fresh_blocks = 0;      // that would go down: the others are below already
  int64_t blocks = 0;            // that would come back
  int64_t before = 0;            // positions before those, which the rows would see
  int64_t far_fresh_blocks = 0;  // those of them in the far level
  int64_t far_blocks = 0;
};

bool ParkPays(const ParkView& view, const ParkPrices& prices);

}  // namespace forebay::schedule

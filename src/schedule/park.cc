#include "schedule/park.h"

namespace forebay::schedule {

bool ParkPays(const ParkView& view, const ParkPrices& prices) {
  const auto rows = static_cast<double>(view.rows);
  const double moves = 2 * prices.move_seconds +
                       static_cast<double>(view.fresh_blocks + view.blocks) * prices.block_seconds;
  // A row sees half of them on average.
  return moves < rows * (prices.row_seconds + rows / 2 * prices.context_token_seconds);
}

}  // namespace forebay::schedule

#include "schedule/park.h"

namespace forebay::schedule {

bool ParkPays(const ParkView& view, const ParkPrices& prices) {
  const auto rows = static_cast<double>(view.rows);
  const int ways = (view.fresh_blocks > 0) + (view.blocks > 0);
  const double moves =
      ways * prices.move_seconds +
      static_cast<double>(view.fresh_blocks - view.far_fresh_blocks) * prices.block_seconds +
      static_cast<double>(view.blocks - view.far_blocks) * prices.block_up_seconds +
      static_cast<double>(view.far_fresh_blocks) * prices.far_block_seconds +
      static_cast<double>(view.far_blocks) * prices.far_block_up_seconds;
  // A row sees half of these rows on average.
  const double seen = static_cast<double>(view.before) + rows / 2;
  return moves < rows * (prices.row_seconds + seen * prices.context_token_seconds);
}

}  // namespace forebay::schedule

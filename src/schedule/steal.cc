#include "schedule/steal.h"

#include <algorithm>
#include <tuple>

namespace forebay::schedule {

bool MovePays(const HeldView& held, const StealPrices& prices) {
  const auto kv_tokens = static_cast<double>(held.kv_tokens);
  const double move = prices.move_seconds + kv_tokens * prices.kv_token_seconds;
  const double token = prices.row_seconds + kv_tokens * prices.context_token_seconds;
  return move < static_cast<double>(held.tokens_left) * token;
}

void ChooseGifts(const StealView& view, const StealPrices& prices, std::vector<int32_t>* gifts) {
  gifts->clear();
  std::vector<int32_t> candidates;
  int64_t left = 0;
  for (size_t i = 0; i < view.held.size(); ++i) {
    const HeldView& held = view.held[i];
    left += held.tokens_left;
    if (held.movable && (held.kv_tokens == 0 || MovePays(held, prices)))
      candidates.push_back(static_cast<int32_t>(i));
  }
  // Requests that take no KV along go first, long ones before short ones: few moves for much work.
  std::ranges::stable_sort(candidates, [&](int32_t a, int32_t b) {
    const HeldView &x = view.held[a], &y = view.held[b];
    return std::tuple(x.kv_tokens > 0, -x.tokens_left) <
           std::tuple(y.kv_tokens > 0, -y.tokens_left);
  });
  // The giver keeps a share as large as each asker's, and one request at least.
  const int64_t share = left / (view.askers + 1);
  const auto most = std::min<int64_t>(view.most, static_cast<int64_t>(view.held.size()) - 1);
  int64_t given = 0;
  for (const int32_t index : candidates) {
    if (static_cast<int64_t>(gifts->size()) >= most) return;
    const int64_t tokens = view.held[index].tokens_left;
    if (given + tokens > share) continue;
    given += tokens;
    gifts->push_back(index);
  }
}

}  // namespace forebay::schedule

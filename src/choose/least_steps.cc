#include "choose/least_steps.h"

#include <algorithm>
#include <cmath>

namespace forebay::choose {

int64_t LeastSteps(std::span<const layout::ChoiceShape> job, const schedule::Limits& limits,
                   int64_t max_model_len) {
  int64_t longest = 0, rows = 0, stays = 0;
  double held = 0;  // tokens, summed over the steps in which they are held
  for (const layout::ChoiceShape& choice : job) {
    if (choice.prompt + choice.output > max_model_len) continue;
    // The last rows of the prompt give the first token.
    const int64_t own = choice.prompt - choice.shared,
                  before = std::max<int64_t>(0, own - 1) / limits.max_num_batched_tokens;
    const auto steps = static_cast<double>(choice.output);
    longest = std::max(longest, before + choice.output);
    rows += own + choice.output - 1;
    stays += choice.output;
    held += steps * (static_cast<double>(own) + (steps - 1) / 2);
  }
  const auto filled = [](int64_t sum, int64_t most) { return (sum + most - 1) / most; };
  int64_t least = std::max(
      {longest, filled(rows, limits.max_num_batched_tokens), filled(stays, limits.max_num_seqs)});
  if (limits.total_blocks > 0) {
    const double tokens = static_cast<double>(limits.total_blocks) * limits.block_tokens;
    least = std::max(least, static_cast<int64_t>(std::ceil(held / tokens)));
  }
  return least;
}

}  // namespace forebay::choose

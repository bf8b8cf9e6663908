#include "schedule/due.h"

#include <algorithm>
#include <cmath>

namespace forebay::schedule {
namespace {

// The share of the time that is left which a batch may need.
constexpr double kShareOfTime = 0.8;

}  // namespace

void BatchRate::Observe(double seconds, int64_t batch_rows) {
  constexpr double kSeconds = 120;
  if (batch_rows <= 0 || seconds <= 0) return;
  const double kept = std::exp(-seconds / kSeconds);
  seconds_ = kept * seconds_ + seconds;
  steps_ = kept * steps_ + 1;
  tokens_ = kept * tokens_ + static_cast<double>(batch_rows);
}

double HurriedUntil(std::vector<DueWork> work, const BatchRate& rate, double now_seconds) {
  double hurried = -kNoDeadline, tokens = 0;
  if (rate.tokens_per_second() <= 0) return hurried;
  std::ranges::sort(work, {}, &DueWork::deadline);
  for (const DueWork& due : work) {
    tokens += due.tokens;
    const double needs =
        tokens / rate.tokens_per_second() + due.longest_output * rate.step_seconds();
    if (needs > kShareOfTime * (due.deadline - now_seconds)) hurried = due.deadline;
  }
  return hurried;
}

}  // namespace forebay::schedule

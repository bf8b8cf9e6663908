#include "schedule/due.h"

#include <algorithm>
#include <cmath>
#include <utility>

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
  double hurried = -kNoDeadline, tokens = 0, deadline = -kNoDeadline, longest_output = 0;
  if (rate.tokens_per_second() <= 0) return hurried;
  std::ranges::sort(work, {}, &DueWork::deadline);
  for (const DueWork& due : work) {
    tokens += due.tokens;
    // A batch comes in many parts, any of which may have its longest output.
    if (std::exchange(deadline, due.deadline) != due.deadline) longest_output = 0;
    longest_output = std::max(longest_output, due.longest_output);
    const double needs = tokens / rate.tokens_per_second() + longest_output * rate.step_seconds();
    if (needs > kShareOfTime * (due.deadline - now_seconds)) hurried = due.deadline;
  }
  return hurried;
}

}  // namespace forebay::schedule

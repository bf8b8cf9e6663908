#include "kv/book/stream_limit.h"

#include <algorithm>
#include <utility>

namespace forebay::kv {

bool StreamLimit::Observe(const StreamedStep& step) {
  if (step.blocks == 0 || step.seconds <= 0) return false;
  sum_.seconds += step.seconds;
  sum_.exposed_seconds += step.exposed_seconds;
  sum_.blocks += step.blocks;
  if (++steps_ < kInterval) return false;
  steps_ = 0;
  last_ = std::exchange(sum_, {});
  const double exposed = std::min(1.0, last_.exposed_seconds / last_.seconds),
               blocks = static_cast<double>(last_.blocks) / kInterval,
               aim = options_.most_exposed / 2;
  if (exposed > options_.most_exposed) {
    const auto hidden = static_cast<int32_t>(blocks * (1 - exposed + aim));
    const int32_t next = std::max(options_.least, std::min(limit_, hidden));
    if (next == limit_) return false;
    limit_ = next;
    lowest_ = std::min(lowest_, next);
    ++shrinks_;
    return true;
  }
  // It grows where it is what holds the number down, by less than what may be exposed.
  if (exposed < aim / 2 && blocks > 0.9 * limit_)
    limit_ = std::min(options_.places, limit_ + std::max(1, limit_ / 64));
  return false;
}

void StreamLimit::Set(int32_t limit) {
  limit_ = std::clamp(limit, options_.least, options_.places);
  lowest_ = std::min(lowest_, limit_);
}

}  // namespace forebay::kv

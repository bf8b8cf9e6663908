#include "device/touch_pages.h"

#include <algorithm>

#include "runtime/parallel_for.h"

namespace forebay::device {
namespace {

constexpr int64_t kAtOnce = 2 << 20, kPageBytes = 4096;

}  // namespace

void TouchPages(const Region& region, uint64_t bytes, int threads) {
  const auto end = static_cast<int64_t>(std::min(bytes, region.bytes));
  const auto most = static_cast<int>(std::min<int64_t>(threads, end / kAtOnce + 1));
  runtime::ParallelFor(most, [&](runtime::Tickets& tickets) {
    for (int64_t at = tickets.Next() * kAtOnce; at < end; at = tickets.Next() * kAtOnce) {
      for (int64_t i = at; i < std::min(at + kAtOnce, end); i += kPageBytes)
        region.data[i] = std::byte{0};
    }
  });
}

}  // namespace forebay::device

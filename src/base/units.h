// Bytes and times as people write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace forebay::base {

inline constexpr uint64_t kKiB = 1ull << 10;
inline constexpr uint64_t kMiB = 1ull << 20;
inline constexpr uint64_t kGiB = 1ull << 30;

constexpr uint64_t RoundUp(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr uint64_t CeilDiv(uint64_t value, uint64_t divisor) {
  return (value + divisor - 1) / divisor;
}

// "8GiB", "1.5G" (decimal), "300MB", "65536" -> bytes. Suffixes K M G T are powers of 1000, Ki Mi
// Gi Ti of 1024, a last B is optional, case is ignored.
Result<uint64_t> ParseBytes(std::string_view text);

// 1610612736 -> "1.50 GiB".
std::string FormatBytes(uint64_t bytes);

// 75.3 -> "1m 15s"; 0.5 -> "0.5s"; 7260 -> "2h 1m".
std::string FormatDuration(double seconds);

}  // namespace forebay::base

#include "base/units.h"

#include <cctype>
#include <charconv>
#include <cmath>

namespace forebay::base {

Result<uint64_t> ParseBytes(std::string_view text) {
  const auto bad = [&] {
    return Status(
        kInvalidArgument,
        fmt::format("\"{}\" is no size; expected a number with an optional suffix, like 8GiB, "
                    "500MB or 65536",
                    text));
  };
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return bad();
  std::string suffix;
  for (const char* p = end; p != text.data() + text.size(); ++p) {
    if (*p != ' ') suffix += static_cast<char>(std::tolower(static_cast<unsigned char>(*p)));
  }
  if (!suffix.empty() && suffix.back() == 'b') suffix.pop_back();
  double unit = 1;
  if (!suffix.empty()) {
    const size_t power = std::string_view("kmgt").find(suffix[0]);
    const bool binary = suffix.size() == 2 && suffix[1] == 'i';
    if (power == std::string_view::npos || (suffix.size() > 1 && !binary)) return bad();
    unit = std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
  }
  const double bytes = number * unit;
  if (bytes >= 0x1p63) return bad();
  return static_cast<uint64_t>(bytes);
}

std::string FormatBytes(uint64_t bytes) {
  if (bytes >= kGiB) return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / kGiB);
  if (bytes >= kMiB) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / kMiB);
  if (bytes >= kKiB) return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / kKiB);
  return fmt::format("{} B", bytes);
}

std::string FormatDuration(double seconds) {
  if (seconds < 10) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(std::llround(seconds));
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m {}s", whole / 60, whole % 60);
  return fmt::format("{}h {}m", whole / 3600, whole % 3600 / 60);
}

}  // namespace forebay::base

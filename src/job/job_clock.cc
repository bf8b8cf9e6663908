#include "job/job_clock.h"

#include <fstream>
#include <string_view>

namespace forebay::job {

std::optional<std::string> FindJobClock(const std::string& results_path) {
  constexpr size_t kClockLength = std::string_view("2026-03-07T14:05:09").size();
  constexpr std::string_view kKey = "\"system_fingerprint\":\"";
  std::ifstream file(results_path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    // The fingerprint stands behind all that a request or a model could have written.
    const size_t key = line.rfind(kKey);
    if (key == std::string::npos) continue;
    const size_t end = line.find('"', key + kKey.size());
    const std::string fingerprint = line.substr(key + kKey.size(), end - key - kKey.size());
    const size_t mark = fingerprint.rfind(kClockMark);
    if (mark == std::string::npos) return std::nullopt;
    std::string clock = fingerprint.substr(mark + sizeof(kClockMark) - 1);
    if (clock.size() == kClockLength) return clock;
  }
  return std::nullopt;
}

}  // namespace forebay::job

#include "job/job_clock.h"

#include <fstream>
#include <string_view>

#include "job/files/results_scan.h"

namespace forebay::job {

std::optional<std::string> FindJobClock(const std::string& results_path) {
  constexpr size_t kClockLength = std::string_view("2026-03-07T14:05:09").size();
  std::ifstream file(results_path, std::ios::binary);
  for (std::string line; std::getline(file, line);) {
    const std::string_view fingerprint = SystemFingerprintOf(line);
    if (fingerprint.empty()) continue;
    const size_t mark = fingerprint.rfind(kClockMark);
    if (mark == std::string_view::npos) return std::nullopt;
    std::string clock(fingerprint.substr(mark + sizeof(kClockMark) - 1));
    if (clock.size() == kClockLength) return clock;
  }
  return std::nullopt;
}

}  // namespace forebay::job

#include "cli/search_display.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/log.h"
#include "base/units.h"

namespace forebay::cli {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLiveInterval{100}, kLineInterval{5000};

}  // namespace

std::string SearchLine(const choose::SearchProgress& progress) {
  std::string line = fmt::format("{} of {} layouts foreseen", progress.tried, progress.layouts);
  if (progress.further > 0) line += fmt::format(", {} with other settings", progress.further);
  if (progress.best_seconds > 0)
    line += ", the best so far " + base::FormatDuration(progress.best_seconds);
  return line;
}

SearchDisplay::SearchDisplay(bool quiet)
    : quiet_(quiet), live_(isatty(STDERR_FILENO) != 0), next_(steady_clock::now()) {
  if (!live_) next_ += kLineInterval;
}

void SearchDisplay::Erase() {
  if (live_ && std::exchange(shown_, false)) std::fputs("\r\x1b[K", stderr);
}

void SearchDisplay::Show(const choose::SearchProgress& progress) {
  if (progress.done) return Erase();
  if (quiet_ || steady_clock::now() < next_) return;
  next_ = steady_clock::now() + (live_ ? kLiveInterval : kLineInterval);
  shown_ = true;
  const std::string line = SearchLine(progress);
  if (live_) {
    // A terminal that is narrower cuts the line and does not wrap it.
    std::fprintf(stderr, "\r\x1b[?7lforebay: %s\x1b[K\x1b[?7h", line.c_str());
  } else {
    base::Log(base::LogLevel::kInfo, line);
  }
}

}  // namespace forebay::cli

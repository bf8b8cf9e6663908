// Messages to the person at the terminal, on stderr. Results go to files, never here.
#pragma once

#include <string_view>

namespace forebay::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Below this level nothing is printed (default kInfo; --quiet sets kError).
void SetLogLevel(LogLevel level);

// Prints one line "forebay: message" (info) or "forebay: warning: message". Thread-safe; keep it out of steps.
void Log(LogLevel level, std::string_view message);

}  // namespace forebay::base

// Messages to the person at the terminal, on stderr. Results go to files, never here.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace forebay::base {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

inline constexpr size_t kMostQuoted = 80;

// Below this level nothing is printed (default kInfo; --quiet sets kError).
void SetLogLevel(LogLevel level);

// Prints one line "forebay: message" (info) or "forebay: warning: message". Whatever files and
// users brought into the message cannot reach the terminal as anything but text: it is printed as
// Printable has it. Thread-safe; keep it out of steps.
void Log(LogLevel level, std::string_view message);

// `text` with control characters, line ends, direction marks and bytes that are no UTF-8 as \x1b or
// \u{202e}, and where it is longer than kMostPrinted bytes without its middle.
std::string Printable(std::string_view text);
inline constexpr size_t kMostPrinted = 2000;

// What a file or a user calls a thing, as a part of a message: in quotation marks, as Printable has
// it, with \" and \\ for its own, and where that is longer than `most` bytes the begin and "...".
std::string Quoted(std::string_view text, size_t most = kMostQuoted);
// The same, without quotation marks where nothing could be taken for a part of the message: at most
// `most` letters, digits and signs of names (_ - . / : +).
std::string ShownName(std::string_view text, size_t most = kMostQuoted);

}  // namespace forebay::base

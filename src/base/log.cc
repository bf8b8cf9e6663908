#include "base/log.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>

namespace forebay::base {
namespace {

std::atomic<LogLevel> lowest = LogLevel::kInfo;

const char* Prefix(LogLevel level) {
  switch (level) {
    case LogLevel::kWarning: return "warning: ";
    case LogLevel::kError: return "error: ";
    default: return "";
  }
}

bool IsControl(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

// Length of the UTF-8 sequence that begins at text[i], judged by its lead and its number of
// continuation bytes; 0 where there is none.
size_t Utf8Length(std::string_view text, size_t i) {
  const auto lead = static_cast<unsigned char>(text[i]);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xC2 && lead < 0xE0 ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  if (i + length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return 0;
  }
  return length;
}

char32_t CodePoint(std::string_view sequence) {
  const auto lead = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return lead;
  char32_t code = lead & (0x7Fu >> sequence.size());
  for (const char c : sequence.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3F);
  return code;
}

// C1 controls, line and paragraph separators, and marks that turn the direction of writing.
bool SteersTerminal(char32_t code) {
  return (code >= 0x80 && code < 0xA0) || code == 0x200E || code == 0x200F ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

// The character or byte at text[*i] as a terminal may have it; *i steps over it.
std::string NextPrintable(std::string_view text, size_t* i) {
  const size_t length = Utf8Length(text, *i);
  const std::string_view piece = text.substr(*i, std::max<size_t>(length, 1));
  *i += piece.size();
  if (length == 0 || IsControl(piece[0]))
    return fmt::format("\\x{:02x}", static_cast<unsigned char>(piece[0]));
  if (const char32_t code = CodePoint(piece); SteersTerminal(code))
    return fmt::format("\\u{{{:x}}}", static_cast<uint32_t>(code));
  return std::string(piece);
}

// The begin says what is wrong, the end has the error's code.
std::string WithoutMiddle(std::string_view text) {
  constexpr std::string_view kCut = " ... ";
  constexpr size_t kEnd = 400, kBegin = kMostPrinted - kEnd - kCut.size();
  const auto at_sequence = [&](size_t i) {
    while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) --i;
    return i;
  };
  return std::string(text.substr(0, at_sequence(kBegin))) + std::string(kCut) +
         std::string(text.substr(at_sequence(text.size() - kEnd)));
}

}  // namespace

void SetLogLevel(LogLevel level) { lowest = level; }

// One call of fprintf a line: it locks the stream, so lines of several threads stay whole.
void Log(LogLevel level, std::string_view message) {
  if (level < lowest.load(std::memory_order_relaxed)) return;
  std::fprintf(stderr, "forebay: %s%s\n", Prefix(level), Printable(message).c_str());
}

std::string Printable(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) out += NextPrintable(text, &i);
  return out.size() <= kMostPrinted ? out : WithoutMiddle(out);
}

std::string Quoted(std::string_view text, size_t most) {
  std::string out = "\"";
  for (size_t i = 0; i < text.size();) {
    const bool is_own = text[i] == '"' || text[i] == '\\';
    const std::string piece = (is_own ? "\\" : "") + NextPrintable(text, &i);
    if (out.size() + piece.size() > most + 1) {
      out += "...";
      break;
    }
    out += piece;
  }
  return out + "\"";
}

std::string ShownName(std::string_view text, size_t most) {
  constexpr std::string_view kSigns = "_-./:+";
  const auto is_plain = [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kSigns.find(c) != std::string_view::npos;
  };
  const bool plain = !text.empty() && text.size() <= most && std::ranges::all_of(text, is_plain);
  return plain ? std::string(text) : Quoted(text, most);
}

}  // namespace forebay::base

// GPT-2's byte alphabet: every byte as one printable character, so that vocabularies can be text.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "text/unicode/unicode.h"

namespace forebay::text {

// Printable bytes of Latin-1 stand for themselves; the others, in order, are U+0100, U+0101, ...
inline constexpr std::array<char32_t, 256> kByteToCharacter = [] {
  std::array<char32_t, 256> out{};
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    out[b] = printable ? b : next++;
  }
  return out;
}();

inline constexpr std::array<int16_t, 324> kCharacterToByte = [] {
  std::array<int16_t, 324> out{};
  for (int16_t& byte : out) byte = -1;
  for (int b = 0; b < 256; ++b) out[kByteToCharacter[b]] = static_cast<int16_t>(b);
  return out;
}();

// The bytes that `text` spells, or nothing if a character is not in the alphabet.
inline std::optional<std::string> FromByteAlphabet(std::string_view text) {
  std::string out;
  for (const char32_t c : CodePoints(text)) {
    if (c >= kCharacterToByte.size() || kCharacterToByte[c] < 0) return std::nullopt;
    out.push_back(static_cast<char>(kCharacterToByte[c]));
  }
  return out;
}

}  // namespace forebay::text

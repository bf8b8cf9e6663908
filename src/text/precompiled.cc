#include "text/precompiled.h"

#include <cstring>

#include "text/tokenizer_spec.h"
#include "text/unicode/unicode.h"

namespace forebay::text {
namespace {

// The units of darts-clone's double array.
constexpr uint32_t kLeafBit = 1u << 31;
constexpr bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) == 1; }
constexpr uint32_t LabelOf(uint32_t unit) { return unit & (kLeafBit | 0xFF); }
constexpr uint32_t OffsetOf(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

}  // namespace

base::Result<PrecompiledMap> PrecompiledMap::Parse(std::string_view map) {
  uint32_t bytes = 0;
  if (map.size() < sizeof(bytes))
    return InvalidTokenizer(fmt::format("Precompiled: a map of {} bytes", map.size()));
  std::memcpy(&bytes, map.data(), sizeof(bytes));
  map.remove_prefix(sizeof(bytes));
  if (bytes == 0 || bytes % sizeof(uint32_t) != 0 || bytes > map.size()) {
    return InvalidTokenizer(
        fmt::format("Precompiled: a trie of {} bytes in {}; expected whole units, at least one",
                    bytes, map.size()));
  }
  PrecompiledMap made;
  made.units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(made.units_.data(), map.data(), bytes);
  made.texts_ = map.substr(bytes);
  if (!made.texts_.empty() && made.texts_.back() != '\0')
    return InvalidTokenizer("Precompiled: the last text does not end in a zero");
  if (!IsValidUtf8(made.texts_)) return InvalidTokenizer("Precompiled: a text is no UTF-8");
  return made;
}

std::optional<std::string_view> PrecompiledMap::Find(std::string_view text) const {
  uint32_t at = OffsetOf(units_[0]);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) return std::nullopt;
    at ^= byte;
    if (at >= units_.size() || LabelOf(units_[at]) != byte) return std::nullopt;
    const uint32_t unit = units_[at];
    at ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    if (at >= units_.size()) return std::nullopt;
    const uint32_t value = units_[at] & ~kLeafBit;
    const bool inside = value < texts_.size() && (texts_[value] & 0xC0) == 0x80;
    if (value >= texts_.size() || inside) return std::nullopt;
    return std::string_view(texts_.data() + value);
  }
  return std::nullopt;
}

std::optional<std::string> DecodeBase64(std::string_view text) {
  const auto value = [](char c) -> int {
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
  };
  while (text.ends_with('=')) text.remove_suffix(1);
  std::string out;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const int six = value(text[i]);
    if (six < 0) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(six);
    if (i % 4 != 0) out.push_back(static_cast<char>(bits >> (6 - 2 * (i % 4))));
  }
  if (text.size() % 4 == 1) return std::nullopt;
  return out;
}

}  // namespace forebay::text

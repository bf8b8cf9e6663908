#include "job/lines/result_id.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace forebay::job {
namespace {

constexpr size_t kHexDigits = 16;

// Reads exactly 16 lower-case hex digits and, but for the last group, the '-' after them.
bool TakeHash(std::string_view* text, bool last, uint64_t* hash) {
  if (text->size() < kHexDigits + (last ? 0 : 1)) return false;
  const std::string_view digits = text->substr(0, kHexDigits);
  if (std::any_of(digits.begin(), digits.end(), [](char c) { return c >= 'A' && c <= 'F'; }))
    return false;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + kHexDigits, *hash, 16);
  if (error != std::errc() || end != digits.data() + kHexDigits) return false;
  text->remove_prefix(kHexDigits);
  if (last) return text->empty();
  if (text->front() != '-') return false;
  text->remove_prefix(1);
  return true;
}

}  // namespace

std::string FormatResultId(const ResultId& id) {
  std::string text = fmt::format("{}{}_{:016x}-{:016x}-{:016x}-{:016x}", kResultIdPrefix, id.line,
                                 id.hash.input, id.hash.model, id.hash.settings, id.hash.numerics);
  if (id.hash.marks != 0) text += fmt::format("-{:016x}", id.hash.marks);
  return text;
}

std::optional<ResultId> ParseResultId(std::string_view text) {
  if (!text.starts_with(kResultIdPrefix)) return std::nullopt;
  text.remove_prefix(kResultIdPrefix.size());
  ResultId id;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id.line);
  if (error != std::errc() || id.line < 1 || text.front() == '0') return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.empty() || text.front() != '_') return std::nullopt;
  text.remove_prefix(1);
  if (!TakeHash(&text, false, &id.hash.input) || !TakeHash(&text, false, &id.hash.model) ||
      !TakeHash(&text, false, &id.hash.settings)) {
    return std::nullopt;
  }
  if (text.size() == kHexDigits) {
    if (!TakeHash(&text, true, &id.hash.numerics)) return std::nullopt;
    return id;
  }
  if (!TakeHash(&text, false, &id.hash.numerics) || !TakeHash(&text, true, &id.hash.marks))
    return std::nullopt;
  return id;
}

}  // namespace forebay::job

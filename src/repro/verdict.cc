#include "repro/verdict.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "base/check.h"

namespace forebay::repro {
namespace {

// How far ours may be from the corrected figure, where a claim of an order is contradicted.
constexpr double kOrderBand = 0.2;

bool IsBound(std::string_view printed) {
  return printed.starts_with('>') || printed.starts_with('<');
}

// Digits behind the point, and the power of ten that follows "e".
struct Precision {
  explicit Precision(std::string_view printed) {
    const size_t e = printed.find('e');
    if (e != printed.npos) {
      scientific = true;
      std::from_chars(printed.data() + e + 1, printed.data() + printed.size(), exponent);
      printed = printed.substr(0, e);
    }
    const size_t point = printed.find('.');
    if (point != printed.npos) decimals = static_cast<int>(printed.size() - point - 1);
  }
  int decimals = 0;
  int exponent = 0;
  bool scientific = false;
};

}  // namespace

double PrintedNumber(std::string_view printed) {
  if (IsBound(printed)) printed.remove_prefix(2);
  double value = 0;
  const auto [end, error] = std::from_chars(printed.data(), printed.data() + printed.size(), value);
  FB_CHECK(error == std::errc() && end == printed.data() + printed.size(), "a claim prints \"{}\"",
           printed);
  return value;
}

bool AgreesAtPrintedDigits(double ours, std::string_view printed) {
  const Precision precision(printed);
  const double unit = std::pow(10.0, precision.exponent - precision.decimals);
  constexpr double kRounding = 1e-9;  // binary fractions: 0.125 may have been rounded either way
  return std::abs(ours - PrintedNumber(printed)) <= unit * (0.5 + kRounding);
}

std::string FormatLike(double ours, std::string_view printed, int more) {
  if (IsBound(printed)) return fmt::format("{:.4g}", ours);
  const Precision precision(printed);
  return precision.scientific ? fmt::format("{:.{}e}", ours, precision.decimals + more)
                              : fmt::format("{:.{}f}", ours, precision.decimals + more);
}

Verdict Judge(const Claim& claim, const ClaimedValue& value, double ours) {
  const double claimed = PrintedNumber(value.printed);
  const auto within = [&](double figure, double order_band) {
    const double tolerated = claim.kind == Kind::kBand     ? claim.band * std::abs(figure)
                             : claim.kind == Kind::kPoints ? claim.band
                             : claim.kind == Kind::kOrder  ? order_band * std::abs(figure)
                                                           : 0;
    return tolerated > 0 && std::abs(ours - figure) <= tolerated;
  };
  bool holds = AgreesAtPrintedDigits(ours, value.printed);
  if (claim.kind == Kind::kOrder)
    holds = value.printed.starts_with('>') ? ours > claimed : ours < claimed;
  if (holds) return Verdict::kReproduced;
  if (!value.contradiction.why.empty()) {
    const std::string_view corrected = value.contradiction.corrected;
    const bool agrees =
        AgreesAtPrintedDigits(ours, corrected) || within(PrintedNumber(corrected), kOrderBand);
    return agrees ? Verdict::kContradiction : Verdict::kNotReproduced;
  }
  return within(claimed, 0) ? Verdict::kWithinBand : Verdict::kNotReproduced;
}

}  // namespace forebay::repro

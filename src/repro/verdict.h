// Ours against a claimed figure.
#pragma once

#include <string>
#include <string_view>

#include "repro/claim.h"

namespace forebay::repro {

// From best to worst: a row's verdict is its worst value's.
enum class Verdict : uint8_t { kReproduced, kWithinBand, kContradiction, kNotReproduced };

constexpr std::string_view Name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"reproduced", "within band", "contradiction", "not reproduced"};
  return kNames[static_cast<int>(verdict)];
}

// The number that a claim prints: of "> 1" its bound.
double PrintedNumber(std::string_view printed);

// True if `ours`, rounded to as many digits, prints the same.
bool AgreesAtPrintedDigits(double ours, std::string_view printed);

// `ours` with the digits of `printed` and `more` of them.
std::string FormatLike(double ours, std::string_view printed, int more);

Verdict Judge(const Claim& claim, const ClaimedValue& value, double ours);

}  // namespace forebay::repro

// Ours against a claimed figure.
#pragma once

#include <string>
#include <string_view>

#include "repro/claim.h"

namespace forebay::repro {

// From best to worst: a row's verdict is its worst value's. kNotJudged: less was run than the claim
// asks for, and what was run says nothing against it. kNotReached: the scenario does not come to
// what the claim is about.
enum class Verdict : uint8_t {
  kReproduced,
  kWithinBand,
  kContradiction,
  kNotJudged,
  kNotReached,
  kNotReproduced,
};

constexpr std::string_view Name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"reproduced", "within band", "contradiction",
                                         "not judged", "not reached", "not reproduced"};
  return kNames[static_cast<int>(verdict)];
}

// True if `ours`, rounded to as many digits, prints the same.
bool AgreesAtPrintedDigits(double ours, std::string_view printed);

// `ours` with the digits of `printed` and `more` of them.
std::string FormatLike(double ours, std::string_view printed, int more);

// A contradiction is a verdict only where ours is within the band of the corrected figure (20 %
// where the claim has no band).
Verdict Judge(const Claim& claim, const ClaimedValue& value, double ours);

}  // namespace forebay::repro

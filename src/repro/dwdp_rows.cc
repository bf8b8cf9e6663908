// DWDP: distributed weights for mixtures of experts.
#include <cmath>
#include <cstdio>

#include "base/check.h"
#include "repro/rows.h"

namespace forebay::repro {
namespace {

double Binomial(int n, int k) {
  double value = 1;
  for (int i = 1; i <= k; ++i) value = value * (n - k + i) / i;
  return value;
}

// Section 4.3.1, equation 2: of the n - 2 other ranks each takes a tagged rank's source with probability 1 / (n - 1).
double ContentionProbability(int n, int level) {
  const double meets = 1.0 / (n - 1);
  return Binomial(n - 2, level - 1) * std::pow(meets, level - 1) * std::pow(1 - meets, n - 1 - level);
}

}  // namespace

base::Result<std::vector<Finding>> PullContention(const Claim& claim, Lab&) {
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) {
    int ranks = 0, level = 0;
    const bool read = std::sscanf(value.label.data(), "N=%d C=%d", &ranks, &level) == 2;
    FB_CHECK(read, "a claim asks for \"{}\"", value.label);
    findings.push_back({.calibrated = 100 * ContentionProbability(ranks, level)});
  }
  return findings;
}

}  // namespace forebay::repro

#include "schedule/survival.h"

#include <algorithm>
#include <bit>

namespace forebay::schedule {
namespace {

// Lengths are told apart by one in 32: below 64 each is a bin, then 32 an octave.
constexpr int kExact = 64, kPerOctave = 32, kOctaves = 25;
constexpr int kBins = kExact + kOctaves * kPerOctave;

int BinOf(int64_t tokens) {
  if (tokens < kExact) return static_cast<int>(tokens);
  const int octave = std::bit_width(static_cast<uint64_t>(tokens)) - 7;  // 0: from 64 on
  const auto part = static_cast<int>(tokens >> (octave + 1)) - kPerOctave;
  return std::min(kBins - 1, kExact + octave * kPerOctave + part);
}

int64_t FirstOf(int bin) {
  if (bin < kExact) return bin;
  const int octave = (bin - kExact) / kPerOctave, part = (bin - kExact) % kPerOctave;
  return int64_t{kPerOctave + part} << (octave + 1);
}

}  // namespace

Survival::Survival()
    : counts_(kBins),
      sums_(kBins),
      running_(kBins),
      survival_(kBins, 1),
      counts_from_(kBins + 1),
      sums_from_(kBins + 1) {}

void Survival::Ended(int64_t output) {
  const int bin = BinOf(output);
  ++counts_[bin];
  sums_[bin] += static_cast<double>(output);
  longest_ = std::max(longest_, output);
  ++ended_;
}

void Survival::BeginUpdate() {
  std::ranges::fill(running_, 0);
  running_answers_ = 0;
}

void Survival::Runs(int64_t generated) {
  ++running_[BinOf(generated)];
  ++running_answers_;
  longest_ = std::max(longest_, generated);
}

void Survival::EndUpdate() {
  for (int bin = kBins; bin-- > 0;) {
    counts_from_[bin] = counts_from_[bin + 1] + counts_[bin];
    sums_from_[bin] = sums_from_[bin + 1] + sums_[bin];
  }
  int64_t at_risk = ended_ + running_answers_;
  double survival = 1;
  for (int bin = 0; bin < kBins; ++bin) {
    if (counts_[bin] > 0) {
      survival *= 1 - static_cast<double>(counts_[bin]) / static_cast<double>(at_risk);
    }
    survival_[bin] = survival;
    at_risk -= counts_[bin] + running_[bin];
  }
}

int64_t Survival::LeftByMean(int64_t generated) const {
  const int next = std::min(kBins, BinOf(generated) + 1);
  if (counts_from_[next] == 0) return ended_ == 0 ? kUnknownOutput : generated;
  return static_cast<int64_t>(sums_from_[next] / static_cast<double>(counts_from_[next])) -
         generated;
}

int64_t Survival::LeftByMedian(int64_t generated) const {
  const int now = BinOf(generated);
  const double half = survival_[now] / 2;
  const auto found = std::partition_point(survival_.begin() + now, survival_.end(),
                                          [&](double survival) { return survival > half; });
  // Where fewer than half are known to end it may well come as far again, or as any has.
  if (found == survival_.end() || survival_[now] == 0)
    return std::max({kUnknownOutput, longest_, 2 * generated}) - generated;
  return FirstOf(static_cast<int>(found - survival_.begin())) - generated;
}

}  // namespace forebay::schedule

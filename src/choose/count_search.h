// Which number of layers or experts serves the throughput, without trying all. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "choose/pool_choice.h"

namespace forebay::choose {

// Of the rate of the best number, the best of quarters reaches at least this part (measured, with
// room to spare).
inline constexpr double kQuartersShow = 0.97;

// Tries numbers from 0 to `last`, each once: of more than 16 some, then all between the best one's
// neighbours. Of a question that has a rival it tries quarters first, and nothing more where none
// of them comes near it, or where these are all that is asked for.
class CountSearch {
 public:
  // Nobody needs to know by how much a trial is below `least` tokens/s.
  using Attempt = std::function<Throughput(int64_t count, double least)>;
  CountSearch(int64_t last, const CountRival& rival, Attempt attempt);

  // The least, and the greatest, within a fraction of a percent of the best, once all up to the
  // next that is not as good were tried as well. Nothing where nothing fits.
  std::optional<int64_t> Fewest();
  std::optional<int64_t> Most();

  const std::map<int64_t, Throughput>& tried() const { return tried_; }

 private:
  int64_t quarter() const;
  // Whether the numbers between the quarters are of interest.
  bool TryQuarters();
  void TryBetween(int64_t first, int64_t end, int64_t step);
  std::map<int64_t, Throughput>::const_iterator Best() const;
  double BestRate() const { return Best()->second.tokens_per_s(); }
  double Least() const;
  bool IsAsGood(const Throughput& trial) const { return trial.tokens_per_s() >= as_good_; }

  const int64_t last_, step_;
  const CountRival rival_;
  const Attempt attempt_;
  std::map<int64_t, Throughput> tried_;
  bool ends_early_ = false;
  double as_good_ = 0;  // tokens/s
};

}  // namespace forebay::choose

// Which number of layers or experts serves the throughput, without trying all. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>

#include "choose/pool_choice.h"

namespace forebay::choose {

// Tries numbers from 0 to `last`, each once: of more than 16 some, then all between the best one's
// neighbours.
class CountSearch {
 public:
  CountSearch(int64_t last, std::function<Throughput(int64_t)> attempt);

  // The least, and the greatest, within a fraction of a percent of the best, once all up to the
  // next that is not as good were tried as well. Nothing where nothing fits.
  std::optional<int64_t> Fewest();
  std::optional<int64_t> Most();

  const std::map<int64_t, Throughput>& tried() const { return tried_; }

 private:
  void TryBetween(int64_t first, int64_t end, int64_t step);
  bool IsAsGood(const Throughput& trial) const { return trial.tokens_per_s() >= as_good_; }

  const int64_t last_, step_;
  const std::function<Throughput(int64_t)> attempt_;
  std::map<int64_t, Throughput> tried_;
  double as_good_ = 0;  // tokens/s
};

}  // namespace forebay::choose

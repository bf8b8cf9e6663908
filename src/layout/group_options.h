// How the replicas of a group that shares weights take their steps: each on its own, or together.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "forebay/step_mode.h"
#include "runtime/runtime.h"

namespace forebay::layout {

struct GroupOptions {
  int num_replicas = 1;
  // the mode of the steps that the replicas take together
  StepMode together{.ffn = FfnMode::kShip};
  bool by_load = true;   // together only while the load is low; else wherever rows allow it
  double threshold = 0;  // B_th: rows a replica below which together is due, by_load
  // Who meets waits for the busiest, so that replicas of unlike rows meet at fewer of them: with
  // `rows` on average as long as the busiest has at most by the part `spread` more. Fewer and fewer
  // rows, of larger and larger spreads; rows 0: nothing is known.
  struct Tolerated {
    double rows = 0, spread = 0;
  };
  std::array<Tolerated, 4> tolerated{};
  int32_t most_rows = 256;  // rows of one replica in a shipped round
  int patience = 64;  // steps of each working replica in a row with a load below the threshold
  // a trial of the switch: so many rounds are taken together, so many not; 0: no trial
  int flip_every = 0;
  // how long a replica without work waits before it looks for requests again
  runtime::TimeNs look_every = 1'000'000;

  // The rows below which replicas meet whose busiest has by the part `spread` more than the mean.
  double Threshold(double spread) const {
    if (spread <= 0) return threshold;
    Tolerated more{.rows = threshold};
    for (const Tolerated& less : tolerated) {
      if (less.rows == 0) return more.rows;
      if (spread < less.spread) {
        const double part = (spread - more.spread) / (less.spread - more.spread);
        return std::min(threshold, more.rows + part * (less.rows - more.rows));
      }
      more = less;
    }
    // Below, what shipping saves is the pull, whatever the rows are, and each of them costs as much
    // in waiting.
    return std::min(threshold, more.rows * more.spread / spread);
  }
};

}  // namespace forebay::layout

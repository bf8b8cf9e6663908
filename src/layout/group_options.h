// How the replicas of a group that shares weights take their steps: each on its own, or together.
#pragma once

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
  // The same, where they are not 0, of replicas whose busiest has by such a part and more more rows
  // than the mean: whoever meets waits for it.
  static constexpr std::array<double, 4> kSpreads{0.125, 0.25, 0.5, 1};
  std::array<double, kSpreads.size()> spread_thresholds{};
  int32_t most_rows = 256;  // rows of one replica in a shipped round
  int patience = 64;  // steps of each working replica in a row with a load below the threshold
  // a trial of the switch: so many rounds are taken together, so many not; 0: no trial
  int flip_every = 0;
  // how long a replica without work waits before it looks for requests again
  runtime::TimeNs look_every = 1'000'000;

  double Threshold(double spread) const {
    double rows = threshold;
    for (size_t i = 0; i < kSpreads.size() && spread >= kSpreads[i]; ++i) {
      if (spread_thresholds[i] > 0) rows = spread_thresholds[i];
    }
    return rows;
  }
};

}  // namespace forebay::layout

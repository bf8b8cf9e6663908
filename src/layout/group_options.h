// How the replicas of a group that shares weights take their steps: each on its own, or together.
#pragma once

#include <cstdint>

#include "forebay/step_mode.h"
#include "runtime/runtime.h"
#include "schedule/load_watch.h"

namespace forebay::layout {

struct GroupOptions {
  int num_replicas = 1;
  // the mode of the steps that the replicas take together
  StepMode together{.ffn = FfnMode::kShip};
  bool by_load = true;      // together only while the load is low; else wherever rows allow it
  schedule::LoadRule load;  // by_load: when together is due
  int32_t most_rows = 256;  // rows of one replica in a shipped round
  // a trial of the switch: so many rounds are taken together, so many not; 0: no trial
  int flip_every = 0;
  // how long a replica without work waits before it looks for requests again
  runtime::TimeNs look_every = 1'000'000;
};

}  // namespace forebay::layout

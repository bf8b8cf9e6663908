// When a replica asks the job's queue for one more request. It leaves what it does not need yet to
// other replicas. Pure; the policy decides which request it gets (Policy::HandOut).
#pragma once

#include <cstdint>
#include <limits>

#include "schedule/limits.h"

namespace forebay::schedule {

// What the replica has taken and not handed back.
struct IntakeView {
  int64_t running = 0, waiting = 0;  // choices
  int64_t waiting_rows = 0;          // that the waiting ones still have to compute, a guess
  int64_t ended = 0;                 // requests that ended without a step and were not delivered
  int64_t available_blocks = 0;      // blocks of KV cache, free and evictable
  // Host memory that the log probabilities of its requests are expected to take, and may take.
  int64_t logprob_bytes = 0, most_logprob_bytes = std::numeric_limits<int64_t>::max();
};

// True while the next step might admit more than what waits already: a place, a row and a block are
// left beside it. Also where nothing waits, so that there is something to admit when a place comes
// free. False where requests end as fast as they are taken, so that a step's results stay few, and
// while the requests' log probabilities take all the memory that they may.
bool WantsRequests(const Limits& limits, const IntakeView& view);

}  // namespace forebay::schedule

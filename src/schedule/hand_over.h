// Which generation replica takes a request whose prompt a context replica has computed. Pure.
#pragma once

#include <cstdint>
#include <span>

namespace forebay::schedule {

// A generation replica.
struct TakerView {
  bool takes = true;        // false: it has left the run
  int64_t free_blocks = 0;  // in its KV cache
  int64_t places = 0;       // further choices that may run
  int64_t running = 0;
  int64_t waiting = 0;  // choices: preempted ones, or siblings that came with a running one
  int64_t lent = 0;     // lent choices: other replicas have not yet pulled their KV
};

// What a request brings.
struct HandedView {
  int64_t blocks = 0;   // KV cache that is pulled
  int64_t choices = 1;  // that are not at their end
};

// Whether the taker has room: a place for each choice, the request's blocks, and one more for each
// choice that runs there then, so that it does not preempt at once. It takes nothing while choices
// wait there: they came before. One that holds nothing takes any request, since none is larger
// than a cache.
bool HasRoom(const TakerView& taker, const HandedView& request);

// The index of the taker with the most free blocks among those with room, the lower one on a tie;
// -1: none has room.
int ChooseTaker(std::span<const TakerView> takers, const HandedView& request);

}  // namespace forebay::schedule

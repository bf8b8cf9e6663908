#include "schedule/hand_over.h"

namespace forebay::schedule {

bool HasRoom(const TakerView& taker, const HandedView& request) {
  if (!taker.takes || taker.waiting > 0) return false;
  if (taker.running == 0 && taker.lent == 0) return true;
  return taker.places >= request.choices &&
         taker.free_blocks >= request.blocks + request.choices + taker.running;
}

int ChooseTaker(std::span<const TakerView> takers, const HandedView& request) {
  int chosen = -1;
  for (int i = 0; i < static_cast<int>(takers.size()); ++i) {
    if (!HasRoom(takers[i], request)) continue;
    if (chosen < 0 || takers[i].free_blocks > takers[chosen].free_blocks) chosen = i;
  }
  return chosen;
}

}  // namespace forebay::schedule

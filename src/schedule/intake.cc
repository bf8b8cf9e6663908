#include "schedule/intake.h"

namespace forebay::schedule {

bool WantsRequests(const Limits& limits, const IntakeView& view) {
  if (view.ended >= limits.max_num_seqs) return false;
  if (view.waiting == 0) return true;
  return view.waiting + view.running < limits.max_num_seqs &&
         view.waiting_rows < limits.max_num_batched_tokens &&
         view.waiting_rows / limits.block_tokens < view.available_blocks;
}

}  // namespace forebay::schedule

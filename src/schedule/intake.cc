#include "schedule/intake.h"

namespace forebay::schedule {

bool WantsRequests(const Limits& limits, const IntakeView& view) {
  // Requests that end without a step would else be read without end.
  if (view.ended >= limits.max_num_seqs) return false;
  if (view.logprob_bytes >= view.most_logprob_bytes) return false;
  if (view.waiting == 0) return true;
  return view.waiting + view.running < limits.max_num_seqs &&
         view.waiting_rows < limits.max_num_batched_tokens &&
         view.waiting_rows / limits.block_tokens < view.available_blocks;
}

}  // namespace forebay::schedule

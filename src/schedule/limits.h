// Limits of a step, from the memory plan and the user's flags.
#pragma once

#include <cstdint>

namespace forebay::schedule {

struct Limits {
  int32_t max_num_seqs = 256;             // running choices
  int32_t max_num_batched_tokens = 2048;  // rows of a step
  int32_t block_tokens = 32;
  int32_t total_blocks = 0;
};

}  // namespace forebay::schedule

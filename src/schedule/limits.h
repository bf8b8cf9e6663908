// Limits of a step, from the memory plan and the user's flags.
#pragma once

#include <cstdint>

#include "kv/book/block_tokens.h"

namespace forebay::schedule {

struct Limits {
  int32_t max_num_seqs = 256;             // running choices
  int32_t max_num_batched_tokens = 2048;  // rows of a step
  int32_t block_tokens = kv::kBlockTokens;
  int32_t total_blocks = 0;
};

}  // namespace forebay::schedule

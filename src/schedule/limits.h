// Limits of a step, from the memory plan and the user's flags.
#pragma once

#include <cstdint>

#include "kv/book/block_tokens.h"

namespace forebay::schedule {

inline constexpr double kTargetSteps = 4;

struct Limits {
  int32_t max_num_seqs = 256;             // running choices
  int32_t max_num_batched_tokens = 2048;  // rows of a step
  // Rows of a prompt in a step, at least, but for its last ones and where blocks are what it lacks:
  // of models to which a chunk costs more the less of it there is. No more than half of a step.
  int32_t least_chunk = 0;
  // A prompt lies in one step: for models with attention in both directions.
  bool whole_prompts = false;
  int32_t block_tokens = kv::kBlockTokens;
  int32_t total_blocks = 0;
  // So many of these lie below the device and are read from there in every step: only full blocks
  // whose rows were computed in earlier steps.
  int32_t streamed_blocks = 0;
  // What a policy whose choices grow without memory gives to prompts; 0: all.
  int32_t prompt_blocks = 0;
  // For policies that order services, by price (StepPrices). The most seconds between tokens of
  // an interactive choice: other rows fill its steps up to that. 0: no bound; negative:
  // kTargetSteps steps of one row.
  double target_itl_seconds = 0;
  // The most seconds of a step without interactive choices: one that arrives waits; 0: no bound.
  double max_step_seconds = 0;
};

}  // namespace forebay::schedule

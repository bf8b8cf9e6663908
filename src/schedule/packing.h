// What policies share: how much fits into a step. Pure functions of the view.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "schedule/plan.h"

namespace forebay::schedule {

inline int64_t BlocksFor(int64_t tokens, const Limits& limits) {
  return (tokens + limits.block_tokens - 1) / limits.block_tokens;
}

// Blocks to add to `reserved_blocks` so that there is room for `tokens` positions.
inline int64_t MissingBlocks(int64_t tokens, int64_t reserved_blocks, const Limits& limits) {
  // Most lack none or one: a division each would take longer than all else of a step's plan.
  const int64_t lacking = tokens - reserved_blocks * limits.block_tokens;
  if (lacking <= 0) return 0;
  return lacking <= limits.block_tokens ? 1 : BlocksFor(lacking, limits);
}

// Blocks that the choice lacks for one more row.
int64_t NextRowBlocks(const RunningView& choice, const Limits& limits);
// Blocks that it lacks for what it may hold within `lookahead` more tokens.
int64_t ReachBlocks(const RunningView& choice, int64_t lookahead, const Limits& limits);
int64_t ReachBlocks(const WaitingView& choice, int64_t lookahead, const Limits& limits);
// The least rows of a step with which a prompt of `left` remaining rows goes on.
int64_t LeastRows(int64_t left, const Limits& limits);

// The blocks of the choices that stay (all; on the device; those that cannot be streamed because
// they are not full), and the blocks that the preempted choices alone hold.
class HeldBlocks {
 public:
  explicit HeldBlocks(const StepView& view);
  void GiveBack(const RunningView& choice, const Limits& limits);
  // As AvailableAfter has it.
  int64_t Available(const StepView& view) const;

 private:
  void Add(const RunningView& choice, const Limits& limits, int64_t times) {
    kept_ += times * choice.reserved_blocks;
    on_device_ += times * (choice.reserved_blocks - choice.streamed_blocks);
    // Where nothing is streamed it does not matter which blocks are full.
    const int64_t full =
        limits.streamed_blocks > 0 ? choice.computed_tokens / limits.block_tokens : 0;
    open_ += times * (choice.reserved_blocks - full);
  }

  int64_t kept_ = 0, on_device_ = 0, open_ = 0, given_back_ = 0;
};

// Blocks that are surely available once these running choices are preempted. Three lower bounds
// hold: what is available now plus what each of those holds alone; the device's blocks but for
// those that the others have there; and all blocks but for those of the others, as long as what is
// to be streamed of these is full. The last two are exact where nothing is shared.
int64_t AvailableAfter(const StepView& view, std::span<const int32_t> preempted);

// What is left of a step for admissions.
struct StepRoom {
  int64_t rows = 0;
  int64_t choices = 0;
};

// Plans the running choices. Memory: where the blocks for one more row of each do not suffice,
// the latest-admitted are preempted, never the first. Rows: one for each decoding choice, then
// chunks of the unfinished prompts in order of admission, as far as rows (Limits::least_chunk) and
// blocks go. If nothing is preempted, no choice is left out but for want of rows or, among prompts,
// of blocks. Nothing runs where choices elsewhere hold the blocks that the first one wants.
StepRoom PackRunning(const StepView& view, StepPlan* plan);

// Admits waiting choices in order while rows and choices last. A choice is admitted if every
// running and admitted one finds blocks for its known tokens and `lookahead` more (or up to its
// end), so that no admission causes a preemption in the next `lookahead` steps. The first that does
// not fit ends it: later ones do not overtake. `spare_blocks` stay free. What a step has no blocks
// for yet, the next ones may. With Limits::whole_prompts a choice that is longer than what is left
// of the step's rows waits, and shorter ones behind it overtake; the next step begins with it.
// `among` (null: all): the waiting choices that may be admitted; the others are passed over.
// REQUIRES: nothing was preempted in this plan.
void PackWaiting(const StepView& view, int64_t lookahead, StepRoom room, StepPlan* plan,
                 int64_t spare_blocks = 0, const std::vector<bool>* among = nullptr);
// Takes the last admission back where it is a part of a prompt that fits a whole step, or is not
// the first: only a prompt that is longer than a step, or the first where nothing runs, begins in
// chunks.
void KeepWholePrompts(const StepView& view, StepPlan* plan);
// Blocks that vLLM and Sarathi-Serve keep free when they admit: one in a hundred, beside a running
// choice.
int64_t Watermark(const StepView& view);

}  // namespace forebay::schedule

#include "schedule/packing.h"

#include <algorithm>

namespace forebay::schedule {
namespace {

// Positions that a choice may come to hold within `lookahead` more tokens. Its last token is never
// fed back.
int64_t Reach(int64_t known_tokens, int64_t remaining_output, int64_t lookahead) {
  return known_tokens + std::clamp<int64_t>(remaining_output - 1, 0, lookahead);
}

}  // namespace

int64_t NextRowBlocks(const RunningView& choice, const Limits& limits) {
  const int64_t tokens = std::min(choice.computed_tokens + 1, choice.known_tokens);
  return MissingBlocks(tokens, choice.reserved_blocks, limits);
}

int64_t ReachBlocks(const RunningView& choice, int64_t lookahead, const Limits& limits) {
  return MissingBlocks(Reach(choice.known_tokens, choice.remaining_output, lookahead),
                       choice.reserved_blocks, limits);
}

int64_t ReachBlocks(const WaitingView& choice, int64_t lookahead, const Limits& limits) {
  return MissingBlocks(Reach(choice.known_tokens, choice.remaining_output, lookahead),
                       choice.held_tokens / limits.block_tokens, limits);
}

int64_t LeastRows(int64_t left, const Limits& limits) {
  return std::min<int64_t>({left, limits.least_chunk, limits.max_num_batched_tokens / 2});
}

HeldBlocks::HeldBlocks(const StepView& view) {
  for (const RunningView& choice : view.running) Add(choice, view.limits, 1);
  for (const RunningView& choice : view.elsewhere) {
    for (int64_t* sum : {&kept_, &on_device_, &open_}) *sum += choice.reserved_blocks;
  }
}

void HeldBlocks::GiveBack(const RunningView& choice, const Limits& limits) {
  Add(choice, limits, -1);
  given_back_ += choice.exclusive_blocks;
}

int64_t HeldBlocks::Available(const StepView& view) const {
  const int64_t device = view.limits.total_blocks - view.limits.streamed_blocks;
  return std::max({view.available_blocks + given_back_, device - on_device_,
                   std::min(view.limits.total_blocks - kept_, device - open_)});
}

int64_t AvailableAfter(const StepView& view, std::span<const int32_t> preempted) {
  HeldBlocks held(view);
  for (const int32_t index : preempted)
    held.GiveBack(view.running[static_cast<size_t>(index)], view.limits);
  return held.Available(view);
}

StepRoom PackRunning(const StepView& view, StepPlan* plan) {
  const Limits& limits = view.limits;
  int64_t needed = 0;
  bool all_decode = true;
  for (const RunningView& choice : view.running) {
    needed += NextRowBlocks(choice, limits);
    all_decode &= choice.decoding;
  }
  size_t survivors = view.running.size();
  int64_t blocks = view.available_blocks;
  // So many there are at least. Most steps need no more, and then nobody asks what all hold.
  if (needed > blocks || !all_decode) {
    HeldBlocks held(view);
    blocks = held.Available(view);
    // The first always stays: it can come to its end alone.
    while (survivors > 1 && needed > blocks) {
      --survivors;
      needed -= NextRowBlocks(view.running[survivors], limits);
      held.GiveBack(view.running[survivors], limits);
      plan->preempt.push_back(static_cast<int32_t>(survivors));
      blocks = held.Available(view);
    }
    if (needed > blocks) return {};
  }

  int64_t rows = limits.max_num_batched_tokens;
  // Decoding rows before chunks of prompts: they are few, and each that waits delays a whole
  // choice.
  for (size_t i = 0; i < survivors && rows > 0; ++i) {
    if (!view.running[i].decoding) continue;
    plan->run.push_back({static_cast<int32_t>(i), 1});
    blocks -= NextRowBlocks(view.running[i], limits);
    --rows;
  }
  for (size_t i = 0; i < survivors && rows > 0 && !all_decode; ++i) {
    const RunningView& choice = view.running[i];
    if (choice.decoding) continue;
    const int64_t room =
        (choice.reserved_blocks + blocks) * limits.block_tokens - choice.computed_tokens;
    const int64_t left = choice.known_tokens - choice.computed_tokens,
                  chunk = std::min({left, rows, room});
    // It waits for a step in which more of it fits.
    if (chunk <= 0 || rows < LeastRows(left, limits)) continue;
    plan->run.push_back({static_cast<int32_t>(i), static_cast<int32_t>(chunk)});
    blocks -= MissingBlocks(choice.computed_tokens + chunk, choice.reserved_blocks, limits);
    rows -= chunk;
  }
  return {rows, limits.max_num_seqs - static_cast<int64_t>(survivors)};
}

int64_t Watermark(const StepView& view) {
  const bool alone = view.running.empty() && view.elsewhere.empty();
  return alone ? 0 : (view.limits.total_blocks + 99) / 100;
}

void PackWaiting(const StepView& view, int64_t lookahead, StepRoom room, StepPlan* plan,
                 int64_t spare_blocks, const std::vector<bool>* among) {
  if (view.waiting.empty() || room.rows <= 0 || room.choices <= 0) return;
  const Limits& limits = view.limits;
  int64_t blocks = view.available_blocks + view.later_blocks - spare_blocks;
  for (const std::vector<RunningView>* choices : {&view.running, &view.elsewhere}) {
    for (const RunningView& choice : *choices) blocks -= ReachBlocks(choice, lookahead, limits);
  }
  // Two accounts: `blocks` is what may be promised, growth included; `now` what this step's rows
  // can have.
  int64_t now = view.available_blocks;
  for (const RowsOf& entry : plan->run) {
    const RunningView& choice = view.running[entry.index];
    now -= MissingBlocks(choice.computed_tokens + entry.rows, choice.reserved_blocks, limits);
  }
  for (size_t i = 0; i < view.waiting.size() && room.rows > 0 && room.choices > 0; ++i) {
    if (among != nullptr && !(*among)[i]) continue;
    const WaitingView& choice = view.waiting[i];
    const int64_t held = choice.held_tokens / limits.block_tokens;
    blocks -= ReachBlocks(choice, lookahead, limits);
    // Those behind it may be shorter; but in order nobody is passed over for ever.
    if (blocks < 0) return;
    const int64_t left = choice.known_tokens - choice.cached_tokens;
    const int64_t chunk =
        std::min({left, room.rows, (held + now) * limits.block_tokens - choice.cached_tokens});
    if (limits.whole_prompts && chunk < left) {
      blocks += ReachBlocks(choice, lookahead, limits);
      continue;
    }
    if (chunk <= 0 || room.rows < LeastRows(left, limits)) return;
    now -= MissingBlocks(choice.cached_tokens + chunk, held, limits);
    plan->admit.push_back({static_cast<int32_t>(i), static_cast<int32_t>(chunk)});
    room.rows -= chunk;
    --room.choices;
  }
}

void KeepWholePrompts(const StepView& view, StepPlan* plan) {
  if (plan->admit.empty()) return;
  // One that fits no step's blocks begins alone.
  if (view.running.empty() && plan->admit.size() == 1) return;
  const RowsOf last = plan->admit.back();
  const WaitingView& choice = view.waiting[last.index];
  const int64_t rows = choice.known_tokens - choice.cached_tokens;
  const bool fits_a_step = rows <= view.limits.max_num_batched_tokens;
  if (last.rows < rows && (fits_a_step || plan->admit.size() > 1)) plan->admit.pop_back();
}

}  // namespace forebay::schedule

// What a policy sees and what it decides. Plain values; a policy is a pure function between them.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "forebay/service.h"
#include "schedule/held_peak.h"
#include "schedule/limits.h"
#include "schedule/step_prices.h"

namespace forebay::schedule {

inline constexpr double kNoDeadline = std::numeric_limits<double>::infinity();

// A choice that holds KV blocks.
struct RunningView {
  int64_t order = 0;         // the job's order: line, then choice; lower came first
  int64_t known_tokens = 0;  // prompt and generated so far: positions that have a token
  int64_t generated = 0;     // those of them that it generated
  // positions in the KV cache; known - computed rows are to be computed next
  int64_t computed_tokens = 0;
  int64_t reserved_blocks = 0;
  int64_t streamed_blocks = 0;  // those of its blocks that lie below the device
  // Those of its blocks that preempting it makes available (0: not known, a safe guess).
  int64_t exclusive_blocks = 0;
  int64_t remaining_output = 0;  // tokens that it may still generate
  // What it is foreseen to generate of these (schedule/lengths.h); 0: not foreseen.
  int64_t expected_left = 0;
  bool decoding = false;  // its prompt is computed: exactly one row a step
  Service service = Service::kBatch;
  double deadline = kNoDeadline;  // its request's
};

// A choice that waits, in the order in which it should be admitted: preempted ones first; under a
// policy that orders services interactive ones, then batches by deadline, of each preempted ones
// first.
struct WaitingView {
  int64_t order = 0;
  int64_t known_tokens = 0;
  // found in the prefix index now, in full blocks; below known_tokens
  int64_t cached_tokens = 0;
  // Those in blocks that running ones hold: they take nothing from available_blocks.
  int64_t held_tokens = 0;
  int64_t remaining_output = 0;
  int64_t expected_left = 0;  // as above
  Service service = Service::kBatch;
};

struct StepView {
  std::vector<RunningView> running;  // ascending admission
  // Running too, but not for this step to plan (they are in flight): they hold blocks, and will
  // want more.
  std::vector<RunningView> elsewhere;
  std::vector<WaitingView> waiting;
  // Free blocks, evictable ones, and ones that streaming frees now; less the blocks that streamed
  // ones need when they come back.
  int64_t available_blocks = 0;
  // Those that later steps may have besides, when more blocks are full.
  int64_t later_blocks = 0;
  // prompt and output of the choices that have finished; 0: none has
  double mean_tokens = 0;
  // How much of the cache foreseen needs may fill: more than 1 where preemption is cheap.
  double overcommit = 1;
  Limits limits;
  int64_t more_places = 0;  // free ones beyond limits.max_num_seqs, which is the step's share
  int64_t now_us = 0;
  // What steps take by the device's profile, which outlives the view (null: it is not known), and
  // how many times as long they were measured to take.
  const StepPrices* prices = nullptr;
  double price_factor = 1;
  // The most that interactive choices held in the last minute.
  Held interactive_peak;
};

// The job's queue, as the replica sees it that asks for its next request. Tokens are those still to
// be computed, prompts and outputs, as far as bounds and what has finished so far tell.
struct QueueView {
  int replicas = 1;
  int64_t remaining = -1;       // the most requests that no replica took yet; -1: not known
  int64_t held = 0;             // requests that this replica took and has not finished
  double remaining_tokens = 0;  // of these requests
  double held_tokens = 0;       // this replica's
  double held_tokens_by_all = 0;
  // The least that another replica holds which takes requests now; infinite: none does.
  double least_held_tokens = std::numeric_limits<double>::infinity();
  double next_tokens = 0;  // of the next request
  Service next_service = Service::kBatch;
  // Interactive choices of this replica, and the fewest that another one holds which takes
  // requests.
  int64_t held_interactive = 0, least_held_interactive = 0;
  int64_t held_choices = 0;        // this replica's requests'
  double held_longest_output = 0;  // tokens that one of them may yet generate; bounded ones count
  // All remaining requests are read and dealt out, and a replica may choose in its share. Outputs
  // are those of this share.
  bool at_end = false;
  double outputs = 0;         // tokens of all
  double longest_output = 0;  // one choice's
};

// What the replica that asks gets: nothing, the next or the longest of its share (LastRequests).
enum class Taking : uint8_t { kNothing, kNext, kLongest };

struct RowsOf {
  int32_t index;  // into running, or into waiting for admissions
  int32_t rows;   // > 0 tokens to compute in this step
};

// Applied in this order: preempt, admit, run.
struct StepPlan {
  // indices into running: blocks are released, tokens recomputed later
  std::vector<int32_t> preempt;
  std::vector<RowsOf> run;    // running ones, not preempted
  std::vector<RowsOf> admit;  // waiting ones, in order
  std::vector<bool> marks;    // a policy's scratch, here to keep its memory

  // Empties the lists and keeps their memory.
  void Begin() {
    preempt.clear();
    run.clear();
    admit.clear();
  }
};

}  // namespace forebay::schedule

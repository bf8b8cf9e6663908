// A policy decides what runs in a step and which requests are handed out. Pure: no clock, device,
// log or hidden state; the same view gives the same plan.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "schedule/plan.h"

namespace forebay::schedule {

inline constexpr base::ErrorCode kUnknownPolicy{"policy_unknown"};

// What a step may have of choices and rows where nobody says, as a policy was published with; 0: as
// for others.
struct StepPreset {
  int32_t max_num_seqs = 0, max_num_batched_tokens = 0;
};

class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // Whether views are to foresee how long choices will be (expected_left).
  virtual bool wants_lengths() const { return false; }
  // Whether interactive requests come first, in the queue and among waiting choices, and steps have
  // prices.
  virtual bool orders_services() const { return false; }
  // Whether a job's lines are to come in an order in which it ends soonest (job::LineOrder).
  virtual bool orders_lines() const { return false; }
  // Whether generated tokens take no memory, which holds on no machine. There are blocks for all
  // choices then, and prompts may have Limits::prompt_blocks of them.
  virtual bool growth_is_free() const { return false; }
  virtual StepPreset preset() const { return {}; }
  // Overwrites `plan`, reusing its memory. Each choice alone fits total_blocks (intake refuses the
  // others). REQUIRES of the result (CheckPlan): rows fit max_num_batched_tokens, choices fit
  // max_num_seqs, the blocks of all rows fit what is available after preemption, and whenever
  // something runs or waits, something is planned.
  virtual void Plan(const StepView& view, StepPlan* plan) const = 0;
  // What the replica gets that asks for one more request. The default keeps replicas level: none
  // holds more than its share of all tokens that are to be computed, so that the first to ask does
  // not take what others could run; and one whose longest choice takes longer than that share keeps
  // its batch small, so that its steps are short. At the job's end a request goes out of turn, the
  // longest first, once it takes as many steps as all that the replica has before it: no long one
  // begins when the others are done, and not all long ones run at once, for which the KV cache is
  // too small. Where nobody knows how many requests will come, replicas stay level within one
  // request: one takes its share of those that are there, or one more where it holds the least.
  // REQUIRES of the result: not kNothing where the replica holds nothing.
  virtual Taking HandOut(const QueueView& view) const;
};

// FB_CHECKs a plan against its view; the first running choice is never preempted.
void CheckPlan(const StepView& view, const StepPlan& plan);

// A policy's entry in the registry.
struct PolicyKind {
  std::string_view name;
  std::unique_ptr<Policy> (*make)();
};
const PolicyKind* DefaultPolicy();  // "continuous"
// Never null where it is OK. kUnknownPolicy lists the names.
base::Result<const PolicyKind*> FindPolicy(std::string_view name);
// A policy by its name.
base::Result<std::unique_ptr<Policy>> CreatePolicy(std::string_view name);

}  // namespace forebay::schedule

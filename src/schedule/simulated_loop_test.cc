// A policy drives a block book through jobs of random requests, as the engine's step loop does,
// without a device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <deque>

#include "base/rng.h"
#include "kv/book/block_book.h"
#include "schedule/policy.h"

namespace forebay::schedule {
namespace {

struct Choice {
  int64_t order = 0;
  std::vector<int32_t> tokens;  // prompt, then generated
  int64_t prompt = 0;
  int64_t output = 0;      // tokens after which it stops
  int64_t max_output = 0;  // what the policy is told
  int64_t sibling = -1;    // waits until that one has its first token
  Service service = Service::kBatch;
  int64_t arrives = 0;  // step
  kv::SequenceId id = -1;
  int64_t generated() const { return static_cast<int64_t>(tokens.size()) - prompt; }
};

struct JobShape {
  int num_choices = 60;
  int64_t max_prompt = 150;
  int64_t max_output = 250;
  bool siblings = true;
  bool people = false;  // every fourth is interactive, and comes while the others run
};

std::vector<Choice> RandomJob(base::Rng& rng, const JobShape& shape) {
  std::vector<Choice> job(shape.num_choices);
  for (int64_t i = 0; i < shape.num_choices; ++i) {
    Choice& choice = job[i];
    choice.order = i;
    if (shape.siblings && i > 0 && rng.Below(4) == 0) {
      const Choice& first = job[i - 1];
      choice.sibling = first.sibling >= 0 ? first.sibling : i - 1;
      choice.tokens = first.tokens;
      choice.max_output = first.max_output;
    } else {
      choice.tokens.resize(1 + rng.Below(shape.max_prompt));
      const bool shared_start = rng.Below(2) == 0;
      for (size_t j = 0; j < choice.tokens.size(); ++j)
        choice.tokens[j] = shared_start && j < 70 ? static_cast<int32_t>(j)
                                                  : static_cast<int32_t>(rng.Below(1000));
      choice.max_output = 1 + rng.Below(shape.max_output);
    }
    choice.prompt = static_cast<int64_t>(choice.tokens.size());
    choice.output = 1 + rng.Below(choice.max_output);
    if (shape.people && choice.sibling < 0 && rng.Below(4) == 0) {
      choice.service = Service::kInteractive;
      choice.arrives = static_cast<int64_t>(rng.Below(200));
    }
  }
  return job;
}

int64_t LargestNeed(const std::vector<Choice>& job) {
  int64_t need = 0;
  for (const Choice& choice : job)
    need = std::max(need, (choice.prompt + choice.max_output - 1 + 31) / 32);
  return need;
}

struct Outcome {
  int64_t steps = 0, rows = 0, preemptions = 0, hits = 0, peak_running = 0;
  int64_t people_preempted = 0;
};

class Loop {
 public:
  // `prices`: of steps, null: they have none.
  Loop(std::vector<Choice> job, Limits limits, const Policy& policy, uint64_t seed,
       const StepPrices* prices = nullptr)
      : job_(std::move(job)),
        limits_(limits),
        policy_(policy),
        rng_(seed),
        book_({.num_blocks = limits.total_blocks,
               .max_sequences = limits.max_num_seqs,
               .max_blocks_per_sequence = limits.total_blocks}) {
    for (Choice& choice : job_) waiting_.push_back(&choice);
    view_.prices = prices;
  }

  Outcome Run(int64_t max_steps) {
    while (!(running_.empty() && waiting_.empty())) {
      if (++outcome_.steps > max_steps) {
        ADD_FAILURE() << "not done after " << max_steps << " steps";
        break;
      }
      Look();
      policy_.Plan(view_, &plan_);
      CheckPlan(view_, plan_);
      Apply();
      if (outcome_.steps % 16 == 0) book_.CheckInvariants();
      if (::testing::Test::HasFatalFailure()) break;
    }
    outcome_.hits = book_.stats().prefix_blocks_hit;
    EXPECT_EQ(book_.available_blocks(), book_.num_blocks());
    return outcome_;
  }

 private:
  void Look() {
    view_.running.clear();
    view_.waiting.clear();
    view_.limits = limits_;
    view_.available_blocks = book_.available_blocks();
    for (const Choice* choice : running_) {
      const auto known = static_cast<int64_t>(choice->tokens.size());
      view_.running.push_back(
          {.order = choice->order,
           .known_tokens = known,
           .generated = choice->generated(),
           .computed_tokens = book_.computed(choice->id),
           .reserved_blocks = static_cast<int64_t>(book_.table(choice->id).size()),
           .exclusive_blocks = book_.exclusive_blocks(choice->id),
           .remaining_output = choice->max_output - choice->generated(),
           .decoding = known - book_.computed(choice->id) == 1,
           .service = choice->service});
    }
    waiting_in_view_.clear();
    std::stable_partition(waiting_.begin(), waiting_.end(), [](const Choice* choice) {
      return choice->service == Service::kInteractive;
    });
    for (Choice* choice : waiting_) {
      if (choice->arrives > outcome_.steps && !running_.empty()) continue;
      // It waits for its sibling's prompt to be committed and then shares it.
      if (choice->sibling >= 0 && job_[choice->sibling].generated() == 0) continue;
      waiting_in_view_.push_back(choice);
      const auto known = static_cast<int64_t>(choice->tokens.size());
      const kv::CachedPrefix cached = book_.FindCached(choice->tokens, 0, known - 1);
      view_.waiting.push_back({.order = choice->order,
                               .known_tokens = known,
                               .cached_tokens = cached.tokens,
                               .held_tokens = cached.held_tokens,
                               .remaining_output = choice->max_output - choice->generated(),
                               .service = choice->service});
    }
    view_.interactive_peak = peak_;
  }

  void Apply() {
    const std::vector<Choice*> running(running_.begin(), running_.end());
    for (const int32_t index : plan_.preempt) {
      Choice* choice = running[index];
      book_.Close(choice->id);
      std::erase(running_, choice);
      waiting_.push_front(choice);
      ++outcome_.preemptions;
      if (choice->service == Service::kInteractive) ++outcome_.people_preempted;
    }
    for (const RowsOf& entry : plan_.admit) {
      Choice* choice = waiting_in_view_[entry.index];
      choice->id = book_.Open(choice->tokens, 0, static_cast<int64_t>(choice->tokens.size()) - 1);
      std::erase(waiting_, choice);
      running_.push_back(choice);
      Compute(choice, entry.rows);
    }
    for (const RowsOf& entry : plan_.run) Compute(running[entry.index], entry.rows);
    Held people;
    for (const Choice* choice : running_) {
      if (choice->service == Service::kBatch) continue;
      ++people.choices;
      people.blocks += static_cast<int64_t>(book_.table(choice->id).size());
    }
    peak_ = peak_.MostOf(people);
    outcome_.peak_running = std::max<int64_t>(outcome_.peak_running, running_.size());
    for (Choice* choice : std::vector(running_)) Finish(choice);
  }

  void Compute(Choice* choice, int32_t rows) {
    const int64_t end = book_.computed(choice->id) + rows;
    ASSERT_LE(end, static_cast<int64_t>(choice->tokens.size()));
    ASSERT_TRUE(book_.Reserve(choice->id, end)) << "the plan promised room";
    book_.SetComputed(choice->id, end);
    outcome_.rows += rows;
  }

  // What follows a step: its tokens are committed, and where all known ones are computed the next
  // is drawn.
  void Finish(Choice* choice) {
    const int64_t begin = book_.committed(choice->id), end = book_.computed(choice->id);
    book_.Commit(choice->id, std::span(choice->tokens).subspan(begin, end - begin));
    if (end < static_cast<int64_t>(choice->tokens.size())) return;
    choice->tokens.push_back(static_cast<int32_t>(rng_.Below(1000)));
    if (choice->generated() < choice->output) return;
    book_.Close(choice->id);
    std::erase(running_, choice);
  }

  std::vector<Choice> job_;
  Limits limits_;
  const Policy& policy_;
  base::Rng rng_;
  kv::BlockBook book_;
  std::vector<Choice*> running_;  // in order of admission
  std::deque<Choice*> waiting_;
  std::vector<Choice*> waiting_in_view_;
  StepView view_;
  StepPlan plan_;
  Outcome outcome_;
  Held peak_;  // people's
};

// Steps if each choice ran alone, every one of its prompt's chunks shortened by the others'
// decodes: the first running choice always advances so fast, so no schedule may take longer. (A
// preempted choice computes its output again.)
int64_t SerialSteps(const std::vector<Choice>& job, const Limits& limits) {
  const int64_t chunk = limits.max_num_batched_tokens - limits.max_num_seqs + 1;
  int64_t steps = 0;
  for (const Choice& choice : job)
    steps += (choice.prompt + choice.output) / chunk + 1 + choice.output;
  return steps;
}

class SimulatedLoopTest : public ::testing::TestWithParam<const char*> {
 protected:
  Outcome Run(uint64_t seed, const JobShape& shape, Limits limits, int64_t extra_blocks) {
    base::Rng rng(seed);
    const std::vector<Choice> job = RandomJob(rng, shape);
    limits.total_blocks = static_cast<int32_t>(LargestNeed(job) + extra_blocks);
    const auto policy = CreatePolicy(GetParam());
    return Loop(job, limits, **policy, seed).Run(SerialSteps(job, limits));
  }
};

TEST_P(SimulatedLoopTest, FinishesInAnyMemoryThatHoldsTheLargestChoice) {
  int64_t preemptions = 0, hits = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    SCOPED_TRACE(seed);
    const Limits limits{.max_num_seqs = seed % 3 == 0 ? 4 : 24,
                        .max_num_batched_tokens = seed % 5 == 0 ? 25 : 128};
    const Outcome outcome = Run(seed, {}, limits, static_cast<int64_t>(seed % 40));
    preemptions += outcome.preemptions;
    hits += outcome.hits;
  }
  EXPECT_GT(hits, 1000);
  const std::string_view policy = GetParam();
  if (policy == "static_batch") {
    EXPECT_EQ(preemptions, 0);
  } else if (policy == "adaptive") {
    EXPECT_LT(preemptions, 30);
  } else if (policy == "makespan" || policy == "packed") {  // they overfill on purpose
    EXPECT_LT(preemptions, 300);
  } else if (policy == "continuous" || policy == "interactive" || policy == "whole") {
    EXPECT_GT(preemptions, 100);
  } else {
    EXPECT_GT(preemptions, 1000) << "growth was foreseen";
  }
}

TEST_P(SimulatedLoopTest, RunsALongJobWithoutAStall) {
  const Limits limits{.max_num_seqs = 32, .max_num_batched_tokens = 256};
  const JobShape shape{.num_choices = 500, .max_prompt = 300, .max_output = 200};
  const Outcome outcome = Run(7, shape, limits, 60);
  EXPECT_GT(outcome.steps, 1000);
}

INSTANTIATE_TEST_SUITE_P(Policies, SimulatedLoopTest,
                         ::testing::Values("adaptive", "continuous", "interactive", "makespan",
                                           "packed", "sarathi", "static_batch", "vasuki-printed",
                                           "vllm", "whole"));

// Plans as one policy and holds each plan to another's.
class HeldTo final : public Policy {
 public:
  HeldTo(const Policy& policy, const Policy& other) : policy_(policy), other_(other) {}
  std::string_view name() const override { return policy_.name(); }
  void Plan(const StepView& view, StepPlan* plan) const override {
    policy_.Plan(view, plan);
    StepPlan other;
    other_.Plan(view, &other);
    const auto hash = [](const StepPlan& of) {
      uint64_t sum = of.preempt.size();
      for (const int32_t index : of.preempt) sum = base::Combine64(sum, index);
      for (const std::vector<RowsOf>* const list : {&of.run, &of.admit}) {
        sum = base::Combine64(sum, list->size());
        for (const RowsOf& entry : *list)
          sum = base::Combine64(base::Combine64(sum, entry.index), entry.rows);
      }
      return sum;
    };
    EXPECT_EQ(hash(*plan), hash(other));
  }

 private:
  const Policy& policy_;
  const Policy& other_;
};

TEST(InteractiveLoopTest, OneServiceAloneIsPlannedAsByContinuous) {
  const auto interactive = CreatePolicy("interactive"), continuous = CreatePolicy("continuous");
  const HeldTo both(**interactive, **continuous);
  const StepPrices prices({{1, 1e-3}, {64, 2e-3}, {512, 1e-2}}, {1e-6, 1e-6, 1e-7});
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    std::vector<Choice> job = RandomJob(rng, {.num_choices = 20, .max_output = 60});
    if (seed % 2 == 1) {
      for (Choice& choice : job) choice.service = Service::kInteractive;
    }
    const Limits limits{
        .max_num_seqs = seed % 3 == 0 ? 4 : 12,
        .max_num_batched_tokens = seed % 5 == 0 ? 25 : 128,
        .least_chunk = seed % 7 == 0 ? 16 : 0,
        .total_blocks = static_cast<int32_t>(LargestNeed(job) + static_cast<int64_t>(seed % 30))};
    Loop(job, limits, both, seed, &prices).Run(SerialSteps(job, limits));
    if (::testing::Test::HasFailure()) return;
  }
}

// People come while a batch has all places and blocks: it gives way, they never do while it can,
// and all come to their ends.
TEST(InteractiveLoopTest, BatchesGiveWay) {
  const auto policy = CreatePolicy("interactive");
  const StepPrices prices({{1, 1e-3}, {64, 2e-3}, {512, 1e-2}}, {1e-6, 1e-6, 1e-7});
  int64_t preemptions = 0, people_preempted = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    base::Rng rng(seed);
    const std::vector<Choice> job =
        RandomJob(rng, {.num_choices = 60, .siblings = seed % 2 == 0, .people = true});
    const Limits limits{
        .max_num_seqs = 8,
        .max_num_batched_tokens = 128,
        .total_blocks = static_cast<int32_t>(LargestNeed(job) + static_cast<int64_t>(seed % 40)),
        .target_itl_seconds = seed % 3 == 0   ? 0
                              : seed % 3 == 1 ? 1e-4
                                              : 2e-3,
        .max_step_seconds = seed % 4 == 0 ? 0 : 2e-3};
    // A target that nothing keeps leaves a block's rows to prompts and one to a batch.
    const Outcome outcome =
        Loop(job, limits, **policy, seed, &prices).Run(60 * SerialSteps(job, limits));
    preemptions += outcome.preemptions;
    people_preempted += outcome.people_preempted;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(preemptions, 200);
  EXPECT_LT(people_preempted, preemptions / 4);
}

// Preemption is waste: in memory for about 13 choices it stays rare, and what is computed twice a
// small part.
TEST(ContinuousLoopTest, PreemptsRarelyInTightMemory) {
  const auto policy = CreatePolicy("continuous");
  int64_t rows = 0, tokens = 0, preemptions = 0, choices = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    base::Rng rng(seed);
    const std::vector<Choice> job =
        RandomJob(rng, {.num_choices = 200, .max_output = 400, .siblings = false});
    const Limits limits{.max_num_seqs = 64, .max_num_batched_tokens = 256, .total_blocks = 60};
    const Outcome outcome = Loop(job, limits, **policy, seed).Run(SerialSteps(job, limits));
    for (const Choice& choice : job) tokens += choice.prompt + choice.output - 1;
    rows += outcome.rows;
    preemptions += outcome.preemptions;
    choices += 200;
    EXPECT_GE(outcome.peak_running, 12);
  }
  std::printf("%ld choices, %ld preemptions, %.3f rows a token\n", choices, preemptions,
              static_cast<double>(rows) / static_cast<double>(tokens));
  EXPECT_GT(preemptions, 0);
  EXPECT_LT(preemptions, choices / 4);
  EXPECT_LT(rows, tokens * 11 / 10);
}

}  // namespace
}  // namespace forebay::schedule

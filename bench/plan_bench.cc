// What a step's planning takes beside the step, by policy and number of choices, and what the order
// of a job's lines takes: `plan_bench`. Processor time of the one thread that plans. A plan is
// looked at, decided, checked and taken into the books (Choices::View to Apply); blocks hold half
// of what the choices would fill, so that some are preempted and parked, or streamed.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "engine/choices/choices.h"
#include "engine/testing/make_request.h"
#include "job/line_order.h"
#include "schedule/policy.h"

namespace forebay {
namespace {

constexpr int32_t kPrompt = 64, kOutput = 192;

double ProcessorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

enum class Below { kNothing, kParked, kStreamed };

engine::ChoicesOptions OptionsOf(int32_t choices, Below below) {
  constexpr int32_t kBlocks = (kPrompt + kOutput) / kv::kBlockTokens;
  const int32_t all = choices * kBlocks;
  engine::ChoicesOptions options{
      .limits = {.max_num_seqs = choices, .max_num_batched_tokens = 2048, .total_blocks = all / 2},
      .max_blocks_per_sequence = kBlocks,
      .lengths = schedule::LengthPredictor::kQuantile};
  if (below != Below::kNothing) {
    options.tier = {.in_memory = all};
    options.park = {.row_seconds = 1};
  }
  if (below == Below::kStreamed) options.streaming.places = all / 4;
  return options;
}

// A job's choices, and what plans their steps.
struct Job {
  std::unique_ptr<schedule::Policy> policy;
  engine::Choices books;
  schedule::StepPlan plan;
  std::vector<engine::ChoiceRows> rows;
  std::vector<RequestResult> finished;

  Job(std::string_view name, const engine::ChoicesOptions& options)
      : policy(schedule::CreatePolicy(name).value()), books(options, {}) {}

  void Take(int64_t id, int32_t output) {
    books.Take(engine::MakeRequestState(engine::MakeRequest(id, kPrompt, output),
                                        {.max_model_len = kPrompt + kOutput}));
  }
  // Microseconds of the plan.
  double Step(int64_t step) {
    rows.clear();
    const double begin = ProcessorSeconds();
    const schedule::StepView& view = books.View(/*share=*/false, step);
    policy->Plan(view, &plan);
    schedule::CheckPlan(view, plan);
    books.Apply(plan, step, &rows);
    const double us = (ProcessorSeconds() - begin) * 1e6;
    books.tier_moves().Clear();
    books.streaming().changed().clear();
    for (const engine::ChoiceRows& each : rows) {
      books.Commit(each);
      if (each.end == each.sequence->known() && each.sequence->max_generated > 0)
        books.Append(each.sequence, static_cast<int32_t>(step % 1000), step);
      books.CloseIfEnded(each, &finished);
    }
    return us;
  }
};

// Microseconds of the median plan of a job, and of the dearest of a hundred.
std::pair<double, double> PlanTime(std::string_view name, int32_t choices, Below below) {
  Job job(name, OptionsOf(choices, below));
  std::vector<double> us;
  base::Rng rng(1);
  int64_t taken = 0;
  constexpr int64_t kSteps = 600;
  for (int64_t step = 0; step < kSteps; ++step) {
    while (job.books.WantsRequests())
      job.Take(taken++, static_cast<int32_t>(kOutput / 2 + rng.Below(kOutput / 2)));
    us.push_back(job.Step(step));
  }
  // The cache fills in the first half.
  us.erase(us.begin(), us.begin() + kSteps / 2);
  std::ranges::sort(us);
  return {us[us.size() / 2], us[us.size() * 99 / 100]};
}

// Equal prompts that come in one step reach each border of blocks together: the plan of the one for
// which the blocks do not suffice, as policy and check take it.
void PrintBorder() {
  constexpr int32_t kChoices = 4096;
  engine::ChoicesOptions options = OptionsOf(kChoices, Below::kNothing);
  options.limits.max_num_batched_tokens = kChoices * kPrompt;
  options.limits.total_blocks = kChoices * (kPrompt / kv::kBlockTokens + 1);
  Job job("continuous", options);
  for (int64_t id = 0; id < kChoices; ++id) job.Take(id, kOutput);
  for (int64_t step = 0;; ++step) {
    const double us = job.Step(step);
    if (job.plan.preempt.empty()) continue;
    fmt::print("\n{} equal prompts at a border: {} are preempted, {:.0f} us, {:.2f} a choice\n",
               kChoices, job.plan.preempt.size(), us, us / kChoices);
    return;
  }
}

void PrintPlans() {
  fmt::print("| policy | below | choices | us a plan, median | 99 of 100 | 50 + 1 a choice |\n");
  fmt::print("|---|---|---|---|---|---|\n");
  constexpr std::pair<Below, const char*> kBelow[] = {
      {Below::kNothing, ""}, {Below::kParked, "parked"}, {Below::kStreamed, "streamed"}};
  for (const char* name :
       {"continuous", "adaptive", "interactive", "makespan", "sarathi", "vllm", "whole"}) {
    for (const auto& [below, what] : kBelow) {
      for (const int32_t choices : {16, 128, 1024}) {
        const auto [median, most] = PlanTime(name, choices, below);
        fmt::print("| {} | {} | {} | {:.1f} | {:.1f} | {} |\n", name, what, choices, median, most,
                   50 + choices);
      }
    }
  }
}

void PrintOrder() {
  constexpr size_t kLines = 1'000'000, kGroups = 50'000;
  base::Rng rng(2);
  std::vector<job::LineSketch> lines(kLines);
  for (size_t i = 0; i < kLines; ++i) {
    const uint64_t group = rng.Below(kGroups);
    // Lengths are spread over octaves, and the longest take a quarter of the job.
    lines[i] = {
        .start = {static_cast<uint32_t>(base::Mix64(group % 100)), static_cast<uint32_t>(group)},
        .ordinal = static_cast<uint32_t>(i),
        .prompt = static_cast<uint32_t>(100 + rng.Below(2000)),
        .output = 1u << rng.Below(17)};
  }
  double begin = ProcessorSeconds();
  job::GroupByStart(&lines);
  const double seconds = ProcessorSeconds() - begin;
  begin = ProcessorSeconds();
  const std::vector<uint32_t> order = job::LongOnesInTime(lines, {.kv_tokens = 1e9});
  const double in_time_seconds = ProcessorSeconds() - begin;
  const std::string line = R"({"custom_id":"1","body":{"messages":[{"role":"user","content":")" +
                           std::string(1000, 'x') + R"("}],"max_tokens":100}})";
  begin = ProcessorSeconds();
  uint64_t sum = 0;
  for (int i = 0; i < 10'000; ++i) sum += job::SketchOf(line).start.near;
  fmt::print(
      "\norder of {} lines of {} kinds: {:.2f} s of a core, and {:.2f} s for long ones in time, at "
      "most 32 bytes a line; the start of a line of {} bytes: {:.2f} us (check {})\n",
      order.size(), kGroups, seconds, in_time_seconds, line.size(),
      (ProcessorSeconds() - begin) * 1e6 / 1e4, sum % 10);
}

}  // namespace
}  // namespace forebay

int main() {
  forebay::PrintPlans();
  forebay::PrintBorder();
  forebay::PrintOrder();
  return 0;
}

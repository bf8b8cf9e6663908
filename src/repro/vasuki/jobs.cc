#include "repro/vasuki/jobs.h"

#include <algorithm>
#include <span>

#include "choose/decide.h"
#include "engine/open_model.h"
#include "trace/synthetic_trace.h"

namespace forebay::repro {
namespace {

struct Lengths {
  int32_t prompt, output;
};
// Prompt and output lengths of every 20th request of the arXiv summarization trace that Vidur
// publishes (MIT licence; tokens of Llama 2's tokenizer, at most 4,096 together).
constexpr Lengths kArxiv[] = {
#include "repro/vasuki/arxiv_lengths.inc"
};

// Every 5th of those requests of the ShareGPT trace, published there too, whose answers are longer
// than their prompts.
constexpr Lengths kShareGpt[] = {
#include "repro/vasuki/sharegpt_lengths.inc"
};

// Every `step`th of these.
trace::LengthTrace TraceOf(std::span<const Lengths> lengths, size_t step) {
  trace::LengthTrace trace;
  for (size_t i = 0; i < lengths.size(); i += step)
    trace.rows.push_back({.prompt_tokens = lengths[i].prompt, .output_tokens = lengths[i].output});
  return trace;
}

trace::LengthTrace TraceOf(const VasukiJob& job, bool quick) {
  trace::LengthTrace trace = TraceOf(job.task);
  if (quick) trace.rows.resize(trace.rows.size() / 8);
  if (job.shortest_first) std::ranges::stable_sort(trace.rows, {}, &trace::TraceRow::output_tokens);
  return trace;
}

// The memory with which the device has just so much room for KV.
base::Result<uint64_t> MemoryFor(double room_gb, layout::EngineOptions options) {
  options.tier = {};
  FB_ASSIGN_OR_RETURN(const engine::ModelFiles files, engine::OpenModel(options.model, true, 0));
  FB_ASSIGN_OR_RETURN(const choose::Decision plan, choose::Decide(options, files.config));
  const layout::MemoryPlan& memory = plan.ranks[0].memory;
  const uint64_t block = plan.KvBlockBytes(false), budget = plan.machine.budget_bytes,
                 length = static_cast<uint64_t>(memory.max_blocks_per_sequence) * block,
                 others = layout::LeastBytes(memory, plan.ranks[0].request) - length,
                 kv = static_cast<uint64_t>(memory.num_blocks) * block;
  // Large devices have more than all choices can use.
  return budget - std::max(kv, (budget - others) / block * block) +
         static_cast<uint64_t>(room_gb * kGigabyte);
}

}  // namespace

MeanLengths LengthsOf(Task task) {
  if (task == Task::kTranslation) return {1067, 1612};
  MeanLengths mean;
  for (const auto& length : kArxiv) {
    mean.prompt += length.prompt / static_cast<double>(std::size(kArxiv));
    mean.output += length.output / static_cast<double>(std::size(kArxiv));
  }
  return mean;
}

trace::LengthTrace ArxivTrace() { return TraceOf(kArxiv, 1); }

trace::LengthTrace TraceOf(Task task) {
  switch (task) {
    case Task::kSummarization: return TraceOf(kArxiv, 4);
    case Task::kChat: return TraceOf(kShareGpt, 1);
    case Task::kTranslation: break;
  }
  auto made = trace::MakeSyntheticTrace(
      "synthetic:n=200,prompt=normal(1067,280),output=normal(1612,400),seed=1");
  FB_CHECK(made.ok(), "{}", made.status().ToString());
  return *std::move(made);
}

base::Result<const trace::SimulationResult*> RunVasuki(const VasukiJob& job, const VasukiRun& run,
                                                       Lab& lab) {
  std::string model = "Llama-3-8B", device = job.device;
  lab.Substitute(&model, &device);
  const std::string name =
      fmt::format("Vasuki {} {} GB {} {} {} | {} {} {} {}", static_cast<int>(job.task), job.room_gb,
                  device, job.chunk, job.shortest_first, run.policy, run.tier,
                  layout::Name(run.offload), static_cast<int>(run.preempt));
  return lab.Simulate(name, [&]() -> base::Result<trace::SimulationResult> {
    const trace::LengthTrace trace = TraceOf(job, lab.quick());
    trace::SimulationOptions simulation{.trace = &trace};
    layout::EngineOptions& options = simulation.engine;
    options.model = "builtin:" + model;
    options.machine.devices = *layout::ParseDevices(fmt::format("sim:{}", device));
    options.limits.max_model_len = 4096;
    options.limits.max_num_seqs = 256;
    options.limits.max_num_batched_tokens = static_cast<int32_t>(job.chunk);
    if (job.room_gb > 0) {
      FB_ASSIGN_OR_RETURN(options.machine.memory_bytes, MemoryFor(job.room_gb, options));
    }
    options.policy = *schedule::FindPolicy(run.policy);
    if (run.tier)
      options.tier = {
          .host_bytes = uint64_t{8} << 30, .preempt = run.preempt, .offload = run.offload};
    return trace::Simulate(simulation);
  });
}

}  // namespace forebay::repro

// Vasuki: one device with little memory. The part that needs no offload.
#include <algorithm>
#include <array>
#include <map>

#include "base/check.h"
#include "repro/rows.h"
#include "sim/simulation.h"

namespace forebay::repro {
namespace {

// Prompt and output lengths of every 20th request of the arXiv summarization trace that Vidur publishes (MIT licence; tokens
// of Llama 2's tokenizer, at most 4,096 together).
constexpr struct {
  int32_t prompt, output;
} kArxiv[] = {
#include "repro/arxiv_lengths.inc"
};

constexpr double kGigabyte = 1e9;
constexpr int kChunk = 512;  // where the source varies memory alone

struct Setting {
  int chunk = kChunk;
  double memory_gb = 0;  // 0: the device's own
  bool uncalibrated = false;
  auto operator<=>(const Setting&) const = default;
};

base::Result<sim::SimulationResult> RunArxiv(const Setting& setting) {
  sim::LengthTrace trace;
  for (const auto& length : kArxiv) trace.rows.push_back({.prompt_tokens = length.prompt, .output_tokens = length.output});
  sim::SimulationOptions simulation{.trace = &trace, .record_steps = true};
  engine::EngineOptions& options = simulation.engine;
  options.model = "builtin:Llama-3-8B";
  options.devices = "sim:a10";
  options.max_model_len = 4096;
  options.max_num_batched_tokens = setting.chunk;
  options.memory_bytes = static_cast<uint64_t>(setting.memory_gb * kGigabyte * options.memory_utilization);
  options.sim_uncalibrated = setting.uncalibrated;
  return sim::Simulate(simulation);
}

// Runs that several values need are run once.
class Runs {
 public:
  base::Result<const sim::SimulationResult*> Get(const Setting& setting) {
    const auto found = runs_.find(setting);
    if (found != runs_.end()) return &found->second;
    FB_ASSIGN_OR_RETURN(sim::SimulationResult run, RunArxiv(setting));
    return &runs_.emplace(setting, std::move(run)).first->second;
  }

 private:
  std::map<Setting, sim::SimulationResult> runs_;
};

double Restarts(const sim::SimulationResult& result) { return static_cast<double>(result.run.summary.stats.preemptions); }
double Seconds(const sim::SimulationResult& result) { return result.run.summary.elapsed_seconds; }

// A value compares two runs: of what they count, the first's over the second's.
struct Comparison {
  std::string_view label;
  Setting above, below;
  bool restarts;  // else the time until the last request is done

  double Ratio(const sim::SimulationResult& a, const sim::SimulationResult& b) const {
    return restarts ? Restarts(a) / Restarts(b) : Seconds(a) / Seconds(b);
  }
};

constexpr Comparison kComparisons[] = {
    {"time, 24 GB over 1000 GB", {}, {.memory_gb = 1000}, false},
    {"restarts, 2048 over 512", {.chunk = 2048}, {}, true},
    {"restarts, 4096 over 512", {.chunk = 4096}, {}, true},
    {"time, 2048 over 512", {.chunk = 2048}, {}, false},
    {"time, 4096 over 512", {.chunk = 4096}, {}, false},
};

void AddTerms(const sim::SimulationResult& run, std::array<std::string_view, 5> names, std::vector<Term>* account) {
  double running = 0;
  for (const StepRecord& step : run.steps) running += step.running;
  const auto steps = static_cast<double>(run.steps.size());
  const double values[] = {static_cast<double>(run.run.summary.model.kv_capacity_tokens), running / steps,
                           1e3 * Seconds(run) / steps, Seconds(run), Restarts(run)};
  for (size_t i = 0; i < names.size(); ++i) account->push_back({names[i], values[i]});
}

base::Result<double> RatioOf(const Comparison& comparison, bool uncalibrated, Runs* runs, std::vector<Term>* account) {
  Setting above = comparison.above, below = comparison.below;
  above.uncalibrated = below.uncalibrated = uncalibrated;
  FB_ASSIGN_OR_RETURN(const sim::SimulationResult* a, runs->Get(above));
  FB_ASSIGN_OR_RETURN(const sim::SimulationResult* b, runs->Get(below));
  if (account != nullptr) {
    AddTerms(*a, {"KV tokens", "batch", "step ms", "seconds", "restarts"}, account);
    AddTerms(*b, {"KV tokens below", "batch below", "step ms below", "seconds below", "restarts below"}, account);
  }
  return comparison.Ratio(*a, *b);
}

}  // namespace

base::Result<std::vector<Finding>> MemoryAndChunks(const Claim& claim, Lab&) {
  Runs runs;
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) {
    const auto* comparison = std::ranges::find(kComparisons, value.label, &Comparison::label);
    FB_CHECK(comparison != std::end(kComparisons), "a claim asks for \"{}\"", value.label);
    Finding finding;
    FB_ASSIGN_OR_RETURN(finding.calibrated, RatioOf(*comparison, false, &runs, &finding.account));
    FB_ASSIGN_OR_RETURN(finding.uncalibrated, RatioOf(*comparison, true, &runs, nullptr));
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace forebay::repro

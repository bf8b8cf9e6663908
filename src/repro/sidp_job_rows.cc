// SiDP: whole jobs, and what is left of them at the end.
#include "base/check.h"
#include "engine/layout_plan.h"
#include "repro/grid.h"
#include "repro/rows.h"

namespace forebay::repro {
namespace {

constexpr int64_t kRequests = 800;
// The tail: a choice of one replica, as long as vLLM's 10 s (figure 14) are at its 24 ms a step (figure 11).
constexpr int kTailSteps = 417;

JobSetting JobOf(const Setting& setting, std::string_view mode) {
  JobSetting job{.setting = setting, .requests = kRequests};
  job.setting.context = 4096;
  if (mode.empty()) return job;
  job.setting.weights = "by_layer";
  job.setting.mode = mode;
  return job;
}

// Figure 13's tokens a second.
struct JobFigure {
  std::string_view model;
  double vllm, was, switching;
};
constexpr JobFigure kFigure13[] = {{"Qwen3-32B", 5040, 5390, 6580}, {"Llama-3.1-70B", 2760, 2970, 3490}, {"Qwen2.5-72B", 2690, 2930, 3530}};

void AddTerms(const JobOutcome& outcome, const std::array<std::string_view, 9>& names, std::vector<Term>* account) {
  const double values[] = {outcome.kv_tokens, outcome.batch, outcome.step_ms, outcome.fetch_ms, outcome.exposed_ms,
                           outcome.seconds, outcome.preemptions, outcome.recomputed_tokens, outcome.tokens_per_s};
  for (size_t i = 0; i < names.size(); ++i) account->push_back({names[i], values[i]});
}

// The steps that decode one choice while the other replicas have none.
struct Tail {
  double seconds = 0, waited = 0, bytes_pulled = 0;
};
base::Result<Tail> RunTail(const Setting& setting) {
  const sim::LengthTrace trace{.rows = {{.prompt_tokens = 1024, .output_tokens = kTailSteps + 1}}};
  FB_ASSIGN_OR_RETURN(const sim::SimulationResult run, sim::Simulate({.engine = OptionsOf(setting), .trace = &trace, .record_steps = true}));
  Tail tail;
  for (const StepRecord& step : run.steps) {
    if (step.decode_rows != 1) continue;
    tail.seconds += step.end_seconds - step.begin_seconds;
    tail.waited += step.wait_seconds;
    tail.bytes_pulled += static_cast<double>(step.bytes_pulled);
  }
  return tail;
}

Setting TailSetting(std::string_view label) {
  Setting setting{.model = "Llama-3.1-70B", .devices = 4, .tp = 2, .weights = "by_layer", .mode = "ship"};
  if (HasWord(label, "vLLM")) setting.weights = "replicated", setting.mode = "pull";
  if (HasWord(label, "FSDP")) setting.gather = true;
  if (HasWord(label, "P2P")) setting.fuse = setting.skip_idle = false;
  if (HasWord(label, "fused")) setting.skip_idle = false;
  if (HasWord(label, "striped")) setting.weights = "striped";
  return setting;
}

}  // namespace

Findings ModeSwitch(const Claim& claim, Lab& lab) {
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) {
    const Setting setting = ReadLabel(value.label);
    // SiDP on eight replicas, as the paper shows it; vLLM on as many as hold the model.
    Setting vllm = setting;
    vllm.tp = setting.model == "Qwen3-32B" ? 1 : 2;
    const bool switching = HasWord(value.label, "WaS+CaS");
    FB_ASSIGN_OR_RETURN(const JobOutcome above, lab.RunJob(JobOf(setting, switching ? "auto" : "pull")));
    FB_ASSIGN_OR_RETURN(const JobOutcome below, lab.RunJob(switching ? JobOf(setting, "pull") : JobOf(vllm, "")));
    Finding finding{.calibrated = above.tokens_per_s / below.tokens_per_s};
    AddTerms(above, {"KV tokens", "batch", "step ms", "fetch ms", "exposed ms", "seconds", "preemptions", "recomputed tokens", "output tok/s"}, &finding.account);
    AddTerms(below, {"below: KV tokens", "batch", "step ms", "fetch ms", "exposed ms", "seconds", "preemptions", "recomputed tokens", "output tok/s"}, &finding.account);
    for (const JobFigure& figure : kFigure13) {
      if (figure.model != setting.model) continue;
      finding.account.push_back({"claimed tok/s", switching ? figure.switching : figure.was});
      finding.account.push_back({"below", switching ? figure.was : figure.vllm});
    }
    finding.account.push_back({"steps that ship, %", 100 * above.steps_ship / above.steps});
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings TailSteps(const Claim& claim, Lab&) {
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) {
    Finding finding;
    for (const bool uncalibrated : {false, true}) {
      Setting setting = TailSetting(value.label);
      Setting vllm = TailSetting("vLLM");
      setting.uncalibrated = vllm.uncalibrated = uncalibrated;
      FB_ASSIGN_OR_RETURN(const Tail tail, RunTail(setting));
      FB_ASSIGN_OR_RETURN(const Tail local, RunTail(vllm));
      const bool ratio = claim.id == "SI10.striped";
      const double ours = ratio ? tail.seconds / local.seconds : tail.seconds;
      (uncalibrated ? finding.uncalibrated.emplace() : finding.calibrated) = ours;
      if (uncalibrated) continue;
      finding.account = {{"batch", 1},
                         {"step ms", 1e3 * tail.seconds / kTailSteps},
                         {"of a local replica", 1e3 * local.seconds / kTailSteps},
                         {"waits for the other replica ms", 1e3 * tail.waited / setting.tp / kTailSteps},
                         {"MB pulled a rank", 1e-6 * tail.bytes_pulled / kTailSteps / setting.tp}};
      if (!ratio) finding.account.push_back({"claimed step ms", 1e3 * PrintedNumber(value.printed) / kTailSteps});
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

Findings StepsThatPull(const Claim& claim, Lab& lab) {
  std::vector<Finding> findings;
  const Setting setting{.model = "Llama-3.1-70B"};
  for (size_t i = 0; i < claim.values.size(); ++i) {
    if (claim.id == "SI11.threshold") {
      Setting paper{.model = "Llama-3.1-70B", .devices = 4, .tp = 2, .weights = "by_layer", .mode = "auto"};
      FB_ASSIGN_OR_RETURN(const Decoding decoding, lab.Decode(paper));
      findings.push_back({.calibrated = decoding.threshold, .account = {{"rows of a replica", decoding.threshold}, {"fetch ms", decoding.fetch_ms}}});
      continue;
    }
    FB_ASSIGN_OR_RETURN(const JobOutcome job, lab.RunJob(JobOf(setting, "auto")));
    findings.push_back({.calibrated = 100 * (1 - job.steps_ship / job.steps), .account = {{"steps", job.steps}, {"that ship", job.steps_ship}, {"KV tokens", job.kv_tokens}, {"batch", job.batch},
                        {"B_th", job.threshold}, {"claimed B_th", 32}, {"step ms", job.step_ms}, {"fetch ms", job.fetch_ms}, {"exposed ms", job.exposed_ms}}});
  }
  return findings;
}

}  // namespace forebay::repro

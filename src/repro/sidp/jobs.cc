// SiDP: whole jobs, and what is left of them at the end.
#include "layout/layout_plan.h"
#include "repro/sidp/rows.h"

namespace forebay::repro {
namespace {

// The tail: a choice of one replica, as long as vLLM's 10 s (figure 14) are at its 24 ms a step
// (figure 11).
constexpr int kTailSteps = 417;

// The job with all FFNs pooled by layer.
JobSetting JobOf(JobSetting job, const schedule::WantedMode& mode) {
  job.setting.weights = kByLayer;
  job.setting.mode = mode;
  return job;
}

Account TermsOf(const JobFigures& outcome) {
  return {{"KV tokens", outcome.kv_tokens},      {"batch", outcome.batch},
          {"step ms", outcome.step_ms},          {"fetch ms", outcome.fetch_ms},
          {"exposed ms", outcome.exposed_ms},    {"seconds", outcome.seconds},
          {"preemptions", outcome.preemptions},  {"recomputed tokens", outcome.recomputed_tokens},
          {"output tok/s", outcome.tokens_per_s}};
}

// The steps that decode one choice while the other replicas have none.
struct Tail {
  double seconds = 0, waited = 0, bytes_pulled = 0;
};
base::Result<Tail> RunTail(const GroupSetting& setting) {
  const trace::LengthTrace trace{
      .rows = {{.prompt_tokens = 1024, .output_tokens = kTailSteps + 1}}};
  FB_ASSIGN_OR_RETURN(
      const trace::SimulationResult run,
      trace::Simulate({.engine = OptionsOf(setting), .trace = &trace, .record_steps = true}));
  Tail tail;
  for (const StepRecord& step : run.steps) {
    if (step.decode_rows != 1) continue;
    tail.seconds += step.end_seconds - step.begin_seconds;
    tail.waited += step.waits.total();
    tail.bytes_pulled += static_cast<double>(step.bytes_pulled);
  }
  return tail;
}

// One tail, and that of a full replica of its own beside it.
struct Tails {
  Tail tail, local;
};
base::Result<Tails> RunTails(GroupSetting setting, bool uncalibrated) {
  GroupSetting vllm{.device = setting.device,
                    .model = setting.model,
                    .devices = setting.devices,
                    .tp = setting.tp};
  setting.uncalibrated = vllm.uncalibrated = uncalibrated;
  FB_ASSIGN_OR_RETURN(const Tail tail, RunTail(setting));
  FB_ASSIGN_OR_RETURN(const Tail local, RunTail(vllm));
  return Tails{tail, local};
}

Account TermsOf(const Tails& run, const GroupSetting& setting) {
  return {{"batch", 1},
          {"step ms", 1e3 * run.tail.seconds / kTailSteps},
          {"of a local replica", 1e3 * run.local.seconds / kTailSteps},
          {"waits for the other replica ms", 1e3 * run.tail.waited / setting.tp / kTailSteps},
          {"MB pulled a rank", 1e-6 * run.tail.bytes_pulled / kTailSteps / setting.tp}};
}

}  // namespace

FindingOr ModeSwitch(const JobsCompared& key, double, Lab& lab) {
  // SiDP on eight replicas, as the paper shows it; vLLM on as many as hold the model.
  const JobSetting sidp{{.model = key.model, .context = 4096}, key.requests, key.output};
  JobSetting vllm = sidp;
  vllm.setting.tp = key.model == "Qwen3-32B" ? 1 : 2;
  FB_ASSIGN_OR_RETURN(const JobFigures above,
                      lab.RunJob(JobOf(sidp, key.switching ? kAuto : kPull)));
  FB_ASSIGN_OR_RETURN(const JobFigures below,
                      lab.RunJob(key.switching ? JobOf(sidp, kPull) : vllm));
  Finding finding{.calibrated = above.tokens_per_s / below.tokens_per_s};
  finding.shortened = above.shortened || below.shortened;
  Append("", TermsOf(above), &finding.account);
  Append("below: ", TermsOf(below), &finding.account);
  finding.account.push_back({"claimed tok/s", key.claimed_above});
  finding.account.push_back({"below", key.claimed_below});
  finding.account.push_back({"steps that ship, %", 100 * above.steps_ship / above.steps});
  return finding;
}

namespace {

JobSetting StripedJob(JobSetting job) {
  job.setting.weights = kStriped;
  job.setting.mode = kAuto;
  return job;
}

// The best of TP4DP2, TP2DP4 and TP1DP8; `alone` is the last.
struct BestCopies {
  JobFigures best, alone;
  int tp = 0;
};
BestCopies BestOfCopies(const JobSetting& job, Lab& lab) {
  BestCopies copies;
  for (const int tp : {4, 2, 1}) {
    JobSetting dp = job;
    dp.setting.tp = tp;
    auto outcome = lab.RunJob(dp);
    if (!outcome.ok()) continue;  // no replica of so few devices holds the model
    if (outcome->tokens_per_s > copies.best.tokens_per_s) copies.best = *outcome, copies.tp = tp;
    if (tp == 1) copies.alone = *outcome;
  }
  return copies;
}

}  // namespace

FindingOr BatchingStrategy(const Batching& key, double, Lab& lab) {
  const auto run = [&](bool adaptive) -> base::Result<JobFigures> {
    JobSetting job = key.job;
    job.adaptive = adaptive;
    if (key.pools) return lab.RunJob(StripedJob(job));
    return BestOfCopies(job, lab).best;
  };
  FB_ASSIGN_OR_RETURN(const JobFigures fixed, run(false));
  FB_ASSIGN_OR_RETURN(const JobFigures adaptive, run(true));
  Finding finding{.calibrated = adaptive.tokens_per_s / fixed.tokens_per_s,
                  .shortened = fixed.shortened};
  Append("fixed: ", TermsOf(fixed), &finding.account);
  Append("adaptive: ", TermsOf(adaptive), &finding.account);
  return finding;
}

FindingOr WholeJob(const JobSetting& key, double, Lab& lab) {
  FB_ASSIGN_OR_RETURN(const JobFigures pooled, lab.RunJob(StripedJob(key)));
  const auto [best, alone, best_tp] = BestOfCopies(key, lab);
  Finding finding{.calibrated = pooled.tokens_per_s / best.tokens_per_s,
                  .shortened = pooled.shortened};
  Append("SiDP: ", TermsOf(pooled), &finding.account);
  finding.account.push_back({"steps that ship, %", 100 * pooled.steps_ship / pooled.steps});
  Append("best of DP+TP: ", TermsOf(best), &finding.account);
  finding.account.push_back({"its tp", static_cast<double>(best_tp)});
  finding.account.push_back({"TP1DP8: output tok/s", alone.tokens_per_s});
  return finding;
}

FindingOr TailSeconds(const GroupSetting& asked, double claimed, Lab& lab) {
  const GroupSetting key = lab.Substituted(asked);
  FB_ASSIGN_OR_RETURN(const Tails ours, RunTails(key, false));
  FB_ASSIGN_OR_RETURN(const Tails uncalibrated, RunTails(key, true));
  Finding finding{.calibrated = ours.tail.seconds,
                  .uncalibrated = uncalibrated.tail.seconds,
                  .account = TermsOf(ours, key)};
  finding.account.push_back({"claimed step ms", 1e3 * claimed / kTailSteps});
  return finding;
}

FindingOr TailOverLocal(const GroupSetting& asked, double, Lab& lab) {
  const GroupSetting key = lab.Substituted(asked);
  FB_ASSIGN_OR_RETURN(const Tails ours, RunTails(key, false));
  FB_ASSIGN_OR_RETURN(const Tails uncalibrated, RunTails(key, true));
  return Finding{.calibrated = ours.tail.seconds / ours.local.seconds,
                 .uncalibrated = uncalibrated.tail.seconds / uncalibrated.local.seconds,
                 .account = TermsOf(ours, key)};
}

FindingOr ShareOfPulling(const JobSetting& key, double, Lab& lab) {
  FB_ASSIGN_OR_RETURN(const JobFigures job, lab.RunJob(JobOf(key, kAuto)));
  return Finding{.calibrated = 100 * (1 - job.steps_ship / job.steps),
                 .account = {{"steps", job.steps},
                             {"that ship", job.steps_ship},
                             {"KV tokens", job.kv_tokens},
                             {"batch", job.batch},
                             {"B_th", job.threshold},
                             {"claimed B_th", 32},
                             {"step ms", job.step_ms},
                             {"fetch ms", job.fetch_ms},
                             {"exposed ms", job.exposed_ms}},
                 .shortened = job.shortened};
}

FindingOr Threshold(const GroupSetting& key, double, Lab& lab) {
  FB_ASSIGN_OR_RETURN(const Decoding decoding, lab.Decode(key));
  return Finding{
      .calibrated = decoding.threshold,
      .account = {{"rows of a replica", decoding.threshold}, {"fetch ms", decoding.fetch_ms}}};
}

}  // namespace forebay::repro

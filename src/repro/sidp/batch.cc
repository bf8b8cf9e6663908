// SiDP: what needs one copy of the weights a device, that is plain data parallelism.
#include "base/check.h"
#include "repro/sidp/rows.h"
#include "trace/simulation.h"

namespace forebay::repro {
namespace {

constexpr int kReplicas = 8;
constexpr trace::TraceRow kOneK = {.prompt_tokens = 512, .output_tokens = 512};
constexpr trace::TraceRow kPromptsAlone = {.prompt_tokens = 512, .output_tokens = 1};

base::Result<trace::SimulationResult> RunBatch(int batch, const trace::TraceRow& length,
                                               bool uncalibrated) {
  const trace::LengthTrace trace{
      .rows = std::vector<trace::TraceRow>(static_cast<size_t>(batch), length)};
  trace::SimulationOptions options{.trace = &trace, .record_steps = true};
  options.engine.model = "builtin:Qwen3-32B";
  options.engine.machine.devices = *layout::ParseDevices(fmt::format("sim:{}xh20", kReplicas));
  options.engine.limits.max_num_seqs = batch / kReplicas;
  options.engine.machine.uncalibrated = uncalibrated;
  options.engine.profile = true;
  return trace::Simulate(options);
}

// Seconds that all devices' compute streams spent in operations of this kind.
double SecondsIn(const trace::SimulationResult& result, cost::OpKind kind) {
  double seconds = 0;
  for (const device::OpProfile& op : result.run.profile)
    seconds += op.kind == kind ? op.seconds : 0;
  return seconds;
}

// The steps in which a device decodes its whole share of the batch, and does nothing else.
struct WholeSteps {
  WholeSteps(const trace::SimulationResult& run, int batch) {
    for (const StepRecord& step : run.steps) {
      if (step.decode_rows != batch / kReplicas || step.prefill_rows != 0) continue;
      rows += step.decode_rows;
      seconds += step.end_seconds - step.begin_seconds;
      context += static_cast<double>(step.context_tokens);
      ++steps;
    }
    FB_CHECK(steps > 0, "no step decoded {} rows", batch / kReplicas);
  }
  double tokens_per_s() const { return kReplicas * rows / seconds; }
  double step_ms() const { return 1e3 * seconds / steps; }

  double rows = 0, seconds = 0, context = 0, steps = 0;
};

// What a step is made of: by kind of operation, of a run less its prompts. The host's part is
// priced with the embedding.
base::Result<Account> AccountOf(const trace::SimulationResult& run, const WholeSteps& decoding,
                                int batch, double claimed_k_tokens) {
  FB_ASSIGN_OR_RETURN(const trace::SimulationResult prompts, RunBatch(batch, kPromptsAlone, false));
  const job::JobSummary &whole = run.run.summary, &without = prompts.run.summary;
  const auto steps = static_cast<double>(whole.stats.steps - without.stats.steps);
  const auto step_ms = [&](cost::OpKind kind) {
    return 1e3 * (SecondsIn(run, kind) - SecondsIn(prompts, kind)) / steps;
  };
  const double linear = step_ms(cost::OpKind::kLinear),
               attention = step_ms(cost::OpKind::kAttention);
  const double host = step_ms(cost::OpKind::kEmbed);
  return Account{
      {"rows a device", decoding.rows / decoding.steps},
      {"context", decoding.context / decoding.rows},
      {"KV tokens a device", static_cast<double>(whole.model.kv_capacity_tokens) / kReplicas},
      {"linear ms", linear},
      {"attention ms", attention},
      {"host ms", host},
      {"other ms", decoding.step_ms() - linear - attention - host},
      {"step ms", decoding.step_ms()},
      {"claimed step ms", batch / claimed_k_tokens}};
}

}  // namespace

FindingOr BatchScaling(const int& batch, double claimed, Lab&) {
  FB_ASSIGN_OR_RETURN(const trace::SimulationResult run, RunBatch(batch, kOneK, false));
  FB_ASSIGN_OR_RETURN(const trace::SimulationResult uncalibrated, RunBatch(batch, kOneK, true));
  const WholeSteps decoding(run, batch);
  FB_ASSIGN_OR_RETURN(Account account, AccountOf(run, decoding, batch, claimed));
  return Finding{.calibrated = decoding.tokens_per_s() / 1e3,
                 .uncalibrated = WholeSteps(uncalibrated, batch).tokens_per_s() / 1e3,
                 .account = std::move(account)};
}

}  // namespace forebay::repro

// SiDP: what needs one copy of the weights a device, that is plain data parallelism.
#include <cstdio>

#include "base/check.h"
#include "cost/profile.h"
#include "repro/rows.h"
#include "repro/simulated_job.h"

namespace forebay::repro {
namespace {

constexpr int kDevices = 8;
constexpr char kProfile[] = "h20";
constexpr RequestLength kOneK = {.prompt_tokens = 512, .output_tokens = 512};

base::Result<SimulatedRun> RunBatch(int batch, RequestLength length, bool uncalibrated) {
  engine::EngineOptions options;
  options.model = "builtin:Qwen3-32B";
  options.devices = fmt::format("sim:{}x{}", kDevices, kProfile);
  options.max_num_seqs = batch / kDevices;
  options.prefix_caching = false;
  options.sim_uncalibrated = uncalibrated;
  options.profile = true;
  return Simulate(options, std::vector<RequestLength>(static_cast<size_t>(batch), length));
}

// The steps in which a device decodes its whole share of the batch, and does nothing else.
struct Decoding {
  Decoding(const SimulatedRun& run, int batch) {
    for (const StepRecord& step : run.steps) {
      if (step.decode_rows != batch / kDevices || step.prefill_rows != 0) continue;
      rows += step.decode_rows;
      seconds += step.end_seconds - step.begin_seconds;
      context += static_cast<double>(step.context_tokens);
      ++steps;
    }
    FB_CHECK(steps > 0, "no step decoded {} rows", batch / kDevices);
  }
  double tokens_per_s() const { return kDevices * rows / seconds; }
  double step_ms() const { return 1e3 * seconds / steps; }

  double rows = 0, seconds = 0, context = 0, steps = 0;
};

// What a step is made of: by kind of operation, of a run less its prompts. The host's part is priced with the embedding.
base::Result<std::vector<Term>> Account(const SimulatedRun& run, const Decoding& decoding, int batch, double claimed_k_tokens) {
  FB_ASSIGN_OR_RETURN(const SimulatedRun prompts, RunBatch(batch, {kOneK.prompt_tokens, 1}, false));
  FB_ASSIGN_OR_RETURN(const cost::DeviceProfile profile, cost::LoadProfile(kProfile));
  const auto steps = static_cast<double>(run.stats.steps - prompts.stats.steps);
  const auto step_ms = [&](cost::OpKind kind) { return 1e3 * (run.SecondsIn(kind) - prompts.SecondsIn(kind)) / steps; };
  const double linear = step_ms(cost::OpKind::kLinear), attention = step_ms(cost::OpKind::kAttention);
  const double host = 1e3 * profile.step_overhead_s;
  return std::vector<Term>{{"rows a device", decoding.rows / decoding.steps},
                           {"context", decoding.context / decoding.rows},
                           {"KV tokens a device", static_cast<double>(run.facts.kv_capacity_tokens) / kDevices},
                           {"linear ms", linear},
                           {"attention ms", attention},
                           {"host ms", host},
                           {"other ms", decoding.step_ms() - linear - attention - host},
                           {"step ms", decoding.step_ms()},
                           {"claimed step ms", batch / claimed_k_tokens}};
}

}  // namespace

base::Result<std::vector<Finding>> BatchScaling(const Claim& claim) {
  std::vector<Finding> findings;
  for (const ClaimedValue& value : claim.values) {
    int batch = 0;
    const bool read = std::sscanf(value.label.data(), "B = %d", &batch) == 1;
    FB_CHECK(read, "a claim asks for \"{}\"", value.label);
    FB_ASSIGN_OR_RETURN(const SimulatedRun run, RunBatch(batch, kOneK, false));
    FB_ASSIGN_OR_RETURN(const SimulatedRun uncalibrated, RunBatch(batch, kOneK, true));
    const Decoding decoding(run, batch);
    FB_ASSIGN_OR_RETURN(auto account, Account(run, decoding, batch, PrintedNumber(value.printed)));
    findings.push_back({.calibrated = decoding.tokens_per_s() / 1e3,
                        .uncalibrated = Decoding(uncalibrated, batch).tokens_per_s() / 1e3,
                        .account = std::move(account)});
  }
  return findings;
}

}  // namespace forebay::repro

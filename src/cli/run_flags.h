// What `forebay run` was asked for, and what its two ways of running (run.cc: a job with results; run_simulated.cc: without)
// have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/layout_flags.h"
#include "engine/compose.h"
#include "engine/machine.h"
#include "job/job.h"
#include "job/model_text.h"
#include "profile/rates.h"
#include "sim/simulation.h"

namespace forebay::cli {

struct RunFlags {
  engine::EngineOptions engine;
  job::ModelTextOptions text;
  job::JobOptions job;
  LayoutFlags layout;
  std::optional<std::string> input;
  std::string now, served_model_name;
  std::string generation_config = "auto";
  int32_t max_logprobs = 20;
  bool quiet = false;
  std::string trace, output_lengths, steps_path, report_path, sim_detail = "jump";
  sim::TraceOptions trace_options;

  // REQUIRES: `devices` can be read (CheckWork).
  bool simulated() const { return engine::ParseDevices(engine.devices)->simulated; }
};

base::Result<engine::ModelFiles> OpenFiles(const RunFlags& flags);
job::RequestRules RulesOf(const RunFlags& flags, const engine::ModelFiles& files, const ModelFacts& facts);

// Of an engine that was not made: 2 where a flag's value alone is at fault.
int EngineExitCode(const base::Status& status);
// `rates`: what the machine could do, for shares of the limit; null: no shares.
void PrintProfile(const std::vector<device::OpProfile>& profile, double step_seconds, const profile::Rates* rates);

// Runs a trace, or a job on simulated devices; results are counted and dropped. Returns the exit code.
int RunWithoutResults(RunFlags& flags, runtime::Runtime& runtime);

}  // namespace forebay::cli

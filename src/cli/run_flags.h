// What `forebay run` was asked for, and what its two ways of running (run.cc: a job with results;
// run_simulated.cc: without) have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/model_flags.h"
#include "engine/compose.h"
#include "job/arrivals.h"
#include "job/job.h"
#include "layout/machine.h"
#include "profile/rates.h"
#include "trace/simulation.h"

namespace forebay::cli {

struct RunFlags : ModelFlags {
  job::JobOptions job;
  std::optional<std::string> input;
  std::string shard;
  bool group_prefixes = false;
  bool quiet = false;
  // --profile. Engines profile for --report too.
  bool prints_profile = false;
  std::string trace, output_lengths, steps_path, report_path, sim_detail = "jump";
  trace::TraceOptions trace_options;
  job::ArrivalOptions arrivals;

  bool simulated() const { return engine.machine.devices.simulated; }
  // Somebody looks at when each token came.
  bool measures_tokens() const { return !job.summary_path.empty() || !report_path.empty(); }
};

// Can what the flags name as outputs be written, without harm to each other and to what is read?
base::Status CheckOutputFiles(const RunFlags& flags);
// `rates`: what the machine could do, for shares of the limit; null: no shares.
void PrintProfile(const std::vector<device::OpProfile>& profile, double step_seconds,
                  const profile::Rates* rates);

// Runs a trace, or a job on simulated devices; results are counted and dropped. Returns the exit
// code.
int RunWithoutResults(RunFlags& flags, runtime::Runtime& runtime);

}  // namespace forebay::cli

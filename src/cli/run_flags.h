// What `forebay run` was asked for, and what its two ways of running (run.cc: a job with results;
// run_simulated.cc: without) have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/compose.h"
#include "job/job.h"
#include "job/traffic/arrivals.h"
#include "layout/machine.h"
#include "profile/rates.h"
#include "settings/run_options.h"
#include "trace/simulation.h"

namespace forebay::cli {

struct RunFlags : settings::RunOptions {
  // --profile. Engines profile for --report too.
  bool prints_profile = false;

  bool simulated() const { return layout::RequireSimulated(engine.machine.devices).ok(); }
  trace::TraceOptions trace_options() const { return {trace_rows, trace_scale}; }
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

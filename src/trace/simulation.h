// Runs without results: a trace on any device, and any job on simulated ones. The one way in which
// the command line, the scenarios and the tests simulate.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "choose/layout_search.h"
#include "engine/compose.h"
#include "forebay/engine.h"
#include "job/line_order.h"
#include "job/summary.h"
#include "job/traffic/arrivals.h"
#include "job/traffic/latency.h"
#include "job/traffic/mixed_source.h"
#include "runtime/runtime.h"
#include "trace/counted_source.h"
#include "trace/trace.h"

namespace forebay::trace {

// What the requests of one service came to, where two traces ran.
struct ServiceRun {
  job::Latencies latencies;
  job::StreamTokens tokens;
};

struct CountedRun {
  RunEnd end = RunEnd::kComplete;
  job::JobSummary summary;   // as a real job's; in virtual time on simulated devices
  job::Latencies latencies;  // of both services; tokens' times are each one's own
  std::optional<ServiceRun> interactive, batch;  // both or none
  std::vector<device::OpProfile> profile;        // where EngineOptions::profile is on
  std::vector<engine::RankReport> ranks;
  std::string layout;             // as --layout has it
  double target_itl_seconds = 0;  // LocalEngine::target_itl_seconds
  // LocalEngine::CheckCounters, where the run came to its end: the rest of one that was ended early
  // might have done what was asked.
  base::Status did;
};

// job::kAllLinesFailed where the run came to its end and not one of its lines to an answer.
base::Status CheckSuccess(const CountedRun& run);

// What the two services came to, in the summary of a run that has both.
void AddServices(const CountedRun& run, job::JobSummary* summary);

// Runs `source` to its end; results are counted and dropped. Requests come as `arrivals` says, at
// the times of the source where it says none. `each_token`: as job::TimedSource. Errors:
// job::kStalled, the source's.
base::Result<CountedRun> RunCounted(runtime::Runtime& runtime, engine::LocalEngine& engine,
                                    CountedSource& source, RunControl& control,
                                    job::Arrivals arrivals = {}, bool each_token = false);

// The same with `batch` beside people, whose requests come as `arrivals` says; the batch's at their
// trace's times, drawn with `seed`, numbered behind those of `people`. Null: there is no batch.
base::Result<CountedRun> RunServices(runtime::Runtime& runtime, engine::LocalEngine& engine,
                                     CountedSource& people, const LengthTrace* batch, uint64_t seed,
                                     RunControl& control, job::Arrivals arrivals, bool each_token);

// A source for an engine that has just been made; all arguments outlive it.
using MakeSource = std::function<std::unique_ptr<CountedSource>(
    runtime::Runtime& runtime, const engine::LocalEngine& engine, const RunControl& control)>;

struct SimulationOptions {
  // `devices` are simulated ones; `seed` is the whole run's
  layout::EngineOptions engine;
  const engine::ModelFiles* files = nullptr;  // null: the configuration that engine.model names
  const LengthTrace* trace = nullptr;         // what runs: this trace,
  MakeSource make_source;                     // or where that is null, this;
  const LengthTrace* batch_trace = nullptr;   // and this beside people's `trace`; null: nothing
  job::Arrivals arrivals;                     // see RunCounted
  bool each_token = false;                    // see RunCounted
  StepObserver* observer = nullptr;           // is told of every step
  // who gets which request; null: as the policy has it
  const engine::HandOutLog* hand_out = nullptr;
  bool record_steps = false;       // keep SimulationResult::steps
  RunControl* control = nullptr;   // where somebody may end the run early
  choose::TellSearch tell_search;  // hears how far a search of layouts is; may be null
};

struct SimulationResult {
  CountedRun run;
  std::vector<StepRecord> steps;
  double host_seconds = 0;           // this machine's, from the engine's first call to its last
  double steps_per_host_second = 0;  // all ranks together
};

// The same options give the same result, but for host times and memory. CountedRun::did is an error
// where there is no `control`, whose owner looks at it.
base::Result<SimulationResult> Simulate(const SimulationOptions& options);

}  // namespace forebay::trace

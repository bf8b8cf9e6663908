#include "trace/simulation.h"
#include "choose/create_engine.h"

#include <optional>
#include <utility>

#include "job/job.h"
#include "job/timed_source.h"
#include "layout/machine.h"
#include "runtime/real/real_runtime.h"
#include "runtime/virtual/virtual_runtime.h"
#include "trace/counting_sink.h"
#include "trace/job_lengths.h"
#include "trace/trace_source.h"

namespace forebay::trace {
namespace {

// Keeps steps and passes them on.
class StepKeeper final : public StepObserver {
 public:
  StepKeeper(StepObserver* next, std::vector<StepRecord>* steps) : next_(next), steps_(steps) {}
  void OnStep(const StepRecord& record) override {
    if (next_) next_->OnStep(record);
    if (steps_) steps_->push_back(record);
    ++count_;
  }
  int64_t count() const { return count_; }

 private:
  StepObserver* const next_;
  std::vector<StepRecord>* const steps_;
  int64_t count_ = 0;
};

job::JobSummary Summarize(const engine::LocalEngine& engine, const CountedSource& source,
                          const CountingSink& sink, RunEnd end, runtime::TimeNs elapsed) {
  job::JobSummary summary{.end = std::string(job::Name(job::ExitCodeOf(end))),
                          .isa = engine.isa(),
                          .model = engine.facts(),
                          .stats = engine.stats()};
  summary.lines = source.lines();
  summary.failed = summary.total_failed = sink.failed() + source.refused();
  summary.done = sink.finished() + source.refused();
  job::FailureTally failures = source.failures();
  failures.Add(sink.failures());
  summary.failures = failures.ByCount();
  summary.prompt_tokens = sink.prompt_tokens();
  summary.output_tokens = sink.output_tokens();
  summary.elapsed_seconds = runtime::SecondsOf(elapsed);
  summary.first_result_seconds = summary.stats.first_result_seconds;
  summary.tail_seconds = sink.TailSeconds();
  summary.peak_rss_bytes = job::PeakRssBytes();
  return summary;
}

// Inside virtual time, where the engine lives and dies.
base::Result<SimulationResult> SimulateInside(runtime::Runtime& runtime,
                                              const SimulationOptions& options,
                                              const engine::ModelFiles& files,
                                              RunControl& control) {
  layout::EngineOptions engine_options = options.engine;
  if (options.trace) DescribeTrace(*options.trace, &engine_options);
  FB_ASSIGN_OR_RETURN(const auto engine,
                      choose::CreateEngine(runtime, engine_options, files, nullptr));
  SimulationResult result;
  StepKeeper keeper(options.observer, options.record_steps ? &result.steps : nullptr);
  engine->SetStepObserver(&keeper);
  engine->ReplayHandOut(options.hand_out);
  std::unique_ptr<CountedSource> source;
  if (options.trace) {
    source = std::make_unique<TraceSource>(*options.trace, engine->facts(), options.engine.seed,
                                           control, job::OrderOf(options.engine, *engine));
  } else {
    source = options.make_source(runtime, *engine, control);
  }
  const std::unique_ptr<runtime::Runtime> host = runtime::CreateRealRuntime();
  const runtime::TimeNs began = host->Now();
  FB_ASSIGN_OR_RETURN(result.run, RunCounted(runtime, *engine, *source, control, options.arrivals,
                                             options.each_token));
  if (options.control == nullptr) FB_RETURN_IF_ERROR(result.run.did);
  result.host_seconds = runtime::SecondsOf(host->Now() - began);
  if (result.host_seconds > 0)
    result.steps_per_host_second = static_cast<double>(keeper.count()) / result.host_seconds;
  return result;
}

}  // namespace

base::Status CheckSuccess(const CountedRun& run) {
  if (run.end != RunEnd::kComplete) return {};
  return job::CheckSomeSucceeded(run.summary.lines, run.summary.total_failed, run.summary.failures,
                                 "mend the input, or see --max-model-len");
}

base::Result<CountedRun> RunCounted(runtime::Runtime& runtime, engine::LocalEngine& engine,
                                    CountedSource& source, RunControl& control,
                                    job::Arrivals arrivals, bool each_token) {
  const runtime::TimeNs began = runtime.Now();
  if (arrivals.seconds.empty()) arrivals.seconds = source.arrivals();
  CountingSink sink(runtime);
  job::TimedSource timed(runtime, source, sink, std::move(arrivals), control, each_token);
  const RunEnd end = engine.Run(timed, timed, control);
  const runtime::TimeNs elapsed = runtime.Now() - began;
  FB_RETURN_IF_ERROR(source.status());
  if (end == RunEnd::kStalled) return base::Status(job::kStalled, "the engine made no progress");
  CountedRun run{end, Summarize(engine, source, sink, end, elapsed), timed.latencies(),
                 engine.Profile(), engine.Reports()};
  if (end == RunEnd::kComplete) run.did = engine.CheckCounters();
  if (!CheckSuccess(run).ok()) run.summary.end = job::Name(job::ExitCode::kAllFailed);
  return run;
}

base::Result<SimulationResult> Simulate(const SimulationOptions& options) {
  FB_CHECK(options.trace || options.make_source, "a simulation needs a trace or a source");
  FB_RETURN_IF_ERROR(layout::RequireSimulated(options.engine.machine.devices));
  std::optional<engine::ModelFiles> opened;
  if (!options.files) {
    FB_ASSIGN_OR_RETURN(opened, engine::OpenModel(options.engine.model, true, options.engine.seed));
    opened->random_weights = false;
    if (options.engine.machine.mla_absorbed) FB_RETURN_IF_ERROR(engine::AbsorbPrompts(&*opened));
  }
  const engine::ModelFiles& files = options.files ? *options.files : *opened;
  RunControl own;
  RunControl& control = options.control ? *options.control : own;
  runtime::VirtualRuntime runtime(options.engine.seed);
  std::optional<base::Result<SimulationResult>> result;
  FB_RETURN_IF_ERROR(
      runtime.Run([&] { result = SimulateInside(runtime, options, files, control); }));
  return std::move(*result);
}

}  // namespace forebay::trace

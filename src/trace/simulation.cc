#include "trace/simulation.h"
#include "choose/create_engine.h"

#include <initializer_list>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "job/job.h"
#include "job/traffic/timed_source.h"
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

// What a run takes its requests from, and who measures them.
struct Stream {
  CountedSource& source;
  job::TimedSource timed;

  Stream(runtime::Runtime& runtime, CountedSource& from, CountingSink& sink, job::Arrivals arrivals,
         const RunControl& control, bool each_token)
      : source(from),
        timed(runtime, from, sink,
              {.seconds = arrivals.seconds.empty() ? from.arrivals() : std::move(arrivals.seconds),
               .max_concurrency = arrivals.max_concurrency},
              control, each_token) {}
};

job::JobSummary Summarize(const engine::LocalEngine& engine,
                          std::span<const CountedSource* const> sources, const CountingSink& sink,
                          RunEnd end, runtime::TimeNs elapsed) {
  job::JobSummary summary{.end = std::string(job::Name(job::ExitCodeOf(end))),
                          .isa = engine.isa(),
                          .model = engine.facts(),
                          .stats = engine.stats()};
  summary.failed = sink.failed();
  summary.done = sink.finished();
  job::FailureTally failures;
  for (const CountedSource* const source : sources) {
    summary.lines += source->lines();
    summary.failed += source->refused();
    summary.done += source->refused();
    failures.Add(source->failures());
  }
  summary.total_failed = summary.failed;
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

// The run, but for its latencies.
base::Result<CountedRun> Run(runtime::Runtime& runtime, engine::LocalEngine& engine,
                             std::initializer_list<const Stream*> streams, RequestSource& source,
                             ResultSink& results, const CountingSink& sink, RunControl& control) {
  const runtime::TimeNs began = runtime.Now();
  const RunEnd end = engine.Run(source, results, control);
  const runtime::TimeNs elapsed = runtime.Now() - began;
  std::vector<const CountedSource*> sources;
  for (const Stream* const stream : streams) {
    FB_RETURN_IF_ERROR(stream->source.status());
    sources.push_back(&stream->source);
  }
  if (end == RunEnd::kStalled) return base::Status(job::kStalled, "the engine made no progress");
  CountedRun run{.end = end,
                 .summary = Summarize(engine, sources, sink, end, elapsed),
                 .profile = engine.Profile(),
                 .ranks = engine.Reports(),
                 .layout = engine.layout(),
                 .target_itl_seconds = engine.target_itl_seconds()};
  if (end == RunEnd::kComplete) run.did = engine.CheckCounters();
  if (!CheckSuccess(run).ok()) run.summary.end = job::Name(job::ExitCode::kAllFailed);
  return run;
}

// Inside virtual time, where the engine lives and dies.
base::Result<SimulationResult> SimulateInside(runtime::Runtime& runtime,
                                              const SimulationOptions& options,
                                              const engine::ModelFiles& files,
                                              RunControl& control) {
  layout::EngineOptions engine_options = options.engine;
  // Of two traces nobody knows when each ends.
  if (options.trace && !options.batch_trace) DescribeTrace(*options.trace, &engine_options);
  FB_ASSIGN_OR_RETURN(const auto engine, choose::CreateEngine(runtime, engine_options, files,
                                                              nullptr, options.tell_search));
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
  FB_ASSIGN_OR_RETURN(
      result.run, RunServices(runtime, *engine, *source, options.batch_trace, options.engine.seed,
                              control, options.arrivals, options.each_token));
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

void AddServices(const CountedRun& run, job::JobSummary* summary) {
  if (run.interactive && run.target_itl_seconds > 0)
    summary->latencies_ms.emplace_back("interactive_target_itl_ms", 1e3 * run.target_itl_seconds);
  for (const auto& [name, of] :
       {std::pair("interactive_", &run.interactive), std::pair("batch_", &run.batch)}) {
    if (!*of) continue;
    job::AddLatencies((*of)->latencies, summary, name);
    const job::StreamTokens& tokens = (*of)->tokens;
    const std::pair<const char*, double> values[] = {
        {"num_requests", static_cast<double>(tokens.requests)},
        {"end_seconds", tokens.end_seconds},
        {"tokens_per_second", tokens.PerSecond(tokens.prompt + tokens.output)},
        {"output_tokens_per_second", tokens.PerSecond(tokens.output)}};
    for (const auto& [value, number] : values)
      summary->latencies_ms.emplace_back(std::string(name) + value, number);
  }
}

base::Result<CountedRun> RunCounted(runtime::Runtime& runtime, engine::LocalEngine& engine,
                                    CountedSource& source, RunControl& control,
                                    job::Arrivals arrivals, bool each_token) {
  CountingSink sink(runtime);
  Stream stream(runtime, source, sink, std::move(arrivals), control, each_token);
  FB_ASSIGN_OR_RETURN(CountedRun run,
                      Run(runtime, engine, {&stream}, stream.timed, stream.timed, sink, control));
  run.latencies = stream.timed.latencies();
  return run;
}

base::Result<CountedRun> RunServices(runtime::Runtime& runtime, engine::LocalEngine& engine,
                                     CountedSource& interactive, const LengthTrace* batch,
                                     uint64_t seed, RunControl& control, job::Arrivals arrivals,
                                     bool each_token) {
  if (batch == nullptr)
    return RunCounted(runtime, engine, interactive, control, std::move(arrivals), each_token);
  const int64_t first_batch_id = interactive.lines();
  TraceSource rest(*batch, engine.facts(), seed, control, {}, first_batch_id);
  CountingSink sink(runtime);
  Stream people(runtime, interactive, sink, std::move(arrivals), control, each_token);
  Stream beside(runtime, rest, sink, {}, control, each_token);
  job::MixedSource mixed(runtime, people.timed, beside.timed, first_batch_id);
  FB_ASSIGN_OR_RETURN(CountedRun run,
                      Run(runtime, engine, {&people, &beside}, mixed, mixed, sink, control));
  run.interactive = {people.timed.latencies(), mixed.interactive_tokens()};
  run.batch = {beside.timed.latencies(), mixed.batch_tokens()};
  std::vector<job::RequestTimes> all = run.interactive->latencies.requests;
  const std::vector<job::RequestTimes>& others = run.batch->latencies.requests;
  all.insert(all.end(), others.begin(), others.end());
  run.latencies = job::Summarize(std::move(all));
  run.latencies.unfinished =
      run.interactive->latencies.unfinished + run.batch->latencies.unfinished;
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

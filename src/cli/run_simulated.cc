// Runs without results: a trace on any devices, a job's input on simulated ones.
#include <utility>

#include "base/log.h"
#include "choose/create_engine.h"
#include "choose/layout_search.h"
#include "cli/outcome.h"
#include "cli/run_flags.h"
#include "cli/search_display.h"
#include "job/files/job_file.h"
#include "job/signal_control.h"
#include "layout/machine.h"
#include "open/describe_job.h"
#include "open/model_files.h"
#include "profile/cpu_cache.h"
#include "report/run_outputs.h"
#include "settings/mute.h"
#include "trace/line_source.h"
#include "trace/simulation.h"
#include "trace/trace_source.h"

namespace forebay::cli {
namespace {

// What runs: a trace, or the lines of an input.
struct SimulatedJob {
  std::optional<trace::LengthTrace> trace;
  std::optional<trace::LengthTrace> batch;  // beside it, which is people's then
  std::optional<job::JobFile> input;
  std::unique_ptr<job::ModelText> text;
  trace::OutputLengths lengths;
  job::Arrivals arrivals;

  bool online() const { return arrivals.any() || (trace && trace->online()); }
};

// Those of the flags become the trace's own: an online trace is described otherwise than one whose
// requests are all there.
base::Status SetArrivals(const RunFlags& flags, SimulatedJob* simulated) {
  trace::LengthTrace& trace = *simulated->trace;
  if (flags.arrivals.timed() && trace.online()) {
    return {
        base::kInvalidArgument,
        fmt::format("--trace {} has arrivals of its own, and {} is given; expected one of them",
                    flags.trace, flags.arrivals.source.empty() ? "--request-rate" : "--arrivals")};
  }
  FB_ASSIGN_OR_RETURN(simulated->arrivals,
                      job::PlanArrivals(flags.arrivals, static_cast<int64_t>(trace.rows.size()),
                                        flags.engine.seed));
  for (size_t i = 0; i < simulated->arrivals.seconds.size(); ++i)
    trace.rows[i].arrival_seconds = simulated->arrivals.seconds[i];
  simulated->arrivals.seconds.clear();
  return {};
}

// Two traces, or one whose rows say whom they serve.
base::Status ReadServices(const RunFlags& flags, SimulatedJob* simulated) {
  trace::LengthTrace& trace = *simulated->trace;
  if (!flags.batch_trace.empty()) {
    FB_ASSIGN_OR_RETURN(simulated->batch,
                        trace::ReadTrace(flags.batch_trace, {.time_scale = flags.trace_scale}));
    for (trace::TraceRow& row : trace.rows) row.service = Service::kInteractive;
    for (trace::TraceRow& row : simulated->batch->rows) row.service = Service::kBatch;
  } else if (trace.has(Service::kInteractive)) {
    simulated->batch = trace.Take(Service::kBatch);
  }
  return {};
}

base::Result<SimulatedJob> OpenSimulatedJob(const RunFlags& flags,
                                            const engine::ModelFiles& files) {
  SimulatedJob simulated;
  if (!flags.trace.empty()) {
    FB_ASSIGN_OR_RETURN(simulated.trace, trace::ReadTrace(flags.trace, flags.trace_options()));
    FB_RETURN_IF_ERROR(ReadServices(flags, &simulated));
    FB_RETURN_IF_ERROR(SetArrivals(flags, &simulated));
    return simulated;
  }
  auto input = job::JobFile::Open(*flags.input);
  if (!input.ok()) return input.status();
  simulated.input.emplace(std::move(*input));
  FB_ASSIGN_OR_RETURN(
      simulated.arrivals,
      job::PlanArrivals(flags.arrivals, static_cast<int64_t>(simulated.input->size()),
                        flags.engine.seed));
  if (!flags.output_lengths.empty()) {
    FB_ASSIGN_OR_RETURN(simulated.lengths, trace::ReadOutputLengths(flags.output_lengths));
  }
  FB_ASSIGN_OR_RETURN(simulated.text, open::LoadText(flags.text, files));
  return simulated;
}

// Tells the engine what is known of the job, which says the layout where nobody does.
base::Status Describe(const engine::ModelFiles& files, SimulatedJob& simulated, RunFlags* flags) {
  layout::EngineOptions& engine = flags->engine;
  const bool all_there = !simulated.arrivals.any() && !simulated.batch,
             choose_layout = all_there && choose::LeavesLayoutOpen(engine, files.config);
  engine.layout_by_job |= choose_layout;  // lines are measured where something is decided by them
  open::KnownJob known{.lengths = &simulated.lengths, .all_there = all_there};
  if (simulated.batch) {
    // Nobody knows when each of two ends.
  } else if (simulated.trace) {
    known.trace = &*simulated.trace;
  } else {
    known.lines = [&] { return &*simulated.input; };
  }
  FB_RETURN_IF_ERROR(open::DescribeJob(known, open::RulesOf(*flags, files, engine::FactsOf(files)),
                                       simulated.text.get(), files.config, &engine));
  if (choose_layout && engine.job == nullptr) engine.layout_by_job = false;
  return {};
}

// A trace's requests have an order of their own.
job::LineOrdering OrderOf(const RunFlags& flags, const engine::LocalEngine& engine) {
  if (flags.arrivals.timed()) return {};
  return job::OrderOf(flags.engine, engine, flags.job.order.order);
}

trace::MakeSource SourceOf(const RunFlags& flags, const engine::ModelFiles& files,
                           SimulatedJob& simulated) {
  return [&](runtime::Runtime& runtime, const engine::LocalEngine& engine,
             const RunControl& control) -> std::unique_ptr<trace::CountedSource> {
    if (simulated.trace) {
      return std::make_unique<trace::TraceSource>(
          *simulated.trace, engine.facts(), flags.engine.seed, control, OrderOf(flags, engine));
    }
    return std::make_unique<trace::LineSource>(
        *simulated.input, open::RulesOf(flags, files, engine.facts()), *simulated.text, engine,
        simulated.lengths, control, OrderOf(flags, engine));
  };
}

base::Result<trace::CountedRun> RunReal(const RunFlags& flags, runtime::Runtime& runtime,
                                        const engine::ModelFiles& files,
                                        const trace::MakeSource& make_source,
                                        const SimulatedJob& job, StepObserver* observer,
                                        RunControl& control) {
  const runtime::TimeNs began = runtime.Now();
  SearchDisplay search(flags.quiet);
  FB_ASSIGN_OR_RETURN(const auto engine,
                      choose::CreateEngine(runtime, flags.engine, files, nullptr, search.tell()));
  engine->SetStepObserver(observer);
  const std::unique_ptr<trace::CountedSource> source = make_source(runtime, *engine, control);
  const runtime::TimeNs run_began = runtime.Now();
  FB_ASSIGN_OR_RETURN(
      trace::CountedRun run,
      trace::RunServices(runtime, *engine, *source, job.batch ? &*job.batch : nullptr,
                         flags.engine.seed, control, job.arrivals, flags.measures_tokens()));
  run.summary.startup_seconds = runtime::SecondsOf(run_began - began);
  return run;
}

base::Result<trace::CountedRun> RunVirtual(const RunFlags& flags, const engine::ModelFiles& files,
                                           trace::MakeSource make_source, const SimulatedJob& job,
                                           StepObserver* observer, RunControl& control) {
  SearchDisplay search(flags.quiet);
  FB_ASSIGN_OR_RETURN(trace::SimulationResult result,
                      trace::Simulate({.engine = flags.engine,
                                       .files = &files,
                                       .trace = job.batch ? &*job.trace : nullptr,
                                       .make_source = std::move(make_source),
                                       .batch_trace = job.batch ? &*job.batch : nullptr,
                                       .arrivals = job.arrivals,
                                       .each_token = flags.measures_tokens(),
                                       .observer = observer,
                                       .control = &control,
                                       .tell_search = search.tell()}));
  base::Log(base::LogLevel::kInfo,
            fmt::format("simulated in {:.2f} s of this machine: {} steps, {:.0f} a second",
                        result.host_seconds, result.run.summary.stats.steps,
                        result.steps_per_host_second));
  return std::move(result.run);
}

int Finish(const RunFlags& flags, trace::CountedRun& run, bool online,
           report::RunOutputs& outputs) {
  job::AddLatencies(run.latencies, &run.summary);
  trace::AddServices(run, &run.summary);
  job::LogSummary(run.summary);
  if (run.interactive) {
    job::LogLatencies(run.interactive->latencies, "interactive ");
    job::LogLatencies(run.batch->latencies, "batch ");
  } else if (online) {
    job::LogLatencies(run.latencies);
  }
  if (flags.prints_profile) PrintProfile(run.profile, run.summary.stats.step_seconds, nullptr);
  if (const base::Status status = outputs.Finish(run); !status.ok()) return Fail(status);
  if (!flags.job.summary_path.empty()) {
    if (const base::Status status = job::WriteSummary(run.summary, flags.job.summary_path);
        !status.ok())
      return Fail(status);
  }
  const base::Status success = trace::CheckSuccess(run);
  if (!success.ok()) return Fail(success);
  return run.did.ok() ? static_cast<int>(job::ExitCodeOf(run.end)) : Fail(run.did);
}

}  // namespace

int RunWithoutResults(RunFlags& flags, runtime::Runtime& runtime) {
  if (const base::Status status = CheckOutputFiles(flags); !status.ok()) return Fail(status);
  // Shapes need no weights; a GGUF file's configuration stands in its header.
  auto files =
      open::OpenModelFiles(flags, flags.simulated() && !flags.engine.model.ends_with(".gguf"));
  if (!files.ok()) return Fail(files.status());
  if (flags.simulated()) files->random_weights = false;
  auto simulated = OpenSimulatedJob(flags, *files);
  if (!simulated.ok()) return Fail(simulated.status());
  if (const base::Status status = Describe(*files, *simulated, &flags); !status.ok())
    return Fail(status);
  if (const base::Status status = settings::CheckMute(flags); !status.ok()) return Fail(status);
  profile::PriceCpu(runtime, &flags.engine);
  auto outputs = report::RunOutputs::Open(flags.steps_path, flags.report_path);
  if (!outputs.ok()) return Fail(outputs.status());
  RunControl control;
  const job::SignalControl signals(&control);
  const trace::MakeSource make_source = SourceOf(flags, *files, *simulated);
  auto run =
      flags.simulated()
          ? RunVirtual(flags, *files, make_source, *simulated, outputs->observer(), control)
          : RunReal(flags, runtime, *files, make_source, *simulated, outputs->observer(), control);
  if (!run.ok()) return Fail(run.status());
  return Finish(flags, *run, simulated->online(), *outputs);
}

}  // namespace forebay::cli

// Runs without results: a trace on any devices, a job's input on simulated ones.
#include <utility>

#include "base/log.h"
#include "cli/open_text.h"
#include "cli/run_flags.h"
#include "job/job_file.h"
#include "job/signal_control.h"
#include "layout/machine.h"
#include "report/run_outputs.h"
#include "trace/line_source.h"
#include "trace/simulation.h"
#include "trace/trace_source.h"

namespace forebay::cli {
namespace {

// What runs: a trace, or the lines of an input.
struct Work {
  std::optional<trace::LengthTrace> trace;
  std::optional<job::JobFile> input;
  std::unique_ptr<job::ModelText> text;
  trace::OutputLengths lengths;
};

base::Result<Work> OpenWork(RunFlags& flags, const engine::ModelFiles& files) {
  Work work;
  if (!flags.trace.empty()) {
    FB_ASSIGN_OR_RETURN(work.trace, trace::ReadTrace(flags.trace, flags.trace_options));
    return work;
  }
  auto input = job::JobFile::Open(*flags.input);
  if (!input.ok()) return input.status();
  work.input.emplace(std::move(*input));
  if (!flags.output_lengths.empty()) {
    FB_ASSIGN_OR_RETURN(work.lengths, trace::ReadOutputLengths(flags.output_lengths));
  }
  flags.text.path = flags.engine.model;
  flags.text.gguf = files.gguf;
  FB_ASSIGN_OR_RETURN(work.text, job::ModelText::Load(flags.text));
  return work;
}

trace::MakeSource SourceOf(const RunFlags& flags, const engine::ModelFiles& files, Work& work) {
  return [&](runtime::Runtime& runtime, const engine::LocalEngine& engine,
             const RunControl& control) -> std::unique_ptr<trace::CountedSource> {
    if (work.trace) {
      return std::make_unique<trace::TraceSource>(runtime, *work.trace, engine.facts(),
                                                  flags.engine.seed, control);
    }
    return std::make_unique<trace::LineSource>(*work.input,
                                               job::RulesOf(flags, files, engine.facts()),
                                               *work.text, engine, work.lengths, control);
  };
}

base::Result<trace::CountedRun> RunReal(const RunFlags& flags, runtime::Runtime& runtime,
                                        const engine::ModelFiles& files,
                                        const trace::MakeSource& make_source,
                                        StepObserver* observer, RunControl& control) {
  const runtime::TimeNs began = runtime.Now();
  FB_ASSIGN_OR_RETURN(const auto engine,
                      engine::CreateEngine(runtime, flags.engine, files, nullptr));
  engine->SetStepObserver(observer);
  const std::unique_ptr<trace::CountedSource> source = make_source(runtime, *engine, control);
  const runtime::TimeNs run_began = runtime.Now();
  FB_ASSIGN_OR_RETURN(trace::CountedRun run, trace::RunCounted(runtime, *engine, *source, control));
  run.summary.startup_seconds = static_cast<double>(run_began - began) * 1e-9;
  return run;
}

base::Result<trace::CountedRun> RunVirtual(const RunFlags& flags, const engine::ModelFiles& files,
                                           trace::MakeSource make_source, StepObserver* observer,
                                           RunControl& control) {
  FB_ASSIGN_OR_RETURN(trace::SimulationResult result,
                      trace::Simulate({.engine = flags.engine,
                                       .files = &files,
                                       .make_source = std::move(make_source),
                                       .observer = observer,
                                       .control = &control}));
  base::Log(base::LogLevel::kInfo,
            fmt::format("simulated in {:.2f} s of this machine: {} steps, {:.0f} a second",
                        result.host_seconds, result.run.summary.stats.steps,
                        result.steps_per_host_second));
  return std::move(result.run);
}

void LogLatencies(const trace::Latencies& latencies) {
  const auto line = [](const char* name, const trace::Percentiles& p) {
    base::Log(base::LogLevel::kInfo,
              fmt::format("{}: mean {:.2f}, median {:.2f}, p90 {:.2f}, p99 {:.2f} ms", name,
                          p.mean * 1e3, p.p50 * 1e3, p.p90 * 1e3, p.p99 * 1e3));
  };
  line("time to first token", latencies.first_token);
  line("time per output token", latencies.token);
  line("completion time", latencies.completion);
}

// In the names of `vllm bench serve`.
void AddLatencies(const trace::Latencies& latencies, job::JobSummary* summary) {
  const auto add = [&](const std::string& name, const trace::Percentiles& p) {
    const std::pair<const char*, double> parts[] = {
        {"mean_", p.mean}, {"median_", p.p50}, {"p90_", p.p90}, {"p99_", p.p99}};
    for (const auto& [part, seconds] : parts)
      summary->latencies_ms.emplace_back(part + name + "_ms", seconds * 1e3);
  };
  add("ttft", latencies.first_token);
  add("tpot", latencies.token);
  add("e2el", latencies.completion);
}

int Finish(const RunFlags& flags, trace::CountedRun& run, bool online,
           report::RunOutputs& outputs) {
  AddLatencies(run.latencies, &run.summary);
  job::LogSummary(run.summary);
  if (online) LogLatencies(run.latencies);
  if (flags.engine.profile) PrintProfile(run.profile, run.summary.stats.step_seconds, nullptr);
  if (const base::Status status = outputs.Finish(run); !status.ok()) return Fail(status);
  if (!flags.job.summary_path.empty()) {
    if (const base::Status status = job::WriteSummary(run.summary, flags.job.summary_path);
        !status.ok())
      return Fail(status);
  }
  return static_cast<int>(job::ExitCodeOf(run.end));
}

}  // namespace

int RunWithoutResults(RunFlags& flags, runtime::Runtime& runtime) {
  if (const base::Status status = CheckOutputFiles(flags); !status.ok()) return FailCheck(status);
  // Shapes need no weights; a GGUF file's configuration stands in its header.
  auto files =
      job::OpenModelFiles(flags, flags.simulated() && !flags.engine.model.ends_with(".gguf"));
  if (!files.ok()) return Fail(files.status());
  if (flags.simulated()) files->random_weights = false;
  auto work = OpenWork(flags, *files);
  if (!work.ok()) return FailCheck(work.status());
  if (work->trace) trace::DescribeJob(*work->trace, &flags.engine);
  auto outputs = report::RunOutputs::Open(flags.steps_path, flags.report_path);
  if (!outputs.ok()) return Fail(outputs.status());
  RunControl control;
  const job::SignalControl signals(&control);
  const trace::MakeSource make_source = SourceOf(flags, *files, *work);
  auto run = flags.simulated()
                 ? RunVirtual(flags, *files, make_source, outputs->observer(), control)
                 : RunReal(flags, runtime, *files, make_source, outputs->observer(), control);
  if (!run.ok() && run.status().code() == job::kStalled) return FailCheck(run.status());
  if (!run.ok()) return Fail(run.status(), static_cast<int>(job::EngineExitCode(run.status())));
  return Finish(flags, *run, work->trace && work->trace->online(), *outputs);
}

}  // namespace forebay::cli

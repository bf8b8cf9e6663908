// forebay run: the main job. Flags carry vLLM's names where vLLM has the thing.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/outcome.h"
#include "cli/run_flags.h"
#include "cli/search_display.h"
#include "cli/setting_flags.h"
#include "job/files/job_file.h"
#include "job/files/log_io.h"
#include "job/signal_control.h"
#include "open/model_files.h"
#include "open/opened_model.h"
#include "report/run_outputs.h"
#include "runtime/real/real_runtime.h"
#include "runtime/topology.h"

namespace forebay::cli {
base::Status CheckOutputFiles(const RunFlags& flags) {
  const std::string& results = flags.job.output_path;
  open::NamedFiles files{.outputs = {{"--output-file", results, job::kResultsIo},
                                     {"--summary", flags.job.summary_path},
                                     {"--steps", flags.steps_path},
                                     {"--report", flags.report_path}},
                         .inputs = {{"--trace", flags.trace},
                                    {"--batch-trace", flags.batch_trace},
                                    {"--output-lengths", flags.output_lengths},
                                    {"--routing", flags.routing},
                                    {"--arrivals", flags.arrivals.file()}}};
  // Results that would overwrite their input have an error of their own (job.cc).
  std::error_code error;
  if (flags.input && !std::filesystem::equivalent(*flags.input, results, error))
    files.inputs.push_back({"--input-file", *flags.input});
  return open::CheckFiles(flags, std::move(files));
}

void PrintProfile(const std::vector<device::OpProfile>& profile, double step_seconds,
                  const profile::Rates* rates) {
  if (profile.empty()) return;
  std::fprintf(stderr, "\n%-16s %10s %10s %7s %12s %10s", "operation", "calls", "seconds", "share",
               "GFLOP/s", "GB/s read");
  std::fprintf(stderr, rates ? " %9s\n" : "\n", "of limit");
  double sum = 0, limits = 0;
  for (const device::OpProfile& op : profile) sum += op.seconds;
  // For several replicas the sum is shared out; for one its steps, and what lies between their
  // operations.
  const bool one = sum <= step_seconds;
  if (!one) step_seconds = sum;
  for (const device::OpProfile& op : profile) {
    std::fprintf(stderr, "%-16s %10ld %10.3f %6.1f%% %12.1f %10.1f", op.label,
                 static_cast<long>(op.calls), op.seconds, 100 * op.seconds / step_seconds,
                 op.flops / op.seconds * 1e-9, op.read_bytes / op.seconds * 1e-9);
    // All calls count together: where some are bound by arithmetic and some by memory the true
    // limit is higher.
    const bool counts = op.kind == cost::OpKind::kLinear || op.kind == cost::OpKind::kExperts ||
                        op.kind == cost::OpKind::kAttention;
    const double limit =
        rates && counts ? std::max(op.flops / rates->flops, op.read_bytes / rates->bytes_per_s) : 0;
    limits += limit;
    limit > 0 ? std::fprintf(stderr, " %9.2f\n", limit / op.seconds) : std::fprintf(stderr, "\n");
  }
  if (one)
    std::fprintf(stderr, "%-16s %10s %10.3f %6.1f%%\n", "everything else", "", step_seconds - sum,
                 100 * (step_seconds - sum) / step_seconds);
  if (rates) {
    std::fprintf(stderr, "%-16s %10s %10.3f %6.1f%% %12.1f %10.1f %9.2f\n", "limit", "", limits,
                 100 * limits / step_seconds, rates->flops * 1e-9, rates->bytes_per_s * 1e-9,
                 limits / step_seconds);
  }
}

namespace {

bool HasResults(const RunFlags& flags) { return flags.trace.empty() && !flags.simulated(); }

// Which of the flags that say what runs go together.
base::Status CheckJobWork(const RunFlags& flags) {
  const auto refuse = [](std::string message) {
    return base::Status(base::kInvalidArgument, std::move(message));
  };
  const bool trace = !flags.trace.empty();
  if (trace == flags.input.has_value())
    return refuse(trace ? "--trace and --input-file exclude each other"
                        : "nothing to run; expected --input-file or --trace");
  const bool results = HasResults(flags);
  if (results && flags.job.output_path.empty())
    return refuse("--output-file is missing; expected where the results go");
  if (!results && !flags.job.output_path.empty()) {
    return refuse(fmt::format(
        "--output-file: {} has no results; leave it out, and see --summary, --steps and --report",
        trace ? "a trace" : "a simulated device"));
  }
  const std::pair<bool, const char*> of_results[] = {
      {!flags.shard.empty(), "--shard"},
      {flags.job.strict, "--strict"},
      {flags.job.retry_failed, "--retry-failed"},
      {flags.job.preserve_order, "--preserve-order"}};
  for (const auto& [given, flag] : of_results) {
    if (!results && given) return refuse(fmt::format("{} is for jobs that have results", flag));
  }
  if (!trace && !flags.batch_trace.empty())
    return refuse("--batch-trace without --trace; expected the trace of people beside it");
  if (!trace && flags.trace_options() != trace::TraceOptions())
    return refuse("--trace-rows and --trace-scale are for a --trace");
  if (!flags.simulated() && flags.engine.machine.full_detail)
    return refuse("--sim-detail is for simulated devices; expected --devices sim:...");
  if (flags.group_prefixes && (trace || flags.arrivals.timed())) {
    return refuse(
        fmt::format("--group-prefixes with {}: its order is its own; expected lines that "
                    "are all there",
                    trace ? "a trace" : "arrivals"));
  }
  if (!flags.output_lengths.empty() && (results || trace))
    return refuse("--output-lengths is for an --input-file on simulated devices");
  return {};
}

base::Status ReadFlags(const SettingFlags& line, RunFlags* flags) {
  FB_RETURN_IF_ERROR(line.Read(flags));
  FB_RETURN_IF_ERROR(CheckJobWork(*flags));
  flags->prints_profile = flags->engine.profile;
  flags->engine.profile |= !flags->report_path.empty();
  if (flags->group_prefixes) flags->job.order.order = job::LineOrder::kByStart;
  flags->job.each_token = flags->measures_tokens();
  flags->job.progress = flags->quiet ? job::ProgressMode::kQuiet
                        : isatty(2)  ? job::ProgressMode::kLive
                                     : job::ProgressMode::kLines;
  return {};
}

// The lines that this process is to answer.
base::Result<job::JobFile> OpenInput(const RunFlags& flags) {
  job::InputShard shard;
  if (!flags.shard.empty()) {
    FB_ASSIGN_OR_RETURN(shard, job::ParseShard(flags.shard));
  }
  auto input = job::JobFile::Open(*flags.input);
  if (input.ok() && !shard.all()) input->Keep(shard);
  return input;
}

// With --profile: what the machine can do while the engine rests.
profile::Rates RatesNow(const RunFlags& flags, runtime::Runtime& runtime,
                        const engine::LocalEngine& engine) {
  if (!flags.prints_profile || engine.isa() == "ref") return {};
  const int workers = flags.engine.machine.threads > 0 ? flags.engine.machine.threads
                                                       : runtime::ReadTopology().usable_cores;
  const auto rates = profile::MeasureRates(runtime, workers, engine.isa());
  return rates.ok() ? *rates : profile::Rates{};
}

int Run(const SettingFlags& line, runtime::Runtime& runtime) {
  RunFlags flags;
  flags.job.process_began = runtime.Now();
  const base::Status read = ReadFlags(line, &flags);
  if (flags.quiet) base::SetLogLevel(base::LogLevel::kError);
  if (!read.ok()) return Fail(read, 2);
  if (!HasResults(flags)) return RunWithoutResults(flags, runtime);
  if (const base::Status status = settings::CheckMute(flags); !status.ok()) return Fail(status, 2);
  // Before a large model is read.
  const auto input = OpenInput(flags);
  if (!input.ok()) return Fail(input.status());
  if (const base::Status status = CheckOutputFiles(flags); !status.ok()) return Fail(status);
  auto arrivals =
      job::PlanArrivals(flags.arrivals, static_cast<int64_t>(input->size()), flags.engine.seed);
  if (!arrivals.ok()) return Fail(arrivals.status());
  flags.job.arrivals = std::move(*arrivals);
  const open::KnownJob known{.lines = [&] { return &*input; },
                             .all_there = !flags.job.arrivals.any()};
  SearchDisplay search(flags.quiet);
  const auto opened = open::OpenedModel::Open(
      runtime, flags, {flags.job.output_path, !flags.now.empty(), known, search.tell()});
  if (!opened.ok()) return Fail(opened.status());
  open::OpenedModel& model = **opened;
  engine::LocalEngine& engine = model.engine();

  const profile::Rates before = RatesNow(flags, runtime, engine);
  model.FillJob(&flags.job);
  auto outputs = report::RunOutputs::Open(flags.steps_path, flags.report_path);
  if (!outputs.ok()) return Fail(outputs.status());
  engine.SetStepObserver(outputs->observer());
  RunControl control;
  const job::SignalControl signals(&control);
  const job::JobOutcome outcome =
      job::RunJob(runtime, *input, flags.job, model.text(), engine, control);
  const base::Status written = outputs->Finish({.summary = outcome.summary,
                                                .latencies = outcome.latencies,
                                                .profile = engine.Profile(),
                                                .ranks = engine.Reports(),
                                                .layout = engine.layout()});
  if (!written.ok()) base::Log(base::LogLevel::kError, written.ToString());
  if (flags.prints_profile) {
    const profile::Rates after = RatesNow(flags, runtime, engine);
    const profile::Rates rates{(before.flops + after.flops) / 2,
                               (before.bytes_per_s + after.bytes_per_s) / 2};
    PrintProfile(engine.Profile(), engine.stats().step_seconds, rates.flops > 0 ? &rates : nullptr);
  }
  // A drain that was asked for and ended in time is no error.
  const bool drained = outcome.exit_code == job::ExitCode::kDrained;
  if (!outcome.status.ok())
    base::Log(drained ? base::LogLevel::kInfo : base::LogLevel::kError,
              drained ? outcome.status.message() : outcome.status.ToString());
  const auto exit_code = [&] {
    if (outcome.exit_code != job::ExitCode::kComplete) return static_cast<int>(outcome.exit_code);
    const base::Status did = engine.CheckCounters();
    // The rest of a resumed job may fit where the whole of it did not.
    const bool rest_fits = did.code() == engine::kOffloadUnused && outcome.summary.resumed > 0;
    if (!did.ok() && !rest_fits) return Fail(did);
    return written.ok() ? 0 : 1;
  }();
  // A device that hangs cannot be waited for; the results file is whole without it.
  if (engine.failed()) std::_Exit(exit_code);
  return exit_code;
}

}  // namespace

void AddRunCommand(Command app, int* exit_code) {
  const Command command = app.add_subcommand(
      "run", "Run a job: every line of INPUT gets its answer in OUTPUT; run it again to resume");
  const SettingFlags line(command, settings::kRun);
  command.callback([line, exit_code] {
    const std::unique_ptr<runtime::Runtime> runtime = runtime::CreateRealRuntime();
    *exit_code = Run(line, *runtime);
  });
}

}  // namespace forebay::cli

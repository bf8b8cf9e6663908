// forebay run: the main job. Flags carry vLLM's names where vLLM has the thing.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/log.h"
#include "cli/commands.h"
#include "cli/flag_spelling.h"
#include "cli/outcome.h"
#include "cli/run_flags.h"
#include "job/job_file.h"
#include "job/log_io.h"
#include "job/signal_control.h"
#include "layout/mute_flags.h"
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
base::Status CheckWork(const RunFlags& flags) {
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
  if (!trace && flags.trace_options != trace::TraceOptions())
    return refuse("--trace-rows and --trace-scale are for a --trace");
  if (!flags.simulated() && flags.sim_detail != RunFlags().sim_detail)
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

base::Status CheckFlags(RunFlags* flags) {
  FB_RETURN_IF_ERROR(ApplyModelFlags(flags));
  FB_RETURN_IF_ERROR(CheckWork(*flags));
  flags->engine.machine.full_detail = flags->sim_detail == "full";
  flags->prints_profile = flags->engine.profile;
  flags->engine.profile |= !flags->report_path.empty();
  if (flags->group_prefixes) flags->job.order.order = job::LineOrder::kByStart;
  flags->job.each_token = flags->measures_tokens();
  flags->job.progress = flags->quiet ? job::ProgressMode::kQuiet
                        : isatty(2)  ? job::ProgressMode::kLive
                                     : job::ProgressMode::kLines;
  if (flags->job.grace_seconds >= 0) return base::Status::Ok();
  return base::Status(base::kInvalidArgument,
                      fmt::format("--grace is {}; expected at least 0", flags->job.grace_seconds));
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

int Run(RunFlags& flags, runtime::Runtime& runtime) {
  flags.job.process_began = runtime.Now();
  if (flags.quiet) base::SetLogLevel(base::LogLevel::kError);
  if (const base::Status status = CheckFlags(&flags); !status.ok()) return Fail(status, 2);
  if (!HasResults(flags)) return RunWithoutResults(flags, runtime);
  if (const base::Status status = layout::CheckMuteFlags(flags.engine); !status.ok())
    return Fail(status, 2);
  // Before a large model is read.
  const auto input = OpenInput(flags);
  if (!input.ok()) return Fail(input.status());
  if (const base::Status status = CheckOutputFiles(flags); !status.ok()) return Fail(status);
  auto arrivals =
      job::PlanArrivals(flags.arrivals, static_cast<int64_t>(input->size()), flags.engine.seed);
  if (!arrivals.ok()) return Fail(arrivals.status());
  flags.job.arrivals = std::move(*arrivals);
  const open::KnownJob known{.lines = [&] { return &*input; },
                             .all_there = flags.job.arrivals.seconds.empty()};
  const auto opened =
      open::OpenedModel::Open(runtime, flags, {flags.job.output_path, !flags.now.empty(), known});
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
                                                .ranks = engine.Reports()});
  if (!written.ok()) base::Log(base::LogLevel::kError, written.ToString());
  if (flags.prints_profile) {
    const profile::Rates after = RatesNow(flags, runtime, engine);
    const profile::Rates rates{(before.flops + after.flops) / 2,
                               (before.bytes_per_s + after.bytes_per_s) / 2};
    PrintProfile(engine.Profile(), engine.stats().step_seconds, rates.flops > 0 ? &rates : nullptr);
  }
  if (!outcome.status.ok()) base::Log(base::LogLevel::kError, outcome.status.ToString());
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

void AddArrivalFlags(Command command, job::ArrivalOptions& arrivals) {
  command.add_option("--request-rate", arrivals.request_rate,
                     "Requests a second (default: inf, all are there at once)");
  command
      .add_option(
          "--burstiness", arrivals.burstiness,
          "With --request-rate: shape of the gamma distribution of the gaps; 1 is a Poisson "
          "process, less comes in bursts, inf evenly")
      .capture_default_str();
  command
      .add_option("--max-concurrency", arrivals.max_concurrency,
                  "Requests between their arrival and their result at most; the next arrives when "
                  "one has its result")
      .check(CheckPositive);
  command.add_option("--arrivals", arrivals.source,
                     "When requests come: a file of seconds, a line a request, or "
                     "bursts:rate=2,bursts=4,burst_rate=60,burst_seconds=10 "
                     "(docs/formats/arrivals.md)");
}

void AddSimulationFlags(Command command, RunFlags& flags) {
  command.add_option("--trace", flags.trace,
                     "Instead of --input-file: requests of given lengths, from a CSV file or "
                     "synthetic:n=1000,prompt=512,output=128,... (docs/formats/traces.md)");
  command.add_option("--trace-rows", flags.trace_options.max_rows,
                     "The first so many rows of the trace (default: all)");
  command
      .add_option("--trace-scale", flags.trace_options.time_scale,
                  "Arrival times are multiplied by it; 0: all at the begin")
      .capture_default_str();
  command.add_option("--output-lengths", flags.output_lengths,
                     "Simulated devices: answers are as long as in this results file (default: as "
                     "max_tokens says)");
  command
      .add_option("--sim-detail", flags.sim_detail,
                  "jump (equal layers are priced once) or full (every layer is simulated)")
      .among({"jump", "full"})
      .capture_default_str();
  command.add_option("--routing", flags.routing,
                     "Simulated devices: which experts rows go to: balanced (default), power:A, "
                     "skewed as by that power law, or a file of --record-routing");
  command.add_option("--record-routing", flags.engine.machine.record_routing,
                     "Real devices: which experts each row chose, into this file "
                     "(docs/formats/routing.md)");
  command.add_flag("--sim-uncalibrated", flags.engine.machine.uncalibrated,
                   "Price by the datasheet alone");
  command.add_option("--steps", flags.steps_path, "Write a JSON line a step to this file");
  command.add_option("--report", flags.report_path, "Draw the run into this HTML file");
}

}  // namespace

void AddRunCommand(Command app, int* exit_code) {
  auto flags = std::make_shared<RunFlags>();
  const Command command = app.add_subcommand(
      "run", "Run a job: every line of INPUT gets its answer in OUTPUT; run it again to resume");
  command
      .add_option("-m,--model", flags->engine.model,
                  "Folder in Hugging Face's layout, GGUF file, or builtin:NAME (a configuration "
                  "without weights)")
      .required();
  command.add_option("-i,--input-file", flags->input,
                     "Requests: OpenAI Batch lines, or {\"prompt\"|\"messages\": ...}");
  command.add_option("-o,--output-file", flags->job.output_path,
                     "Results, appended in completion order; also the journal of the job (none "
                     "for traces and simulated devices)");
  command.add_option("--shard", flags->shard,
                     "I/N: only the lines I, I + N, ... of the input, counted from 1; `forebay "
                     "merge` joins the results");
  AddModelFlags(command, *flags);
  AddArrivalFlags(command, flags->arrivals);
  AddSimulationFlags(command, *flags);
  command.add_flag("--strict", flags->job.strict,
                   "Check all lines first; run nothing if one is bad");
  command.add_flag("--retry-failed", flags->job.retry_failed,
                   "Run the lines again that failed in earlier runs; those whose text changed "
                   "run again in any case");
  command.add_flag("--group-prefixes", flags->group_prefixes,
                   "Run lines whose prompts begin alike one after another");
  command.add_flag("--preserve-order", flags->job.preserve_order,
                   "At the end rewrite the results in the input's order");
  command
      .add_option("--grace", flags->job.grace_seconds,
                  "Seconds to finish what runs after SIGINT or SIGTERM")
      .capture_default_str();
  command.add_option("--summary", flags->job.summary_path,
                     "Write the summary as JSON to this file");
  command.add_flag("--quiet", flags->quiet, "No progress; only errors");
  command.callback([flags, exit_code] {
    const std::unique_ptr<runtime::Runtime> runtime = runtime::CreateRealRuntime();
    *exit_code = Run(*flags, *runtime);
  });
}

}  // namespace forebay::cli

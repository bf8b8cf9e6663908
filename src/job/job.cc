#include "job/job.h"

#include <fmt/core.h>

#include <ctime>
#include <memory>
#include <utility>

#include "base/log.h"
#include "job/check_lines.h"
#include "job/counters.h"
#include "job/files/results_log.h"
#include "job/request_feed.h"
#include "job/result_writer.h"
#include "job/ticker.h"
#include "job/traffic/timed_source.h"

namespace forebay::job {
namespace {

// How a job ended.
struct Verdict {
  ExitCode exit_code = ExitCode::kComplete;
  base::Status status;
};

Verdict FromStatus(base::Status status) { return {ExitCodeOf(status), std::move(status)}; }

class Job {
 public:
  Job(runtime::Runtime& runtime, const JobFile& input, const JobOptions& options,
      TextPipeline& text, Engine& engine, RunControl& control)
      : runtime_(runtime),
        input_(input),
        options_(options),
        text_(text),
        engine_(engine),
        control_(control) {
    if (!options.unix_seconds)
      unix_seconds_ = [] { return static_cast<int64_t>(std::time(nullptr)); };
    began_ = options.process_began < 0 ? runtime.Now() : options.process_began;
  }

  JobOutcome Run() {
    Verdict verdict;
    base::Status opened = CheckIsNotInput(options_.output_path, input_);
    if (opened.ok() && options_.strict)
      opened = CheckAllLines(input_, options_.rules, text_, engine_, [this] { return Ending(); });
    if (opened.ok() && !Ending()) opened = OpenLog();
    if (!opened.ok()) {
      verdict = FromStatus(opened);
    } else if (!log_) {
      verdict = Unfinished(control_.abort ? RunEnd::kAborted : RunEnd::kDrained);
    } else {
      verdict = RunEngine();
    }
    JobOutcome outcome{.exit_code = verdict.exit_code,
                       .status = verdict.status,
                       .summary = Summarize(verdict),
                       .latencies = latencies_};
    if (log_) Report(&outcome);
    return outcome;
  }

 private:
  bool Ending() const { return control_.drain || control_.abort; }

  base::Status OpenLog() {
    ScanExpectation expected =
        ResultsOf(input_, options_.output_path, options_.fingerprints, options_.retry_failed);
    expected.system_fingerprint = options_.style.system_fingerprint;
    FB_ASSIGN_OR_RETURN(log_, ResultsLog::Open(expected));
    size_.lines = static_cast<int64_t>(input_.size());
    size_.resumed = static_cast<int64_t>(log_->num_done());
    size_.resumed_failed = static_cast<int64_t>(log_->num_resumed_failed());
    for (size_t ordinal = 0; ordinal < input_.size(); ++ordinal) {
      if (!log_->Done(ordinal)) size_.pending_bytes += input_[ordinal].length;
    }
    if (log_->torn_bytes() > 0) {
      base::Log(base::LogLevel::kInfo,
                fmt::format("{}: cut off {} bytes of a result that an earlier run left torn",
                            options_.output_path, log_->torn_bytes()));
    }
    if (log_->hole_bytes() > 0) {
      base::Log(base::LogLevel::kWarning,
                fmt::format("{}: took out {} bytes that were never written, as a power cut leaves "
                            "them; the lines in them run again",
                            options_.output_path, log_->hole_bytes()));
    }
    if (log_->num_retried() > 0) {
      base::Log(base::LogLevel::kInfo,
                fmt::format("{}: took out {} failed results; their lines run again",
                            options_.output_path, log_->num_retried()));
    }
    if (size_.resumed > 0) {
      base::Log(base::LogLevel::kInfo,
                fmt::format("{}: {} of {} lines are done, going on", options_.output_path,
                            size_.resumed, size_.lines));
      if (options_.learn) options_.learn(log_->TakeResumedAnswers());
    }
    return {};
  }

  Verdict RunEngine() {
    auto order =
        OrderLines(input_, options_.order, [this](size_t ordinal) { return log_->Done(ordinal); });
    if (!order.ok()) return FromStatus(order.status());
    const auto wake = runtime_.NewEvent("results to commit");
    failures_ = log_->resumed_failures();
    ResultWriter writer({runtime_, input_, *log_, text_, counters_, failures_,
                         options_.fingerprints, options_.style,
                         options_.unix_seconds ? options_.unix_seconds : unix_seconds_, *wake});
    RequestBuilder builder(input_, options_.rules, text_, &engine_);
    ProgressDisplay display(options_.progress, options_.progress_fd);
    ProgressEstimator estimator(size_);
    const auto view = [&] {
      return estimator.View(runtime::SecondsOf(runtime_.Now() - run_began_), counters_,
                            engine_.stats());
    };

    run_began_ = runtime_.Now();
    RunEnd end = RunEnd::kComplete;
    base::Status status;
    bool grace_is_over = false;
    {
      Ticker ticker({runtime_, *log_, control_, *wake, display, view, options_.grace_seconds});
      RequestFeed feed(runtime_, input_, builder, writer, counters_, control_, *std::move(order));
      if (size_.pending() > 0) end = Drive(feed, writer);
      status = feed.Stop();
      ticker.Stop();
      grace_is_over = ticker.grace_is_over();
    }
    // The log's own error comes first: whatever else went wrong may be its consequence.
    if (const base::Status committed = log_->Commit(); !committed.ok()) status = committed;
    run_ended_ = runtime_.Now();
    display.Finish(view());

    if (!status.ok()) return FromStatus(status);
    if (static_cast<int64_t>(log_->num_done()) == size_.lines) {
      status = options_.preserve_order ? log_->RewriteInOrder() : base::Status();
      return FromStatus(status.ok() ? CheckSuccess() : status);
    }
    return Unfinished(grace_is_over ? RunEnd::kDrained : end);
  }

  RunEnd Drive(RequestFeed& feed, ResultWriter& writer) {
    if (!options_.arrivals.any()) return engine_.Run(feed, writer, control_);
    TimedSource timed(runtime_, feed, writer, options_.arrivals, control_, options_.each_token);
    const RunEnd end = engine_.Run(timed, timed, control_);
    latencies_ = timed.latencies();
    return end;
  }

  // Every line has its result.
  base::Status CheckSuccess() const {
    const int64_t failed = size_.resumed_failed + counters_.failed;
    return CheckSomeSucceeded(size_.lines, failed, failures_.ByCount(),
                              "mend them, or run the same command with --retry-failed once their "
                              "cause is mended");
  }

  Verdict Unfinished(RunEnd end) const {
    const int64_t missing = log_ ? size_.lines - static_cast<int64_t>(log_->num_done())
                                 : static_cast<int64_t>(input_.size());
    const std::string what = fmt::format(
        "{} of {} lines have no result yet; the same command goes on", missing, input_.size());
    switch (end) {
      case RunEnd::kDrained:
        return {ExitCode::kDrained, base::Status(kUnfinished, "drained: " + what)};
      case RunEnd::kAborted:
        return {ExitCode::kAborted, base::Status(kUnfinished, "stopped: " + what)};
      case RunEnd::kStalled:
        return {ExitCode::kStalled, base::Status(kStalled, "the engine made no progress: " + what)};
      default: break;
    }
    // The source ends early for a drain, and an engine may see the end before it sees the drain.
    if (control_.drain) return {ExitCode::kDrained, base::Status(kUnfinished, "drained: " + what)};
    return {ExitCode::kError, base::Status(kUnfinished, "the engine ended early: " + what)};
  }

  JobSummary Summarize(const Verdict& verdict) const {
    JobSummary summary{
        .end = std::string(Name(verdict.exit_code)), .isa = options_.isa, .model = engine_.facts()};
    summary.lines = size_.lines;
    summary.resumed = size_.resumed;
    summary.done = counters_.done;
    summary.failed = counters_.failed;
    summary.total_failed = size_.resumed_failed + counters_.failed;
    summary.failures = failures_.ByCount();
    summary.prompt_tokens = counters_.done_prompt_tokens;
    summary.output_tokens = counters_.done_output_tokens;
    summary.stats = engine_.stats();
    summary.startup_seconds = runtime::SecondsOf(run_began_ - began_);
    summary.elapsed_seconds = runtime::SecondsOf(run_ended_ - run_began_);
    summary.first_result_seconds = summary.stats.first_result_seconds;
    const int64_t tail_began = counters_.tail_began_ns;
    summary.tail_seconds = tail_began < 0 ? 0 : runtime::SecondsOf(run_ended_ - tail_began);
    summary.peak_rss_bytes = PeakRssBytes();
    if (options_.arrivals.any()) AddLatencies(latencies_, &summary);
    return summary;
  }

  void Report(JobOutcome* outcome) const {
    LogSummary(outcome->summary);
    if (options_.arrivals.any()) LogLatencies(outcome->latencies);
    if (options_.summary_path.empty()) return;
    const base::Status written = WriteSummary(outcome->summary, options_.summary_path);
    if (written.ok() || outcome->exit_code != ExitCode::kComplete) return;
    outcome->exit_code = ExitCode::kError;
    outcome->status = written;
  }

  runtime::Runtime& runtime_;
  const JobFile& input_;
  const JobOptions& options_;
  TextPipeline& text_;
  Engine& engine_;
  RunControl& control_;
  std::function<int64_t()> unix_seconds_;
  runtime::TimeNs began_ = 0, run_began_ = 0, run_ended_ = 0;
  std::unique_ptr<ResultsLog> log_;
  JobSize size_;
  JobCounters counters_;
  FailureTally failures_;
  Latencies latencies_;
};

}  // namespace

JobOutcome RunJob(runtime::Runtime& runtime, const JobFile& input, const JobOptions& options,
                  TextPipeline& text, Engine& engine, RunControl& control) {
  return Job(runtime, input, options, text, engine, control).Run();
}

}  // namespace forebay::job

#include "job/shared_job.h"

#include <fmt/core.h>

#include <fstream>
#include <optional>
#include <utility>

#include "base/log.h"
#include "job/files/answer.h"
#include "job/files/merge.h"
#include "job/line_order.h"
#include "job/lines/result_format.h"
#include "job/request_builder.h"

namespace forebay::job {
namespace {

// A step computes so many tokens of a prompt in the time of one that draws a token, about.
constexpr uint32_t kPromptTokensPerStep = 16;
// A line takes so many whose request does not bound its answer.
constexpr uint32_t kUnboundedSteps = 1 << 24;

// About how many steps a line takes; 0 where it cannot be read.
uint32_t StepsOf(const JobFile& input, size_t ordinal) {
  std::string line;
  if (!input.Read(ordinal, &line).ok()) return 0;  // said when it is leased
  const LineSketch sketch = SketchOf(line);
  return (sketch.output > 0 ? uint32_t{sketch.output} : kUnboundedSteps) +
         sketch.prompt / kPromptTokensPerStep;
}

}  // namespace

base::Result<std::unique_ptr<SharedJob>> SharedJob::Open(const SharedJobOptions& options) {
  auto input = JobFile::Open(options.input_path);
  if (!input.ok()) return input.status();
  FB_RETURN_IF_ERROR(CheckIsNotInput(options.output_path, *input));
  std::unique_ptr<SharedJob> job(new SharedJob(options, std::move(*input)));
  FB_RETURN_IF_ERROR(job->OpenLog());
  return job;
}

base::Status SharedJob::OpenLog() {
  FB_ASSIGN_OR_RETURN(
      log_, ResultsLog::Open(ResultsOf(input_, options_.output_path, options_.fingerprints,
                                       options_.retry_failed)));
  counts_.lines = static_cast<int64_t>(input_.size());
  counts_.resumed = static_cast<int64_t>(log_->num_done());
  counts_.resumed_failed = static_cast<int64_t>(log_->num_resumed_failed());
  failures_ = log_->resumed_failures();
  // No worker of this run has kept a line yet: -1 is nobody's number.
  keepers_.assign(input_.size(), -1);
  std::vector<bool> done(input_.size());
  JobSize size{
      .lines = counts_.lines, .resumed = counts_.resumed, .resumed_failed = counts_.resumed_failed};
  for (size_t ordinal = 0; ordinal < input_.size(); ++ordinal) {
    if (!log_->Done(ordinal)) size.pending_bytes += input_[ordinal].length;
    // A line that is too long goes to no worker: its error is its result at once.
    if (const auto error = TooLong(input_[ordinal]); error && !log_->Done(ordinal))
      FB_RETURN_IF_ERROR(Fail(ordinal, *error));
    done[ordinal] = log_->Done(ordinal);
  }
  const auto length_of = [this](int64_t line) {
    return StepsOf(input_, static_cast<size_t>(line));
  };
  book_ = std::make_unique<LeaseBook>(length_of, done, options_.leases);
  estimator_.emplace(size);
  return {};
}

ProgressView SharedJob::Progress(double elapsed_seconds) {
  JobCounters counters;
  counters.read_bytes = counts_.done_bytes;
  counters.read_prompt_tokens = counts_.prompt_tokens;
  counters.done = counts_.done;
  counters.failed = counts_.failed;
  counters.done_output_tokens = counts_.output_tokens;
  const EngineStats stats{.output_tokens = counts_.output_tokens,
                          .computed_tokens = counts_.prompt_tokens + counts_.output_tokens};
  ProgressView view = estimator_->View(elapsed_seconds, counters, stats);
  for (const int64_t worker : present_) {
    const auto done = counts_.by_worker.find(NameOf(worker));
    view.workers.push_back({.name = NameOf(worker),
                            .done = done == counts_.by_worker.end() ? 0 : done->second,
                            .held = book_->held(worker)});
  }
  return view;
}

void SharedJob::Join(int64_t worker, std::string name, int64_t now_ns) {
  book_->Join(worker, now_ns);
  names_[worker] = std::move(name);
  present_.insert(worker);
}

const std::string& SharedJob::NameOf(int64_t worker) const {
  static const std::string earlier = "an earlier run";
  const auto found = names_.find(worker);
  return found == names_.end() ? earlier : found->second;
}

base::Result<std::vector<WorkerOrder>> SharedJob::Ask(int64_t worker, int64_t now_ns) {
  return Act(book_->Ask(worker, now_ns), nullptr);
}
base::Result<std::vector<WorkerOrder>> SharedJob::Hear(int64_t worker, int64_t now_ns) {
  return Act(book_->Hear(worker, now_ns), nullptr);
}
base::Result<std::vector<WorkerOrder>> SharedJob::Leave(int64_t worker, int64_t now_ns) {
  present_.erase(worker);
  return Act(book_->Leave(worker, now_ns), nullptr);
}
base::Result<std::vector<WorkerOrder>> SharedJob::Die(int64_t worker, int64_t now_ns) {
  present_.erase(worker);
  return Act(book_->Die(worker, now_ns), nullptr);
}
base::Result<std::vector<WorkerOrder>> SharedJob::Tick(int64_t now_ns) {
  return Act(book_->Tick(now_ns), nullptr);
}

base::Result<std::vector<WorkerOrder>> SharedJob::Finish(int64_t worker, std::string_view text,
                                                         int64_t now_ns) {
  // What a worker sends is read like a results file that somebody else wrote. A worker that sends
  // what is of no use lives all the same.
  const std::optional<FoundResult> found = ReadResult(parser_, text);
  if (!found) {
    Refuse(worker, "what is no result");
    return Hear(worker, now_ns);
  }
  const std::optional<size_t> ordinal = input_.Find(found->id.line - 1);
  Fingerprints expected = options_.fingerprints;
  if (ordinal) expected.input = input_[*ordinal].hash;
  if (!ordinal || !(found->id.hash == expected)) {
    Refuse(worker, fmt::format("a result for line {} of another job", found->id.line));
    return Hear(worker, now_ns);
  }
  return Act(book_->Finish(worker, static_cast<int64_t>(*ordinal), now_ns), &*found);
}

base::Result<std::vector<WorkerOrder>> SharedJob::Act(const std::vector<LeaseAction>& actions,
                                                      const FoundResult* found) {
  using Kind = LeaseAction::Kind;
  std::vector<WorkerOrder> orders;
  for (const LeaseAction& action : actions) {
    const auto ordinal = static_cast<size_t>(action.line);
    switch (action.kind) {
      case Kind::kLease: {
        FB_ASSIGN_OR_RETURN(WorkerOrder order, Lease(action));
        orders.push_back(std::move(order));
        break;
      }
      case Kind::kWait: break;
      case Kind::kKeep: FB_RETURN_IF_ERROR(Keep(action.worker, ordinal, *found)); break;
      case Kind::kCompare: FB_RETURN_IF_ERROR(Compare(action.worker, ordinal, found->text)); break;
      case Kind::kRefuse:
        Refuse(action.worker, fmt::format("a result for line {}, which it does not hold",
                                          input_[ordinal].line + 1));
        break;
      case Kind::kFail:
        FB_RETURN_IF_ERROR(
            Fail(ordinal, {.http_status = 500,
                           .message = fmt::format("{} workers died while they held the line; the "
                                                  "last was {}",
                                                  LeaseBook::kMostDeaths, NameOf(action.worker)),
                           .code = "worker_died",
                           .type = "server_error"}));
        break;
      case Kind::kGiveUp:
        present_.erase(action.worker);
        orders.push_back({.worker = action.worker});
        break;
    }
  }
  return orders;
}

base::Result<WorkerOrder> SharedJob::Lease(const LeaseAction& action) const {
  WorkerOrder order{.worker = action.worker};
  for (const int64_t line : action.lines) {
    const auto ordinal = static_cast<size_t>(line);
    LineServer::Line& sent = order.lines.emplace_back();
    sent.number = input_[ordinal].line;
    FB_RETURN_IF_ERROR(input_.Read(ordinal, &sent.text));
  }
  return order;
}

base::Status SharedJob::Keep(int64_t worker, size_t ordinal, const FoundResult& found) {
  FB_RETURN_IF_ERROR(log_->Append(ordinal, found.text));
  keepers_[ordinal] = static_cast<int32_t>(worker);
  ++counts_.done;
  counts_.done_bytes += input_[ordinal].length;
  ++counts_.by_worker[NameOf(worker)];
  if (found.failed) {
    ++counts_.failed;
    failures_.Add(found.error_code, found.id.line, found.error_message);
    return {};
  }
  // Tokens are counted for the summary alone: a result without usage is as good.
  simdjson::dom::element line;
  simdjson::dom::object usage;
  int64_t tokens = 0;
  if (parser_.parse(found.text.data(), found.text.size()).get(line) ||
      line["response"]["body"]["usage"].get(usage))
    return {};
  if (!usage["prompt_tokens"].get(tokens)) counts_.prompt_tokens += tokens;
  if (!usage["completion_tokens"].get(tokens)) counts_.output_tokens += tokens;
  return {};
}

base::Status SharedJob::Fail(size_t ordinal, const LineError& error) {
  ResultId id{.line = int64_t{input_[ordinal].line} + 1, .hash = options_.fingerprints};
  id.hash.input = input_[ordinal].hash;
  std::optional<std::string> custom_id;
  std::string line, text;
  simdjson::dom::element parsed;
  std::string_view name;
  // The error carries the line's custom_id where the line can still be read.
  if (!TooLong(input_[ordinal]) && input_.Read(ordinal, &line).ok() &&
      !parser_.parse(line).get(parsed) && !parsed["custom_id"].get(name))
    custom_id = name;
  AppendErrorResult(id, custom_id, error, &text);
  FB_RETURN_IF_ERROR(log_->Append(ordinal, text));
  ++counts_.done;
  ++counts_.failed;
  failures_.Add(error.code, id.line, error.message);
  return {};
}

base::Result<std::string> SharedJob::ReadKept(size_t ordinal) const {
  std::ifstream file(options_.output_path, std::ios::binary);
  std::string text;
  file.seekg(static_cast<std::streamoff>(log_->offsets()[ordinal]));
  if (std::getline(file, text)) return text;
  return base::Status(kResultsIo, fmt::format("{}: cannot read the result of line {} back",
                                              options_.output_path, input_[ordinal].line + 1));
}

base::Status SharedJob::Compare(int64_t worker, size_t ordinal, std::string_view text) {
  // Two workers computed the line, since one was taken for dead. An answer follows from the line
  // and the settings alone, so theirs are the same, or one machine cannot be trusted with the
  // others.
  FB_ASSIGN_OR_RETURN(const std::string kept, ReadKept(ordinal));
  FB_ASSIGN_OR_RETURN(const std::string first, AnswerOf(parser_, kept));
  FB_ASSIGN_OR_RETURN(const std::string second, AnswerOf(parser_, text));
  if (first == second) {
    ++counts_.twice;
    return {};
  }
  return base::Status(
      kResultsDiffer,
      fmt::format("input line {}: {} and {} gave different answers; one of the two machines "
                  "computes wrongly, or their models differ",
                  input_[ordinal].line + 1, NameOf(keepers_[ordinal]), NameOf(worker)));
}

void SharedJob::Refuse(int64_t worker, std::string_view why) {
  ++counts_.refused;
  base::Log(base::LogLevel::kWarning,
            fmt::format("{} sent {}; it is dropped", NameOf(worker), why));
}

}  // namespace forebay::job

// Jobs with files: one in this process, and the two sides of one that several processes share.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "job/files/log_io.h"
#include "job/files/settings.h"
#include "job/job.h"
#include "job/job_clock.h"
#include "job/line_server.h"
#include "job/shared_job.h"
#include "model.h"
#include "open/check_lines.h"
#include "open/model_files.h"

namespace forebay::python {
namespace {

// What a caller sees that wants progress: a line every few seconds where stderr is no terminal.
job::ProgressMode ProgressOf(bool wanted) {
  if (!wanted) return job::ProgressMode::kQuiet;
  return isatty(2) ? job::ProgressMode::kLive : job::ProgressMode::kLines;
}

// May these files be written?
base::Status CheckFiles(const settings::RunOptions& flags, const std::string& input,
                        const std::string& output, const std::string& summary) {
  return open::CheckFiles(flags,
                          {.outputs = {{"output", output, job::kResultsIo}, {"summary", summary}},
                           .inputs = {{"input", input}}});
}

// The job of `forebay run`, in a thread of its own.
class Batch {
 public:
  struct Options {
    std::string input, output, shard, summary;
    bool strict, retry_failed, preserve_order, progress;
    double grace;
  };
  // `input_is_there`: false where it is still being written. The model is opened meanwhile.
  Batch(const std::string& model, const Flags& given, Options options, bool input_is_there)
      : flags_(ParseFlags(model, given)), options_(std::move(options)) {
    if (input_is_there) input_->Set();
    thread_ = std::make_unique<std::thread>([this] { Run(); });
  }
  ~Batch() {
    Close();
    if (!is_forked() && (!model_ || FreeEngine(*model_))) return;
    // A child of fork has none of their threads.
    static_cast<void>(thread_.release());
    static_cast<void>(model_.release());
    static_cast<void>(ended_.release());
    static_cast<void>(input_.release());
    static_cast<void>(runtime_.release());
  }

  // The input is there now.
  void Begin() { input_->Set(); }
  // Has the engine begun? From then on the results file is replaced by no other; it grows.
  bool Runs() const { return opened_model_ && model_->engine().stats().steps > 0; }
  // Gives up what runs. Safe to call twice.
  void Close() {
    if (is_forked()) return;
    control_.abort = true;
    input_->Set();
    const GilRelease release;
    Join();
  }

  // Has it ended? Waits for it, but no longer than `seconds`.
  bool Wait(double seconds) {
    const GilRelease release;
    ended_->Wait(static_cast<runtime::TimeNs>(seconds * 1e9));
    return done_;
  }
  void Drain() { control_.drain = true; }
  void Abort() { control_.abort = true; }

  // How it ended, the error's code and message where there is one, and the summary as JSON.
  nb::tuple Result() {
    {
      const GilRelease release;
      Join();
    }
    if (!opened_.ok()) Throw(opened_);
    return nb::make_tuple(std::string(job::Name(outcome_.exit_code)), outcome_.status.code().name,
                          outcome_.status.message(), job::SummaryJson(outcome_.summary));
  }

 private:
  bool is_forked() const { return getpid() != pid_; }
  void Join() {
    const std::lock_guard lock(joining_);
    if (thread_->joinable()) thread_->join();
  }
  void Run() {
    opened_ = RunJob();
    done_ = true;
    ended_->Set();
  }
  base::Status RunJob() {
    if (!options_.shard.empty()) {
      FB_ASSIGN_OR_RETURN(shard_, job::ParseShard(options_.shard));
    }
    // What is wrong with files is said before a large model is read.
    FB_RETURN_IF_ERROR(input_->IsSet() ? OpenInput() : CheckFiles());
    FB_RETURN_IF_ERROR(OpenModel());
    FB_RETURN_IF_ERROR(OpenInput());
    job::JobOptions job{.output_path = options_.output,
                        .strict = options_.strict,
                        .retry_failed = options_.retry_failed,
                        .preserve_order = options_.preserve_order,
                        .grace_seconds = options_.grace,
                        .progress = ProgressOf(options_.progress),
                        .summary_path = options_.summary};
    model_->FillJob(&job);
    outcome_ = job::RunJob(*runtime_, *lines_, job, model_->text(), model_->engine(), control_);
    return {};
  }
  base::Status CheckFiles() const {
    return python::CheckFiles(flags_, options_.input, options_.output, options_.summary);
  }
  // Waits until the input is there.
  base::Status OpenInput() {
    if (lines_) return {};
    input_->Wait();
    FB_ASSIGN_OR_RETURN(job::JobFile lines, job::JobFile::Open(options_.input));
    lines_.emplace(std::move(lines));
    if (!shard_.all()) lines_->Keep(shard_);
    return CheckFiles();
  }
  base::Status OpenModel() {
    const open::KnownJob known{.lines = [this]() -> base::Result<const job::JobFile*> {
      FB_RETURN_IF_ERROR(OpenInput());
      return &*lines_;
    }};
    FB_ASSIGN_OR_RETURN(
        model_,
        open::OpenedModel::Open(*runtime_, flags_, {options_.output, !flags_.now.empty(), known}));
    opened_model_ = true;
    return {};
  }

  const pid_t pid_ = getpid();
  settings::RunOptions flags_;
  const Options options_;
  std::unique_ptr<runtime::Runtime> runtime_ = runtime::CreateRealRuntime();
  std::unique_ptr<runtime::Event> input_ = runtime_->NewEvent("the batch's input");
  std::unique_ptr<runtime::Event> ended_ = runtime_->NewEvent("the batch's end");
  RunControl control_;
  job::InputShard shard_;  // the thread's, as are its lines
  std::optional<job::JobFile> lines_;
  std::unique_ptr<open::OpenedModel> model_;  // written by the thread before opened_model_
  std::atomic<bool> opened_model_{false}, done_{false};
  base::Status opened_;      // the thread's, until it ended
  job::JobOutcome outcome_;  // the same
  std::mutex joining_;       // guards joining thread_
  std::unique_ptr<std::thread> thread_;
};

using Line = std::pair<int64_t, nb::bytes>;

std::vector<Line> Lines(const std::vector<job::LineServer::Line>& lines) {
  std::vector<Line> made;
  for (const auto& line : lines)
    made.emplace_back(line.number, nb::bytes(line.text.data(), line.text.size()));
  return made;
}

// A worker's side.
class Server {
 public:
  explicit Server(std::shared_ptr<Model> model)
      : model_(std::move(model)),
        server_(model_->runtime(), model_->session(), model_->opened().NewParser(),
                model_->opened().AnswerParts()) {}

  void Add(const std::vector<Line>& given) {
    std::vector<job::LineServer::Line> lines;
    for (const auto& [number, text] : given)
      lines.push_back({number, std::string(text.c_str(), text.size())});
    const GilRelease release;
    const auto use = model_->Use();
    server_.Add(std::move(lines));
  }
  std::vector<nb::bytes> Take(double seconds) {
    std::vector<job::AnswerLine> answers;
    {
      const GilRelease release;
      answers = server_.Take(static_cast<runtime::TimeNs>(seconds * 1e9));
    }
    std::vector<nb::bytes> texts;
    for (const auto& answer : answers) texts.emplace_back(answer.text.data(), answer.text.size());
    return texts;
  }
  size_t held() const { return server_.held(); }
  void CancelAll() {
    const GilRelease release;
    server_.CancelAll();
  }
  // Model, settings, numerics class, marks of the settings.
  std::vector<uint64_t> Fingerprints() {
    const job::Fingerprints prints = model_->opened().fingerprints();
    return {prints.model, prints.settings, prints.numerics, prints.marks};
  }

 private:
  std::shared_ptr<Model> model_;
  job::LineServer server_;
};

// The driver's side. `now` is in seconds of one clock.
class Driver {
 public:
  using Orders = std::vector<std::pair<int64_t, std::vector<Line>>>;

  Driver(const std::string& input, const std::string& output,
         const std::vector<uint64_t>& fingerprints, bool retry_failed, int64_t least_lines,
         int64_t most_lines, double silent_seconds, bool progress)
      : display_(ProgressOf(progress), 2) {
    const GilRelease release;
    const job::SharedJobOptions options{.input_path = input,
                                        .output_path = output,
                                        .fingerprints = {.model = fingerprints.at(0),
                                                         .settings = fingerprints.at(1),
                                                         .numerics = fingerprints.at(2),
                                                         .marks = fingerprints.at(3)},
                                        .retry_failed = retry_failed,
                                        .leases = {.least_lines = least_lines,
                                                   .most_lines = most_lines,
                                                   .silent_after_ns = Ns(silent_seconds)}};
    job_ = python::Take(job::SharedJob::Open(options));
  }

  void Join(int64_t worker, std::string name, double now) {
    job_->Join(worker, std::move(name), Ns(now));
  }
  Orders Ask(int64_t worker, double now) { return Give(job_->Ask(worker, Ns(now))); }
  Orders Hear(int64_t worker, double now) { return Give(job_->Hear(worker, Ns(now))); }
  Orders Leave(int64_t worker, double now) { return Give(job_->Leave(worker, Ns(now))); }
  Orders Die(int64_t worker, double now) { return Give(job_->Die(worker, Ns(now))); }
  Orders Tick(double now) { return Give(job_->Tick(Ns(now))); }
  Orders Finish(int64_t worker, const nb::bytes& text, double now) {
    return Give(job_->Finish(worker, {text.c_str(), text.size()}, Ns(now)));
  }
  void Commit() {
    const GilRelease release;
    Check(job_->Commit());
  }
  void RewriteInOrder() {
    const GilRelease release;
    Check(job_->RewriteInOrder());
  }
  bool GroupIsFull() const { return job_->GroupIsFull(); }
  bool complete() const { return job_->complete(); }

  // Draws on stderr, as `forebay run` does, how the job stands so long after its begin.
  void Draw(double seconds, bool last) {
    const job::ProgressView view = job_->Progress(seconds);
    last ? display_.Finish(view) : display_.Draw(view);
  }

  // Members of the summary (docs/formats/summary.md).
  nb::dict Counts() const {
    const job::SharedJob::Counts& counts = job_->counts();
    nb::dict dict, workers;
    dict["num_lines"] = counts.lines;
    dict["num_resumed"] = counts.resumed;
    dict["num_requests"] = counts.done;
    dict["num_failed"] = counts.failed;
    dict["num_failed_in_file"] = counts.failed + counts.resumed_failed;
    dict["prompt_tokens"] = counts.prompt_tokens;
    dict["output_tokens"] = counts.output_tokens;
    dict["computed_twice"] = counts.twice;
    dict["refused"] = counts.refused;
    for (const auto& [name, lines] : counts.by_worker) workers[name.c_str()] = lines;
    dict["by_worker"] = workers;
    nb::list failures;
    for (const auto& [code, failure] : job_->failures().ByCount()) {
      nb::dict member;
      member["code"] = code;
      member["count"] = failure.count;
      member["first_line"] = failure.first_line;
      member["message"] = failure.message;
      failures.append(member);
    }
    dict["failures"] = failures;
    return dict;
  }

 private:
  static int64_t Ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }
  static Orders Give(base::Result<std::vector<job::WorkerOrder>> result) {
    Orders orders;
    for (const job::WorkerOrder& order : python::Take(std::move(result)))
      orders.emplace_back(order.worker, Lines(order.lines));
    return orders;
  }

  std::unique_ptr<job::SharedJob> job_;
  job::ProgressDisplay display_;
};

// Whether a job may write its files whose engines are in other processes, checked as --strict does.
void CheckSharedFiles(const std::string& model, const Flags& given, const std::string& input,
                      const std::string& output, const std::string& summary) {
  python::Check(python::CheckFiles(ParseFlags(model, given), input, output, summary));
}
void CheckLines(const std::string& model, const Flags& given, const std::string& input,
                int64_t max_model_len) {
  const settings::RunOptions flags = ParseFlags(model, given);
  const GilRelease release;
  const job::JobFile lines = python::Take(job::JobFile::Open(input));
  python::Check(open::CheckLines(lines, flags, max_model_len));
}

}  // namespace

void AddJobs(nb::module_& module) {
  module.def("check_files", &CheckSharedFiles);
  module.def("check_lines", &CheckLines);
  // The clock that the templates of a results file's job saw, as --now takes it.
  module.def("job_clock", [](const std::string& path) { return job::FindJobClock(path); });
  module.def("differing_settings", &job::NameDifferences);
  nb::class_<Batch>(module, "Batch", nb::is_weak_referenceable())
      .def("__init__",
           [](Batch* self, const std::string& model, const Flags& flags, const std::string& input,
              const std::string& output, const std::string& shard, const std::string& summary,
              bool strict, bool retry_failed, bool preserve_order, bool progress, double grace,
              bool input_is_there) {
             new (self) Batch(model, flags,
                              {input, output, shard, summary, strict, retry_failed, preserve_order,
                               progress, grace},
                              input_is_there);
           })
      .def("begin", &Batch::Begin)
      .def("runs", &Batch::Runs)
      .def("wait", &Batch::Wait)
      .def("drain", &Batch::Drain)
      .def("abort", &Batch::Abort)
      .def("close", &Batch::Close)
      .def("result", &Batch::Result);
  nb::class_<Server>(module, "Server")
      .def(nb::init<std::shared_ptr<Model>>())
      .def("add", &Server::Add)
      .def("take", &Server::Take)
      .def("held", &Server::held)
      .def("cancel_all", &Server::CancelAll)
      .def("fingerprints", &Server::Fingerprints);
  nb::class_<Driver>(module, "Driver")
      .def(nb::init<const std::string&, const std::string&, const std::vector<uint64_t>&, bool,
                    int64_t, int64_t, double, bool>())
      .def("join", &Driver::Join)
      .def("ask", &Driver::Ask)
      .def("hear", &Driver::Hear)
      .def("leave", &Driver::Leave)
      .def("die", &Driver::Die)
      .def("tick", &Driver::Tick)
      .def("finish", &Driver::Finish)
      .def("commit", &Driver::Commit)
      .def("rewrite_in_order", &Driver::RewriteInOrder)
      .def("group_is_full", &Driver::GroupIsFull)
      .def("complete", &Driver::complete)
      .def("draw", &Driver::Draw)
      .def("counts", &Driver::Counts);
}

}  // namespace forebay::python

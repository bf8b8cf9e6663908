// A loaded model as Python holds it, and how the engine's errors become Python's.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "gil.h"
#include "job/exit_code.h"
#include "job/request_builder.h"
#include "job/session.h"
#include "open/opened_model.h"
#include "runtime/real/real_runtime.h"
#include "settings/run_options.h"

namespace forebay::python {

namespace nb = nanobind;

// Becomes forebay.Error: with `usage` one that is a ValueError, else a RuntimeError.
struct Failure {
  std::string code, message;
  bool usage;
};

[[noreturn]] void Throw(const base::Status& status);
inline void Check(const base::Status& status) {
  if (!status.ok()) Throw(status);
}
template <typename T>
T Take(base::Result<T> result) {
  if (!result.ok()) Throw(result.status());
  return std::move(*result);
}

// Settings as "--name=text", "--on" or "--no-on".
using Flags = std::vector<std::string>;

// The names of all settings that Python takes, without dashes; whether a text follows, and whether
// several may.
std::vector<std::tuple<std::string, bool, bool>> FlagNames();
settings::RunOptions ParseFlags(const std::string& model, const Flags& given);

// Frees the engine, which runs no more. False: one of its devices hangs, so that a thread goes on
// with it, and the model and its runtime must stay.
bool FreeEngine(open::OpenedModel& model);

// One loaded model, and its session. A child of fork has no threads of it and may only drop it.
class Model {
 public:
  // `trace`: of which lengths the prompts and answers will be, for a layout that is chosen by them
  // (docs/formats/traces.md); "": nobody knows.
  Model(const std::string& name, const Flags& given, const std::string& trace);
  ~Model();

  // What runs ends at once, and the engine's memory is freed. Text, facts and counters stay. Any
  // thread may call, and returns when that has been done.
  void Close();
  void Check() const;
  bool is_forked() const { return getpid() != pid_; }
  // While this lives the engine does. Throws as Check. The thread is without the GIL.
  std::shared_lock<std::shared_mutex> Use() const;
  job::BuiltLine Parse(std::string* text, int64_t key);
  // A completion of `prompt` that asks for `rest`: what a line holds behind its prompt.
  job::BuiltLine Build(job::Prompt prompt, const std::string& rest, int64_t key);

  runtime::Runtime& runtime() { return *runtime_; }
  job::Session& session() { return *session_; }
  open::OpenedModel& opened() { return *opened_; }
  job::ModelText& text() { return opened_->text(); }

  nb::dict Facts() const;
  nb::dict Stats() const;
  // Members that get_metrics() makes vLLM's of (forebay/metrics.py).
  nb::dict Meters() const;
  nb::dict Defaults() const;
  void ForgetPrefixes();
  // One more than the greatest token, and those with which texts begin and end.
  std::tuple<int32_t, std::optional<int32_t>, std::optional<int32_t>> Vocabulary() const;
  std::vector<int32_t> Encode(const std::string& text, bool add_special_tokens) const;
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special_tokens) const;
  std::string Render(const std::string& messages, const std::string& tools,
                     const std::string& kwargs, bool add_generation_prompt,
                     bool continue_final_message);

 private:
  // What the engine says, or what it said last.
  struct Counters {
    EngineStats stats;
    engine::Meters meters;
  };
  const text::Tokenizer& tokenizer() const;
  void CheckProcess() const;
  Counters ReadCounters() const;

  const pid_t pid_ = getpid();
  settings::RunOptions flags_;
  std::unique_ptr<runtime::Runtime> runtime_;
  std::unique_ptr<open::OpenedModel> opened_;
  std::string isa_;
  std::mutex closing_;                      // guards Close; taken before the next
  mutable std::shared_mutex engine_mutex_;  // guards the engine's life, and last_
  std::optional<Counters> last_;            // once the engine is freed
  bool hangs_ = false;                      // a device; the model and its runtime must stay
  std::mutex mutex_;                        // guards the next two, and rendering
  std::optional<job::RequestParser> parser_;
  std::optional<std::pair<std::string, job::ParsedLine>> asked_;  // the last that Build was given
  std::unique_ptr<job::Session> session_;
};

// The parts of the module, one a file.
void AddModel(nb::module_& module);
void AddPrompts(nb::module_& module);
void AddRowIds(nb::module_& module);
void AddCall(nb::module_& module);
void AddAnswers(nb::module_& module);
void AddJobs(nb::module_& module);

}  // namespace forebay::python

// A model opened to answer requests: its files, its text, its engine, and the identity of its
// answers. The command line, Python and a server open every job's model here.
#pragma once

#include <memory>
#include <string>

#include "choose/layout_search.h"
#include "engine/compose.h"
#include "job/answer_lines.h"
#include "job/job.h"
#include "job/model_options.h"
#include "job/model_text.h"
#include "job/request_builder.h"
#include "open/describe_job.h"
#include "runtime/runtime.h"

namespace forebay::open {

// What a model is opened for.
struct Purpose {
  // A results file with which the job goes on: templates see the clock that it began with, unless
  // `keep_clock`. "": none.
  std::string results_path;
  bool keep_clock = false;
  KnownJob job;
  choose::TellSearch tell_search;  // hears how far a search of layouts is; may be null
};

// Owns files, text and engine, in the order in which they borrow from each other.
class OpenedModel {
 public:
  // Opens the files, describes the job to the engine, prices the CPU where ranks decide by prices
  // (profile::PriceCpu), and makes the engine. `runtime` must outlive the model.
  static base::Result<std::unique_ptr<OpenedModel>> Open(runtime::Runtime& runtime,
                                                         const job::ModelOptions& options,
                                                         const Purpose& purpose = {});

  job::ModelText& text() { return *text_; }
  engine::LocalEngine& engine() { return *engine_; }
  const ModelFacts& facts() const { return facts_; }

  job::RequestRules rules() const;
  // Everything but the line that an answer depends on.
  job::Fingerprints fingerprints() const;
  job::ResultStyle style() const;

  // The two ends of a caller's requests: lines in, answers out. The model must outlive both.
  job::RequestParser NewParser() { return {rules(), text(), &engine()}; }
  job::AnswerLines::Parts AnswerParts();

  // Sets what a job takes from its model: rules, fingerprints, style, and how its engine learns. A
  // job whose lines are all there runs them in the order of the engine's policy, where it has one.
  // The model must outlive the job.
  void FillJob(job::JobOptions* job);

  // Frees the engine and its memory; text, facts and all that follows from them stay. REQUIRES:
  // nothing runs, and nobody uses the engine again.
  void CloseEngine() { engine_.reset(); }

 private:
  explicit OpenedModel(const job::ModelOptions& options) : options_(options) {}

  job::ModelOptions options_;
  engine::ModelFiles files_;
  std::unique_ptr<job::ModelText> text_;
  std::unique_ptr<engine::LocalEngine> engine_;
  ModelFacts facts_;  // the engine's
};

}  // namespace forebay::open

// A model opened for requests, and the rules that come with it: what a request may ask for, what
// its defaults are, and what its answer depends on. `forebay run` and every other caller stand on
// these, so that the same request has the same answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/compose.h"
#include "job/job.h"
#include "job/model_text.h"
#include "job/output_check.h"

namespace forebay::job {

struct ModelOptions {
  layout::EngineOptions engine;
  ModelTextOptions text;                        // `path` and `gguf` are found out
  std::vector<std::string> served_model_names;  // in requests, "*" for any; results carry the first
  // "auto" (the model's), "vllm" (none), or a folder that holds generation_config.json
  std::string generation_config = "auto";
  int32_t max_logprobs = 20;
};

// What the options name, for CheckOutputs.
struct OptionFiles {
  std::vector<NamedPath> outputs, inputs;
};
OptionFiles FilesOf(const ModelOptions& options);

// Configuration, weights' files and generation defaults, as the options have them. `config_alone`:
// shapes are enough.
base::Result<engine::ModelFiles> OpenModelFiles(const ModelOptions& options, bool config_alone);

// What is known of the model before there is an engine: enough for RulesOf.
ModelFacts FactsOf(const engine::ModelFiles& files);
RequestRules RulesOf(const ModelOptions& options, const engine::ModelFiles& files,
                     const ModelFacts& facts);

// Sets in `engine` what is known of the job; by these a line becomes a request.
using DescribeFn =
    std::function<base::Status(const engine::ModelFiles& files, const RequestRules& rules,
                               TextPipeline& text, layout::EngineOptions* engine)>;

// Files, text and engine, in the order in which they lean on each other.
class OpenedModel {
 public:
  // `results_path`: a results file with which the job goes on, whose clock templates then see
  // (unless `keep_clock`); "": none. `describe` is called before the engine is made; null: nothing
  // is known of a job. `runtime` must outlive the model.
  static base::Result<std::unique_ptr<OpenedModel>> Open(runtime::Runtime& runtime,
                                                         const ModelOptions& options,
                                                         const std::string& results_path,
                                                         bool keep_clock,
                                                         const DescribeFn& describe = nullptr);

  ModelText& text() { return *text_; }
  engine::LocalEngine& engine() { return *engine_; }
  const ModelFacts& facts() const { return engine_->facts(); }

  RequestRules rules() const { return RulesOf(options_, files_, facts()); }
  // Everything but the line that an answer depends on.
  Fingerprints fingerprints() const;
  ResultStyle style() const;

 private:
  explicit OpenedModel(const ModelOptions& options) : options_(options) {}

  ModelOptions options_;
  engine::ModelFiles files_;
  std::unique_ptr<ModelText> text_;
  std::unique_ptr<engine::LocalEngine> engine_;
};

}  // namespace forebay::job

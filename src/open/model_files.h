// What a model's files say before there is an engine: configuration, text, and the rules for
// requests. `forebay run`, Python and a server stand on these, so that the same request has the
// same answer.
#pragma once

#include <memory>
#include <vector>

#include "engine/open_model.h"
#include "forebay/engine.h"
#include "job/files/output_check.h"
#include "job/lines/line_parser.h"
#include "job/model_options.h"
#include "job/model_text.h"

namespace forebay::open {

// Files that options name, as job::CheckOutputs takes them.
struct NamedFiles {
  std::vector<job::NamedPath> outputs, inputs;
};
// Checks that the outputs which the model's options name, and `others`, can be written and harm
// neither each other nor an input. Errors: job::CheckOutputs's.
base::Status CheckFiles(const job::ModelOptions& options, NamedFiles others);

// Opens configuration, weights' files and generation defaults. `config_alone`: shapes are enough.
base::Result<engine::ModelFiles> OpenModelFiles(const job::ModelOptions& options,
                                                bool config_alone);
// Loads tokenizer and chat template; `path` and `gguf` of the options are the files'. `files` must
// outlive the text, which borrows from a GGUF file.
base::Result<std::unique_ptr<job::ModelText>> LoadText(job::ModelTextOptions options,
                                                       const engine::ModelFiles& files);

// What a request may ask for, and its defaults.
job::RequestRules RulesOf(const job::ModelOptions& options, const engine::ModelFiles& files,
                          const ModelFacts& facts);
// The sampling defaults of RulesOf.
SamplingParams SamplingDefaults(const model::GenerationConfig& generation);

}  // namespace forebay::open

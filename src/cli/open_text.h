// Opens the text side of a model for the commands that need no weights.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "job/model_text.h"
#include "weights/formats/weight_source.h"

namespace forebay::cli {

// A model's text together with the GGUF file that it borrows from.
struct OpenedText {
  std::optional<weights::WeightSource> source;  // a GGUF file's
  std::unique_ptr<job::ModelText> text;
};

base::Result<OpenedText> OpenText(job::ModelTextOptions options);

// Answers each line of standard input by one on standard output: an object of the members that
// `answer` writes, or of "error" alone where the line is no JSON or `answer` fails. Returns the
// exit code: 1 where an answer was lost, 3 where a line failed; both are said on stderr.
using AnswerLine =
    std::function<base::Status(simdjson::dom::element line, base::JsonWriter& members)>;
int AnswerLines(const AnswerLine& answer);

}  // namespace forebay::cli

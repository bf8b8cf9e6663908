// Opens the text side of a model for the commands that need no weights.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "job/model_text.h"
#include "weights/formats/weight_source.h"

namespace forebay::cli {

// A model's text together with the GGUF file that it borrows from.
struct OpenedText {
  std::optional<weights::WeightSource> source;  // of a GGUF file
  std::unique_ptr<job::ModelText> text;
};

base::Result<OpenedText> OpenText(job::ModelTextOptions options);

// "2026-03-07T14:05:09", or now in local time for "".
base::Result<std::tm> ParseNow(const std::string& text);

// Prints "forebay: error: MESSAGE [code]" and returns `exit_code`.
int Fail(const base::Status& status, int exit_code = 1);

// Reads lines of standard input until its end; false there. The line's LF and CR are dropped.
bool ReadLine(std::string* line);

// Flushes standard output and returns the exit code: where any of it was lost, says so and returns 1.
int FinishOutput();

}  // namespace forebay::cli

// How long a job's prompts and answers are, by its lines.
#pragma once

#include "job/files/job_file.h"
#include "job/request_builder.h"
#include "layout/options.h"
#include "model/config.h"
#include "trace/job_lengths.h"
#include "trace/output_lengths.h"

namespace forebay::open {

// Lines that are tokenized: in a longer job as many, evenly chosen, stand for all.
inline constexpr int64_t kMostMeasuredLines = 2000;
// Choices that stand for those of a job with more.
inline constexpr int64_t kMostMeasuredChoices = 100'000;
// Tokens that an answer is taken to have where its request names no bound and the model may end it.
inline constexpr int64_t kAnswerWithoutBound = 512;

// A job's lines, and the rules by which they become requests. All outlive it.
struct LineJob {
  const job::JobFile& file;
  job::RequestRules rules;
  job::TextPipeline& text;
  const model::ModelConfig& config;
  const trace::OutputLengths* lengths = nullptr;  // the answers'; null: not known
};

// Measures the choices of all lines, those of earlier runs included. An answer whose length is not
// known has its greatest length; one without a bound has that on simulated devices alone, and
// kAnswerWithoutBound at most on real ones. A prompt without an answer (a vector, a likelihood)
// counts with one token, which costs no step. Lines with errors are passed over, as are those that
// ask for what the model cannot do. A prompt that is cut to the context is cut to the longest that
// the options allow. Errors: the file
// cannot be read; trace::kTraceInvalid: no line is left.
base::Result<trace::JobLengths> MeasureLines(const LineJob& job,
                                             const layout::EngineOptions& options);

}  // namespace forebay::open

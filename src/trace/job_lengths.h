// What a job's choices come to, before it runs.
#pragma once

#include <vector>

#include "job/job_file.h"
#include "job/request_builder.h"
#include "layout/options.h"
#include "model/config.h"
#include "trace/output_lengths.h"

namespace forebay::trace {

// Lines that are tokenized: of a longer job as many, evenly chosen, stand for all.
inline constexpr int64_t kMostMeasuredLines = 2000;
// Choices that stand for those of a job with more.
inline constexpr int64_t kMostMeasuredChoices = 100'000;
// Tokens that an answer is taken to have where its request names no bound and the model may end it.
inline constexpr int64_t kAnswerWithoutBound = 512;

struct JobLengths {
  std::vector<layout::ChoiceShape> choices;  // In the job's order.
  double times = 1;                          // The job has so many times as many.
  bool exact = false;                        // It has no more, and outputs are as they say.
};

// Tells the engine how long the job's choices are, and, where `all_there`, that these are all,
// where the options leave that open.
void DescribeJob(JobLengths job, bool all_there, layout::EngineOptions* options);

// A job's lines, and by what they become requests. All outlive it.
struct LineJob {
  const job::JobFile& file;
  job::RequestRules rules;
  job::TextPipeline& text;
  const model::ModelConfig& config;
  const OutputLengths* lengths = nullptr;  // Of answers; null: they are not known.
};

// The choices of all lines, those of earlier runs included. An answer whose length is not known has
// as many tokens as it may become; one without a bound does so on simulated devices alone, on real
// ones it has kAnswerWithoutBound at most. Lines with errors are passed over. Errors: the file
// cannot be read; kTraceInvalid, where no line is left.
base::Result<JobLengths> MeasureJob(const LineJob& job, const layout::EngineOptions& options);

// Tells the engine what comes of the lines, where ranks decide by that (price::DecidesByPrices,
// StreamsByPrices). A job none of whose lines can run is taken for one of a token. Errors: the file
// cannot be read.
base::Status DescribeLines(const LineJob& job, bool all_there, layout::EngineOptions* options);

}  // namespace forebay::trace

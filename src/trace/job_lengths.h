// The lengths of a job with real text, before it runs.
#pragma once

#include "job/job_file.h"
#include "job/request_builder.h"
#include "trace/output_lengths.h"
#include "trace/trace.h"

namespace forebay::trace {

// Lines that are tokenized: of a longer job as many, evenly chosen, stand for all.
inline constexpr int64_t kMostMeasuredLines = 2000;

// A row for each choice of each line. An answer has the length that `lengths` gives, or else as
// many tokens as the request may generate, within `max_model_len`. Lines with errors are passed
// over. Errors: the file cannot be read; kTraceInvalid, where no line is left.
base::Result<LengthTrace> MeasureJob(const job::JobFile& file, job::RequestRules rules,
                                     job::TextPipeline& text, const OutputLengths& lengths,
                                     int64_t max_model_len);

}  // namespace forebay::trace

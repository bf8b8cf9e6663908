// What is known of a job before its engine is made, and how the engine is told.
#pragma once

#include <functional>

#include "job/files/job_file.h"
#include "job/lines/line_parser.h"
#include "job/lines/text_pipeline.h"
#include "layout/options.h"
#include "model/config.h"
#include "trace/output_lengths.h"
#include "trace/trace.h"

namespace forebay::open {

// A trace or lines; neither: nothing is known.
struct KnownJob {
  const trace::LengthTrace* trace = nullptr;
  // Gives the lines, and may wait for them. Called at most once, where the engine decides by them.
  std::function<base::Result<const job::JobFile*>()> lines;
  const trace::OutputLengths* lengths = nullptr;  // the answers' to the lines; null: not known
  bool all_there = true;                          // no line comes later
};

// Tells the engine how long the job's prompts and answers are, where ranks decide by that
// (price::DecidesByPrices, StreamsByPrices), and where memory is divided by it (layout::FitsPlaces)
// what a choice holds. A job none of whose lines can run counts as one
// choice of no tokens. `text` reads the lines; null: there are none. Errors: those of `lines`, and
// the file cannot be read.
base::Status DescribeJob(const KnownJob& job, const job::RequestRules& rules,
                         job::TextPipeline* text, const model::ModelConfig& config,
                         layout::EngineOptions* engine);

}  // namespace forebay::open

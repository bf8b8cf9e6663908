// --strict: every line is looked at before any runs.
#pragma once

#include <cstdint>
#include <functional>

#include "base/status.h"
#include "forebay/engine.h"
#include "job/job_file.h"
#include "job/line_parser.h"
#include "job/opened_model.h"
#include "job/text_pipeline.h"

namespace forebay::job {

// Logs each line that would fail; kBadLines if there is one. Leaves off, without an error, when
// `ending` says so.
base::Status CheckAllLines(const JobFile& input, const RequestRules& rules, TextPipeline& text,
                           const Engine& engine, const std::function<bool()>& ending);

// The same where other processes have the engines: by the model's files without their weights.
// `max_model_len`: those engines'.
base::Status CheckAllLines(const JobFile& input, ModelOptions options, int64_t max_model_len);

}  // namespace forebay::job

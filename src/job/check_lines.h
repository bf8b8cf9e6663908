// --strict: every line is looked at before any runs.
#pragma once

#include <functional>

#include "base/status.h"
#include "forebay/engine.h"
#include "job/files/job_file.h"
#include "job/lines/line_parser.h"
#include "job/lines/text_pipeline.h"

namespace forebay::job {

// Logs each line that would fail; kBadLines if there is one. Leaves off, without an error, when
// `ending` says so.
base::Status CheckAllLines(const JobFile& input, const RequestRules& rules, TextPipeline& text,
                           const Engine& engine, const std::function<bool()>& ending);

}  // namespace forebay::job

// The options of a run, and of a plan of one, as a user sets them: by flags or by Python's keyword
// arguments. table.h declares which setting is which member.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "job/job.h"
#include "job/model_options.h"
#include "job/traffic/arrivals.h"
#include "layout/options.h"

namespace forebay::settings {

// vLLM's sizes, another spelling of a layout; 0: not given.
struct ParallelSizes {
  int tensor = 0, pipeline = 0, data = 0, sequence = 0;
};

// What `forebay plan` shows.
struct PlanViews {
  std::vector<std::string> layouts;  // A column each.
  bool memory = false, pool = false, modes = false, json = false;
  double price_per_hour = 0;  // 0: not given
};

struct RunOptions : job::ModelOptions {
  job::JobOptions job;
  job::ArrivalOptions arrivals;
  std::optional<std::string> input;
  std::string shard;
  bool group_prefixes = false, quiet = false;
  std::string trace, batch_trace, output_lengths;
  int64_t trace_rows = 0;  // 0: all
  double trace_scale = 1;
  std::string steps_path, report_path;
  PlanViews plan;

  // Settings that decide something together, as they were given; Resolve acts on them.
  ParallelSizes parallel;
  std::string layout, context, generation, generation_mode;
  std::string isa = "auto", numerics = "auto";
  std::optional<bool> shifts;
  std::string routing;  // "": balanced
  std::string now;      // "": the local time

  // Somebody looks at when each token came.
  bool measures_tokens() const { return !job.summary_path.empty() || !report_path.empty(); }
};

// Sets `engine`'s layout from a text of --layout: "", "auto", or a layout.
base::Status SetLayout(const std::string& text, layout::EngineOptions* engine);

// Turns the settings that decide something together into options, once all are read. Errors name
// the flags, what was given and what was expected.
base::Status Resolve(RunOptions* options);

// "2026-03-07T14:05:09", or now in local time for "".
base::Result<std::tm> ParseNow(const std::string& text);

}  // namespace forebay::settings

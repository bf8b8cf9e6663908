// The engine's sink: results become lines of the results file.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "forebay/engine.h"
#include "job/counters.h"
#include "job/job_file.h"
#include "job/result_format.h"
#include "job/results_log.h"
#include "job/text_pipeline.h"
#include "runtime/runtime.h"

namespace forebay::job {

// Thread-safe. Remembers what each line in the engine's hands asked for, until its result comes.
class ResultWriter : public ResultSink {
 public:
  struct Parts {
    runtime::Runtime& runtime;
    const JobFile& file;
    ResultsLog& log;
    const TextPipeline& text;
    JobCounters& counters;
    Fingerprints fingerprints;
    ResultStyle style;
    std::function<int64_t()> unix_seconds;
    runtime::Event& group_is_full;  // set when the log wants a commit
  };
  explicit ResultWriter(Parts parts);

  // Of a line that was not given to Expect or WriteError before.
  bool Done(size_t ordinal) const { return parts_.log.Done(ordinal); }

  // `request`, made from `line`, goes to the engine.
  void Expect(size_t ordinal, ParsedLine line, const Request& request);
  base::Status WriteError(size_t ordinal, const std::optional<std::string>& custom_id, const LineError& error);
  // REQUIRES: the result's line was given to Expect, and this is its first result.
  bool Finish(RequestResult result) override;

 private:
  struct Expected {
    size_t ordinal;
    ParsedLine line;
    std::vector<std::vector<int32_t>> prompts;  // where the result shows them
  };
  ResultId IdOf(size_t ordinal) const;
  base::Status Append(size_t ordinal, const std::string& text, bool failed);

  const Parts parts_;
  int64_t tail_begins_at_ = 0;  // results of this run
  std::mutex mutex_;            // guards expected_
  std::unordered_map<int64_t, Expected> expected_;  // by line
};

}  // namespace forebay::job

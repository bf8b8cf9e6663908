// The engine's sink: results become lines of the results file.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "forebay/engine.h"
#include "job/answer_lines.h"
#include "job/counters.h"
#include "job/files/failures.h"
#include "job/files/job_file.h"
#include "job/files/results_log.h"
#include "job/lines/result_format.h"
#include "job/lines/text_pipeline.h"
#include "runtime/runtime.h"

namespace forebay::job {

// Thread-safe.
class ResultWriter : public ResultSink {
 public:
  struct Parts {
    runtime::Runtime& runtime;
    const JobFile& file;
    ResultsLog& log;
    const TextPipeline& text;
    JobCounters& counters;
    FailureTally& failures;  // read by others once nothing is written any more
    Fingerprints fingerprints;
    ResultStyle style;
    std::function<int64_t()> unix_seconds;
    runtime::Event& group_is_full;  // set when the log wants a commit
  };
  explicit ResultWriter(Parts parts);

  // REQUIRES: a line that was not given to Expect or WriteError before.
  bool Done(size_t ordinal) const { return parts_.log.Done(ordinal); }

  // `request`, made from `line`, goes to the engine.
  void Expect(size_t ordinal, ParsedLine line, const Request& request);
  base::Status WriteError(size_t ordinal, const std::optional<std::string>& custom_id,
                          const LineError& error);
  // REQUIRES: the result's request was given to Expect, and this is its first result.
  bool Finish(RequestResult result) override;

 private:
  InputLine InputOf(size_t ordinal) const;
  size_t OrdinalOf(const InputLine& input) const;
  // Writes the line in pieces, since its log probabilities are many.
  base::Status AppendLong(RequestResult* result);
  base::Status Append(const AnswerLine& answer);
  // The line is in the log.
  void CountDone();

  const Parts parts_;
  AnswerLines lines_;
  int64_t tail_begins_at_ = 0;  // results of this run
  std::mutex mutex_;            // guards Parts::failures
};

}  // namespace forebay::job

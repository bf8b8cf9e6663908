// Finished requests as lines of a results file, whoever keeps the file.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "forebay/request.h"
#include "job/lines/parsed_line.h"
#include "job/lines/result_format.h"
#include "job/lines/result_id.h"
#include "job/lines/text_pipeline.h"

namespace forebay::job {

// Where a result belongs: the physical line of the input, from 0, and the hash of its bytes.
struct InputLine {
  int64_t line = 0;
  uint64_t hash = 0;
};

// A line of the results file, without LF.
struct AnswerLine {
  InputLine input;
  std::string text;
  std::optional<LineError> error;  // a failed one's
};

// Thread-safe. Remembers what each line in the engine's hands asked for, until its result comes.
class AnswerLines {
 public:
  struct Parts {
    const TokenText& text;
    Fingerprints fingerprints;  // the job's; `input` is each line's own
    ResultStyle style;
    std::function<int64_t()> unix_seconds;  // for `created`
  };
  explicit AnswerLines(Parts parts) : parts_(std::move(parts)) {}

  // `request`, made from `line`, goes to the engine.
  void Expect(const InputLine& input, ParsedLine line, const Request& request);
  // A line whose error needs no engine.
  AnswerLine Refused(const InputLine& input, const std::optional<std::string>& custom_id,
                     LineError error) const;
  // Where the answer to a request belongs that was given to Expect.
  InputLine InputOf(int64_t id);
  // REQUIRES: the result's request was given to Expect, and this is its first result. `drain`:
  // AppendResult's; what it took is not in the line's text.
  AnswerLine Finish(RequestResult* result, const Drain& drain = nullptr);

 private:
  struct Expected {
    InputLine input;
    ParsedLine line;
    std::vector<std::vector<int32_t>> prompts;  // where the result shows them
  };
  ResultId IdOf(const InputLine& input) const;

  const Parts parts_;
  std::mutex mutex_;                                // guards expected_
  std::unordered_map<int64_t, Expected> expected_;  // by the request's id
};

}  // namespace forebay::job
